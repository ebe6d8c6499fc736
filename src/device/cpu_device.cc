#include "device/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "device/cpu_stream.h"
#include "os/cpu.h"

namespace tandem {
namespace {

constexpr size_t kAlignment = 64;
// Of block pools: they are registered with networks and shared with other processes by the page.
constexpr size_t kPage = 4096;
// From this size on a buffer is its own mapping and asks for huge pages of the same size.
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Pages at an address that is a multiple of a huge page; null when there is no memory.
void* MapHuge(size_t bytes) {
  const size_t reserve = bytes + kHugePage;
  void* mapped = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t skip =
      RoundUp(reinterpret_cast<size_t>(begin), kHugePage) - reinterpret_cast<size_t>(begin);
  if (skip > 0) munmap(begin, skip);
  if (kHugePage > skip) munmap(begin + skip + bytes, kHugePage - skip);
  // Without huge pages the buffer only costs more address translations.
  (void)madvise(begin + skip, bytes, MADV_HUGEPAGE);
  return begin + skip;
}

void Free(void* data, size_t size, void* /*context*/) {
  if (size >= kHugePage) {
    munmap(data, size);
  } else {
    std::free(data);
  }
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options) : options_(options) {
    if (options_.num_threads == 0) options_.num_threads = NumUsableProcessors();
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }

  Result<Buffer> Allocate(size_t bytes, MemoryTerm term) override {
    constexpr size_t kMaxBytes = size_t{1} << 47;  // an address space
    void* data = nullptr;
    size_t size = 0;
    if (bytes <= kMaxBytes) {
      const size_t alignment = term == MemoryTerm::kKv ? kPage : kAlignment;
      size = RoundUp(std::max<size_t>(bytes, 1), bytes >= kHugePage ? kHugePage : alignment);
      data = size >= kHugePage ? MapHuge(size) : std::aligned_alloc(alignment, size);
    }
    if (data == nullptr) {
      return ResourceExhaustedError("cannot allocate {} bytes for {}", bytes, NameOf(term));
    }
    return Buffer(data, size, term, &memory_, Free, nullptr);
  }

  Result<std::unique_ptr<Stream>> NewStream() override {
    const int threads = options_.num_threads;
    if (threads < 1 || threads > CpuStream::kMaxThreads) {
      return InvalidArgumentError("{} threads; from 1 to {} are possible", threads,
                                  CpuStream::kMaxThreads);
    }
    if (!options_.pin_to.empty() && options_.pin_to.size() != static_cast<size_t>(threads)) {
      return InvalidArgumentError("{} processors to pin {} threads to", options_.pin_to.size(),
                                  threads);
    }
    for (const int processor : options_.pin_to) {
      if (processor < 0 || processor >= CPU_SETSIZE) {
        return InvalidArgumentError("processor {} does not exist", processor);
      }
    }
    return internal::TeamStream::Start(threads, options_.pin_to);
  }

  std::unique_ptr<Event> NewEvent() override { return std::make_unique<internal::CpuEvent>(); }
  const MemoryAccount& memory() const override { return memory_; }

 private:
  CpuDeviceOptions options_;
  MemoryAccount memory_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

CpuStream& AsCpu(Stream& stream) {
  TANDEM_CHECK_EQ(stream.kind(), DeviceKind::kCpu);
  return static_cast<CpuStream&>(stream);
}

}  // namespace tandem
