#include "text/token_index.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tandem {
namespace {

bool ShorterOrLess(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

TokenIndex::TokenIndex(const std::vector<std::string>& tokens)
    : tokens_(&tokens), order_(tokens.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(),
            [&tokens](int32_t a, int32_t b) { return ShorterOrLess(tokens[a], tokens[b]); });
}

std::optional<TokenId> TokenIndex::Find(std::string_view text) const {
  if (tokens_ == nullptr) return std::nullopt;
  const auto it = std::lower_bound(
      order_.begin(), order_.end(), text,
      [this](int32_t id, std::string_view t) { return ShorterOrLess((*tokens_)[id], t); });
  if (it == order_.end() || (*tokens_)[*it] != text) return std::nullopt;
  return TokenId(*it);
}

std::optional<std::pair<TokenId, TokenId>> TokenIndex::FindDuplicate() const {
  for (size_t i = 1; i < order_.size(); ++i) {
    if ((*tokens_)[order_[i - 1]] == (*tokens_)[order_[i]]) {
      return std::pair(TokenId(std::min(order_[i - 1], order_[i])),
                       TokenId(std::max(order_[i - 1], order_[i])));
    }
  }
  return std::nullopt;
}

}  // namespace tandem
