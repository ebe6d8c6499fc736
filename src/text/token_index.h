// What: TokenIndex: finds a token's id by its stored text.
// Not here: prefixes (special_tokens.h).
// Threads: immutable after construction.
// Invariants: the strings outlive the index and do not move.
// Cost: 16 bytes per token; binary search by hash, then by text, so that no choice of tokens makes
//   it slow as a hash table's collisions would.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace tandem {

class TokenIndex {
 public:
  explicit TokenIndex(const std::vector<std::string>& tokens);

  std::optional<TokenId> Find(std::string_view text) const;
  // Two tokens with the same text, if there are any.
  std::optional<std::pair<TokenId, TokenId>> FindDuplicate() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    int32_t token = 0;
  };

  const std::vector<std::string>& tokens_;
  // Ordered by (hash, text).
  std::vector<Entry> entries_;
};

}  // namespace tandem
