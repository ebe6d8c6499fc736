#include "kernels/probe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/probe_kernels.h"
#include "os/file.h"
#include "os/memory.h"

namespace tandem {
namespace {

// An odd number, so that the median is one of them. The memory of a shared machine drifts within
// minutes; more repetitions than this would not tell more about now.
constexpr int kRepetitions = 5;
// A repetition is long against what starting and ending it costs (a wake-up of about 50 us), short
// enough for five of each figure.
constexpr TimeNs kRepetitionNs = 8 * kNsPerMs;
// Bytes of one task of a read: four streams of 1 MiB keep the prefetchers running and are still 256
// tasks of the buffer.
constexpr int64_t kReadTaskBytes = int64_t{4} << 20;
// Enough tasks to share among threads where the bytes are few.
constexpr int64_t kReadTasksMin = 16;
constexpr int64_t kMinBufferBytes = int64_t{1} << 20;
constexpr int64_t kDefaultBufferMin = int64_t{256} << 20;
constexpr int64_t kDefaultBufferMax = int64_t{1} << 30;
constexpr size_t kMaxSizeText = 4096;                // what these files say their size is
constexpr int64_t kMaxCacheKib = int64_t{64} << 20;  // 64 GiB
// A buffer that would press others out of memory measures swapping.
constexpr int64_t kAvailableShare = 8;
// Loop iterations of one compute task: 50 to 500 us.
constexpr int64_t kComputeIterations = int64_t{1} << 15;

// Time that the team needs for one command, without the way to the team and back.
template <typename Args>
TimeNs TimeOnStream(CpuStream& stream, void (*kernel)(CpuTaskContext&, const Args&),
                    const Args& args) {
  const SteadyClock clock;
  TimeNs start = 0;
  TimeNs end = 0;
  stream.EnqueueHostCall([&] { start = clock.Now(); });
  stream.Launch<Args>(kernel, args);
  stream.EnqueueHostCall([&] { end = clock.Now(); });
  stream.Synchronize();
  return std::max<TimeNs>(end - start, 1);
}

struct FillArgs {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};
void FillTask(CpuTaskContext& context, const FillArgs& args) {
  const int64_t tasks = (args.bytes + kReadTaskBytes - 1) / kReadTaskBytes;
  for (int64_t task; (task = context.NextTask(tasks)) >= 0;) {
    const int64_t begin = task * kReadTaskBytes;
    std::memset(args.data + begin, 1,
                static_cast<size_t>(std::min(kReadTaskBytes, args.bytes - begin)));
  }
}

// Task t reads the (t mod tasks_per_pass)-th part, so passes follow each other without a wait.
struct ReadArgs {
  uint64_t (*run)(std::span<const std::byte>) = nullptr;
  const std::byte* data = nullptr;
  int64_t task_bytes = 0;
  int64_t tasks_per_pass = 0;
  int64_t tasks = 0;
};
void ReadTask(CpuTaskContext& context, const ReadArgs& args) {
  for (int64_t task; (task = context.NextTask(args.tasks)) >= 0;) {
    const std::byte* begin = args.data + (task % args.tasks_per_pass) * args.task_bytes;
    args.run({begin, static_cast<size_t>(args.task_bytes)});
  }
}

// Every task of a thread reads that thread's own bytes, `rounds` times.
struct CacheArgs {
  uint64_t (*run)(std::span<const std::byte>) = nullptr;
  const std::byte* data = nullptr;
  int64_t thread_bytes = 0;
  int64_t rounds = 0;
  int64_t tasks = 0;
};
void CacheTask(CpuTaskContext& context, const CacheArgs& args) {
  const std::byte* own = args.data + context.thread * args.thread_bytes;
  while (context.NextTask(args.tasks) >= 0) {
    for (int64_t i = 0; i < args.rounds; ++i)
      args.run({own, static_cast<size_t>(args.thread_bytes)});
  }
}

struct ComputeArgs {
  void (*run)(int64_t, uint32_t, uint32_t, std::byte*) = nullptr;
  uint32_t a = 0;
  uint32_t b = 0;
  int64_t tasks = 0;
};
void ComputeTask(CpuTaskContext& context, const ComputeArgs& args) {
  alignas(64) std::byte out[internal::kMaxAccumulators * internal::kVectorBytes];
  while (context.NextTask(args.tasks) >= 0) args.run(kComputeIterations, args.a, args.b, out);
}

// The median rate of a command, `work_per_task` units per ns. Two untimed runs of args.tasks tasks
// wake the team, load the caches, bring the clock to what this work allows, and tell how many
// tasks, a multiple of `granule`, fill a repetition.
template <typename Args>
double MedianRate(CpuStream& stream, void (*kernel)(CpuTaskContext&, const Args&), Args args,
                  int64_t granule, double work_per_task) {
  TimeOnStream(stream, kernel, args);
  const TimeNs trial = TimeOnStream(stream, kernel, args);
  const int64_t wanted = args.tasks * kRepetitionNs / trial;
  const int64_t most = CpuStream::kMaxTasks / granule * granule;
  args.tasks = std::clamp(wanted / granule * granule, granule, most);
  std::array<double, kRepetitions> rates{};
  for (double& rate : rates) {
    const TimeNs time = TimeOnStream(stream, kernel, args);
    rate = static_cast<double>(args.tasks) * work_per_task / static_cast<double>(time);
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRepetitions / 2];
}

int64_t RoundDown(int64_t value, int64_t granule) { return value / granule * granule; }
constexpr auto kGranule = static_cast<int64_t>(internal::kReadGranule);

// Bytes of the cache `index` (2: second level, 3: third) of processor 0, or 0. From files, because
// sysconf adds up the third-level caches of a whole package on some processors.
int64_t CacheBytes(int index) {
  const std::string path = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index);
  const Result<std::string> text = ReadSmallFile(RealFileSystem(), path, kMaxSizeText);
  if (!text.ok()) return 0;
  int64_t kib = 0;  // "32768K"
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), kib);
  const bool sane = error == std::errc() && end != text->data() + text->size() && *end == 'K' &&
                    kib > 0 && kib < kMaxCacheKib;
  return sane ? kib << 10 : 0;
}

