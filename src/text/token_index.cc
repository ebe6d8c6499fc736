#include "text/token_index.h"

#include <algorithm>
#include <span>

#include "base/hash.h"

namespace tandem {
namespace {

uint64_t HashText(std::string_view text) {
  return HashBytes(std::as_bytes(std::span(text.data(), text.size()))).low;
}

}  // namespace

TokenIndex::TokenIndex(const std::vector<std::string>& tokens)
    : tokens_(tokens), entries_(tokens.size()) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    entries_[i] = {HashText(tokens[i]), static_cast<int32_t>(i)};
  }
  std::sort(entries_.begin(), entries_.end(), [this](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : tokens_[a.token] < tokens_[b.token];
  });
}

std::optional<TokenId> TokenIndex::Find(std::string_view text) const {
  const uint64_t hash = HashText(text);
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), text,
                                   [this, hash](const Entry& e, std::string_view t) {
                                     return e.hash != hash ? e.hash < hash : tokens_[e.token] < t;
                                   });
  if (it == entries_.end() || it->hash != hash || tokens_[it->token] != text) return std::nullopt;
  return TokenId(it->token);
}

std::optional<std::pair<TokenId, TokenId>> TokenIndex::FindDuplicate() const {
  for (size_t i = 1; i < entries_.size(); ++i) {
    const int32_t a = entries_[i - 1].token;
    const int32_t b = entries_[i].token;
    if (tokens_[a] == tokens_[b])
      return std::pair(TokenId(std::min(a, b)), TokenId(std::max(a, b)));
  }
  return std::nullopt;
}

}  // namespace tandem
