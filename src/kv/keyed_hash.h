// What: KeyedHash: where a look-up begins. With a key that nobody outside knows, nobody can choose
//   tokens that meet in one bucket.
// Not here: identity: whoever looks up compares the bytes themselves. Content hashes (base/hash.h).
// Threads: pure function.
// Based on: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

struct HashKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
};

// The hash of `seed`, then the bytes.
uint64_t KeyedHash(HashKey key, uint64_t seed, std::span<const std::byte> bytes);

}  // namespace tandem
