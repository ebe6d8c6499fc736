// What: the limits of this machine, measured: how fast a team of threads reads memory and cache,
//   and how many multiply-adds per second it does in each number format. What benches and the
//   planner divide by.
// Not here: kernels of the model, which kernels are chosen (ops.h), printing (cli/bench_limits.h).
// Threads: as the stream; the stream must be idle and nobody else should need its processors.
// Invariants: figures are those of the best instruction that the processor has, whatever
//   TANDEM_CPU_ISA says. Work is handed out as the engine's kernels do it, so a core that another
//   process takes lowers a figure by its share and no more.
// Cost: each figure is the median of a few repetitions and takes well under a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "device/cpu_device.h"

namespace tandem {

// Number formats of multiply-adds. Sums are f32, except FP16 (f16) and INT8 (i32).
enum class ComputeKind : uint8_t { kFp32, kFp16, kBf16, kInt8 };
inline constexpr ComputeKind kComputeKinds[] = {ComputeKind::kFp32, ComputeKind::kFp16,
                                                ComputeKind::kBf16, ComputeKind::kInt8};

// "FP32".
const char* NameOf(ComputeKind kind);
// The instruction whose rate is the limit, "vfmadd231ps zmm"; null when this processor has none.
const char* InstructionOf(ComputeKind kind);

// Memory to read, in large pages where the system has them, written once by the stream's threads:
// `bytes`, or 0 for eight times the last cache, from 256 MiB to 1 GiB (the first touch of memory in
// a virtual machine costs seconds per GiB); at most an eighth of the memory that is available.
// RESOURCE_EXHAUSTED when that is less than 1 MiB or the system refuses.
Result<Buffer> MakeProbeBuffer(Device& device, CpuStream& stream, int64_t bytes = 0);

// GB/s (10^9 bytes) of reading all of `bytes` again and again, shared over the team: the memory's
// rate when they are far larger than the last cache, else the rate of the cache that holds them.
// Requires a 64-byte aligned address and at least kMinReadBytes.
inline constexpr int64_t kMinReadBytes = int64_t{64} << 10;
double MeasureReadGbS(CpuStream& stream, std::span<const std::byte> bytes);

// What each thread reads in MeasureCacheReadGbS: half of its second-level cache.
int64_t CacheProbeBytes();
// GB/s of all threads together, each reading its own CacheProbeBytes() again and again. Requires
// `bytes` of at least num_threads() * CacheProbeBytes().
double MeasureCacheReadGbS(CpuStream& stream, std::span<const std::byte> bytes);

// 10^9 operations per second (two per multiply-add); none when InstructionOf(kind) is null.
std::optional<double> MeasureGopS(CpuStream& stream, ComputeKind kind);

struct MachineLimits {
  int threads = 0;
  double memory_read_gb_s = 0;
  double cache_read_gb_s = 0;
  std::optional<double> fp32_gop_s;
  std::optional<double> fp16_gop_s;
  std::optional<double> bf16_gop_s;
  std::optional<double> int8_gop_s;

  std::optional<double> gop_s(ComputeKind kind) const;
};
// All of the above over a buffer of MakeProbeBuffer. When it is too small for the cache probes of
// all threads, they read fewer bytes each.
MachineLimits MeasureLimits(CpuStream& stream, std::span<const std::byte> buffer);

}  // namespace tandem
