// What: how much memory this process may use (the machine's and its control groups' limits), how
//   much is free, how much it uses; and MemoryRegion, anonymous pages with one owner.
// Not here: the budget's terms (exec), device memory (device/).
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "os/file.h"

namespace tandem {

struct MemoryInfo {
  int64_t limit_bytes = 0;  // min of physical memory and every control group from ours to the root
  std::string limited_by;   // "physical memory", or the file that holds the limit
  int64_t available_bytes = 0;  // may still be used without swapping, by the same limits
};

// From /proc/meminfo, /proc/self/cgroup and the groups' files below /sys/fs/cgroup (versions 2 and
// 1; a container that sees only its own group finds that at the root). A group that cannot be read
// sets no limit. Fails when meminfo makes no sense.
Result<MemoryInfo> ReadMemoryInfo();
// The same with other roots in place of /proc and /sys/fs/cgroup (tests).
Result<MemoryInfo> ReadMemoryInfo(FileSystem& fs, const std::string& proc,
                                  const std::string& cgroup);

// Bytes of this process that are in memory, shared pages included; 0 when the system does not say.
int64_t ResidentBytes();
int64_t ResidentBytes(FileSystem& fs, const std::string& proc);

// Zeroed, page-aligned memory that goes back to the system when destroyed.
class MemoryRegion {
 public:
  // RESOURCE_EXHAUSTED when the system refuses.
  static Result<MemoryRegion> Allocate(int64_t bytes);
  MemoryRegion() = default;
  ~MemoryRegion();
  MemoryRegion(MemoryRegion&& other) noexcept { *this = std::move(other); }
  MemoryRegion& operator=(MemoryRegion&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem
