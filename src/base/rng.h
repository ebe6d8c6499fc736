// What: random numbers as a pure function of (seed, sample index, position): the same request draws
//   the same numbers whatever else runs, at any chunking and on any thread.
// Not here: secrets (keys, salts); those come from the operating system.
// Threads: pure functions.
// Based on: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11).
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

// One Philox4x32-10 block: four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint64_t key);

// Uniform in [0, 1) with 53 random bits. `sample_index` tells the n samples of one request apart,
// `position` is the token's place in its sequence, `draw` numbers the draws at one position.
double UniformDouble(uint64_t seed, uint32_t sample_index, uint64_t position, uint32_t draw);

// A small sequential generator for tests and synthetic data (not for sampling tokens).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Uniform in [0, bound); bound > 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound);
  double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace tandem
