#include "text/vocab.h"

#include <string_view>

#include "text/token_index.h"

namespace tandem {
namespace {

Status CheckId(std::string_view name, std::optional<TokenId> id, size_t vocab_size) {
  if (!id || (id->value() >= 0 && static_cast<size_t>(id->value()) < vocab_size)) return OkStatus();
  return OutOfRangeError("vocabulary: {} token id {} is not in [0, {})", name, *id, vocab_size);
}

Status CheckTokens(const Vocabulary& v) {
  size_t special_bytes = 0;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& text = v.tokens[i];
    if (text.empty()) return InvalidArgumentError("vocabulary: token {} is empty", i);
    const TokenType type = v.type(i);
    const bool special = type == TokenType::kControl || type == TokenType::kUserDefined;
    const size_t limit = special ? kMaxSpecialTokenBytes : kMaxTokenBytes;
    if (text.size() > limit) {
      return OutOfRangeError("vocabulary: token {} has {} bytes; the limit is {}", i, text.size(),
                             limit);
    }
    if (special) special_bytes += text.size();
  }
  if (special_bytes > kMaxSpecialBytes) {
    return OutOfRangeError("vocabulary: special tokens have {} bytes; the limit is {}",
                           special_bytes, kMaxSpecialBytes);
  }
  if (const auto duplicate = TokenIndex(v.tokens).FindDuplicate()) {
    return InvalidArgumentError("vocabulary: tokens {} and {} have the same text", duplicate->first,
                                duplicate->second);
  }
  return OkStatus();
}

Status CheckIds(const Vocabulary& v) {
  const size_t size = v.tokens.size();
  if (Status s = CheckId("bos", v.bos, size); !s.ok()) return s;
  if (Status s = CheckId("eos", v.eos, size); !s.ok()) return s;
  if (Status s = CheckId("unknown", v.unknown, size); !s.ok()) return s;
  if (Status s = CheckId("padding", v.padding, size); !s.ok()) return s;
  for (const TokenId id : v.more_end_tokens) {
    if (Status s = CheckId("end", id, size); !s.ok()) return s;
  }
  for (const LiteralRule& rule : v.literal_rules) {
    if (Status s = CheckId("ruled", rule.token, size); !s.ok()) return s;
  }
  if (v.add_space_prefix && v.metaspace) {
    return InvalidArgumentError("vocabulary: add_space_prefix and metaspace exclude each other");
  }
  if (v.add_bos && !v.bos)
    return InvalidArgumentError("vocabulary: add_bos is set without a bos token");
  if (v.add_eos && !v.eos)
    return InvalidArgumentError("vocabulary: add_eos is set without an eos token");
  return OkStatus();
}

}  // namespace

Result<TokenType> TokenTypeFromInt(int64_t value) {
  if (value < static_cast<int64_t>(TokenType::kNormal) ||
      value > static_cast<int64_t>(TokenType::kByte)) {
    return OutOfRangeError("token type {} is not in [1, 6]", value);
  }
  return static_cast<TokenType>(value);
}

void ApplyGgufConventions(Vocabulary& vocabulary) {
  const std::string& pre = vocabulary.pre;
  if (vocabulary.model == "llama") {
    vocabulary.add_space_prefix = true;
    vocabulary.add_bos = true;
  } else if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    vocabulary.ignore_merges = true;
    vocabulary.add_bos = true;
  } else if (pre == "qwen2" || pre == "deepseek-r1-qwen") {
    vocabulary.normalize_nfc = true;
  }
}

Status ValidateVocabulary(const Vocabulary& v) {
  if (v.tokens.empty()) return InvalidArgumentError("vocabulary: no tokens");
  if (v.tokens.size() > kMaxVocabSize) {
    return OutOfRangeError("vocabulary: {} tokens; the limit is {}", v.tokens.size(),
                           kMaxVocabSize);
  }
  if (v.merges.size() > kMaxMerges) {
    return OutOfRangeError("vocabulary: {} merges; the limit is {}", v.merges.size(), kMaxMerges);
  }
  if (!v.types.empty() && v.types.size() != v.tokens.size()) {
    return InvalidArgumentError("vocabulary: {} token types for {} tokens", v.types.size(),
                                v.tokens.size());
  }
  if (!v.scores.empty() && v.scores.size() != v.tokens.size()) {
    return InvalidArgumentError("vocabulary: {} scores for {} tokens", v.scores.size(),
                                v.tokens.size());
  }
  if (Status s = CheckIds(v); !s.ok()) return s;
  return CheckTokens(v);
}

}  // namespace tandem
