// What: the inner loops of the machine's limits: reading memory in four streams, and multiply-adds
//   that depend on nothing but their own accumulators.
// Not here: threads and time (probe.cc), which limits are reported (probe.h).
// Threads: pure functions.
// Invariants: the instructions that are counted stand in inline assembly, so no compiler drops,
//   merges or spills them; what a loop computes is returned, so a test can count its work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/probe.h"

namespace tandem::internal {

// The OR of all 64-bit words, so that every byte must have been read. The bytes are read in four
// equal streams. Requires a multiple of kReadGranule bytes at a 64-byte aligned address.
inline constexpr size_t kReadGranule = 4 * 256;
struct ReadKernel {
  const char* name;  // "avx512"
  uint64_t (*run)(std::span<const std::byte> bytes);
};
// What this processor can run, the best one first; never empty.
std::vector<ReadKernel> ReadKernels();

// Of the widest register. Every kernel has at most kMaxAccumulators.
inline constexpr size_t kVectorBytes = 64;
inline constexpr size_t kMaxAccumulators = 12;

struct ComputeKernel {
  const char* instruction;     // "vfmadd231ps zmm"
  int64_t ops_per_iteration;   // two per multiply-add
  int accumulators;            // vectors
  int lane_bytes;              // of one accumulator: 2 (f16), 4 (f32, i32)
  bool integer;                // lanes are i32
  int multiply_adds_per_lane;  // of one iteration
  uint32_t one_a;              // every lane of a operand is the number one
  uint32_t one_b;
  // accumulator += a * b, `iterations` times, from zero; `out` receives kMaxAccumulators *
  // kVectorBytes bytes, each accumulator at the start of its kVectorBytes.
  void (*run)(int64_t iterations, uint32_t a, uint32_t b, std::byte* out);
};
// What this processor can run of a kind, the best one first; empty when absent.
std::vector<ComputeKernel> ComputeKernels(ComputeKind kind);

}  // namespace tandem::internal
