// What: TokenIndex: finds a token's id by its stored text.
// Not here: prefixes (special_tokens.h).
// Threads: immutable after construction.
// Invariants: the strings outlive the index and do not move.
// Cost: 4 bytes per token; binary search, so that no choice of tokens makes it slow as a hash table's
//   collisions would.
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
  TokenIndex() = default;
  explicit TokenIndex(const std::vector<std::string>& tokens);

  std::optional<TokenId> Find(std::string_view text) const;
  // Two tokens with the same text, if there are any.
  std::optional<std::pair<TokenId, TokenId>> FindDuplicate() const;

 private:
  const std::vector<std::string>* tokens_ = nullptr;
  // Ids ordered by (size, bytes): comparing sizes first settles most steps.
  std::vector<int32_t> order_;
};

}  // namespace tandem