int64_t DefaultBufferBytes() {
  const int64_t last_cache = CacheBytes(3);
  if (last_cache == 0) return kDefaultBufferMax;
  return std::clamp(last_cache, kDefaultBufferMin / 8, kDefaultBufferMax / 8) * 8;
}

double MeasureCache(CpuStream& stream, std::span<const std::byte> bytes, int64_t thread_bytes) {
  CacheArgs args;
  args.run = internal::ReadKernels().front().run;
  args.data = bytes.data();
  args.thread_bytes = thread_bytes;
  args.rounds = std::max<int64_t>(1, kReadTaskBytes / thread_bytes);
  args.tasks = int64_t{4} * stream.num_threads();
  return MedianRate(stream, CacheTask, args, 1, static_cast<double>(args.rounds * thread_bytes));
}

}  // namespace

const char* NameOf(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::kFp32: return "FP32";
    case ComputeKind::kFp16: return "FP16";
    case ComputeKind::kBf16: return "BF16";
    case ComputeKind::kInt8: return "INT8";
  }
  return "?";
}

const char* InstructionOf(ComputeKind kind) {
  const std::vector<internal::ComputeKernel> kernels = internal::ComputeKernels(kind);
  return kernels.empty() ? nullptr : kernels.front().instruction;
}

Result<Buffer> MakeProbeBuffer(Device& device, CpuStream& stream, int64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(const MemoryInfo info, ReadMemoryInfo());
  if (bytes == 0) bytes = DefaultBufferBytes();
  bytes = RoundDown(std::min(bytes, info.available_bytes / kAvailableShare), kMinBufferBytes);
  if (bytes <= 0) {
    return ResourceExhaustedError("{} bytes of memory are available, too few to measure its speed",
                                  info.available_bytes);
  }
  TANDEM_ASSIGN_OR_RETURN(Buffer buffer,
                          device.Allocate(static_cast<size_t>(bytes), MemoryTerm::kRuntime));
  stream.Launch<FillArgs>(FillTask, {buffer.data(), bytes});
  stream.Synchronize();
  return buffer;
}

double MeasureReadGbS(CpuStream& stream, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  TANDEM_CHECK_GE(size, kMinReadBytes);
  ReadArgs args;
  args.run = internal::ReadKernels().front().run;
  args.data = bytes.data();
  args.task_bytes = std::clamp(RoundDown(size / kReadTasksMin, kGranule), kGranule, kReadTaskBytes);
  args.tasks_per_pass = std::min(size / args.task_bytes, CpuStream::kMaxTasks);
  args.tasks = std::min(args.tasks_per_pass, kReadTasksMin);
  return MedianRate(stream, ReadTask, args, args.tasks_per_pass,
                    static_cast<double>(args.task_bytes));
}

int64_t CacheProbeBytes() {
  constexpr int64_t kUnknown = int64_t{256} << 10;  // the smallest of x86 servers of this century
  const int64_t level2 = CacheBytes(2);
  return std::clamp(RoundDown((level2 > 0 ? level2 : kUnknown) / 2, kGranule), kMinReadBytes,
                    kReadTaskBytes);
}

double MeasureCacheReadGbS(CpuStream& stream, std::span<const std::byte> bytes) {
  TANDEM_CHECK_GE(static_cast<int64_t>(bytes.size()), stream.num_threads() * CacheProbeBytes());
  return MeasureCache(stream, bytes, CacheProbeBytes());
}

std::optional<double> MeasureGopS(CpuStream& stream, ComputeKind kind) {
  const std::vector<internal::ComputeKernel> kernels = internal::ComputeKernels(kind);
  if (kernels.empty()) return std::nullopt;
  const internal::ComputeKernel& kernel = kernels.front();
  ComputeArgs args{kernel.run, kernel.one_a, kernel.one_b, int64_t{8} * stream.num_threads()};
  return MedianRate(stream, ComputeTask, args, 1,
                    static_cast<double>(kComputeIterations * kernel.ops_per_iteration));
}

std::optional<double> MachineLimits::gop_s(ComputeKind kind) const {
  switch (kind) {
    case ComputeKind::kFp32: return fp32_gop_s;
    case ComputeKind::kFp16: return fp16_gop_s;
    case ComputeKind::kBf16: return bf16_gop_s;
    case ComputeKind::kInt8: return int8_gop_s;
  }
  return std::nullopt;
}

MachineLimits MeasureLimits(CpuStream& stream, std::span<const std::byte> buffer) {
  const auto share = static_cast<int64_t>(buffer.size()) / stream.num_threads();
  MachineLimits limits;
  limits.threads = stream.num_threads();
  limits.memory_read_gb_s = MeasureReadGbS(stream, buffer);
  limits.cache_read_gb_s = MeasureCache(
      stream, buffer, std::clamp(RoundDown(share, kGranule), kGranule, CacheProbeBytes()));
  limits.fp32_gop_s = MeasureGopS(stream, ComputeKind::kFp32);
  limits.fp16_gop_s = MeasureGopS(stream, ComputeKind::kFp16);
  limits.bf16_gop_s = MeasureGopS(stream, ComputeKind::kBf16);
  limits.int8_gop_s = MeasureGopS(stream, ComputeKind::kInt8);
  return limits;
}

}  // namespace tandem
