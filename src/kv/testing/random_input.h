// What: Bytes as a source of small numbers, the state groups drawn from them, and what a run
//   reports.
// Not here: what is done with them (random_driver.h).
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/testing/cache_harness.h"

namespace tandem::testing {

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  // In [0, bound); 0 when nothing is left.
  int32_t Next(int32_t bound) {
    if (bytes_.empty()) return 0;
    const int32_t value = bytes_.front() % bound;
    bytes_ = bytes_.subspan(1);
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
};

inline std::vector<StateGroupBlocks> DrawGroups(Bytes* bytes) {
  const int32_t kind = bytes->Next(4);
  const int32_t p = 1 + bytes->Next(4);
  const int32_t blocks = 6 + bytes->Next(40);
  const int32_t window = 1 + bytes->Next(9);
  if (kind == 0) return {Group(p, blocks, window)};
  if (kind == 1) return {Group(p, blocks), Group(1 + bytes->Next(4), 14 + bytes->Next(40), window)};
  if (kind == 2) return {Group(p, blocks), Group(1 + bytes->Next(4), 6 + bytes->Next(40))};
  return {Group(p, blocks)};
}

struct DriverReport {
  int64_t operations = 0;
  int64_t admitted = 0, refused = 0, forks = 0, copies = 0, ended = 0, waits = 0, shorts = 0;
  PrefixCacheStats cache;
};

}  // namespace tandem::testing
