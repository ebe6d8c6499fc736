#include "base/rng.h"

#include "base/check.h"

namespace tandem {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  // Multipliers and Weyl increments of the paper's Philox4x32.
  constexpr uint64_t kM0 = 0xD2511F53;
  constexpr uint64_t kM1 = 0xCD9E8D57;
  constexpr uint32_t kW0 = 0x9E3779B9;
  constexpr uint32_t kW1 = 0xBB67AE85;
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kM0 * counter[0];
    const uint64_t p1 = kM1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kW0;
    k1 += kW1;
  }
  return counter;
}

double UniformDouble(uint64_t seed, uint32_t sample_index, uint64_t position, uint32_t draw) {
  TANDEM_CHECK_LT(position >> 32, uint64_t{1} << 31);
  const auto w = Philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), sample_index, draw},
      seed);
  const uint64_t bits = (static_cast<uint64_t>(w[0]) << 32) | w[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

uint64_t SplitMix64::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint64_t SplitMix64::Below(uint64_t bound) {
  TANDEM_CHECK_GT(bound, 0u);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
}

}  // namespace tandem
