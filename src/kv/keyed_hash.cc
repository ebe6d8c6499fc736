#include "kv/keyed_hash.h"

#include <bit>
#include <cstring>

namespace tandem {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Take(uint64_t word) {
    v3 ^= word;
    Round();
    v0 ^= word;
  }
};

}  // namespace

uint64_t KeyedHash(HashKey key, uint64_t seed, std::span<const std::byte> bytes) {
  State s{key.k0 ^ 0x736f6d6570736575, key.k1 ^ 0x646f72616e646f6d, key.k0 ^ 0x6c7967656e657261,
          key.k1 ^ 0x7465646279746573};
  s.Take(seed);
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    s.Take(word);
  }
  uint64_t last = (bytes.size() + 8) << 56;
  if (at < bytes.size()) std::memcpy(&last, bytes.data() + at, bytes.size() - at);
  s.Take(last);
  s.v2 ^= 0xff;
  for (int i = 0; i < 3; ++i) s.Round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace tandem
