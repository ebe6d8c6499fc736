// What: content hashes (128-bit XXH3) for identities of files and results.
// Not here: checksums against tampering, and keyed hashes of cache entries.
// Threads: pure functions; a Hasher belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
  // 32 lower-case hex digits.
  std::string ToHex() const;
};

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text);
  void Update(uint64_t value);
  Hash128 Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Hash128 HashBytes(std::span<const std::byte> bytes);

}  // namespace tandem
