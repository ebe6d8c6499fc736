#include "server/token_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/unicode.h"

namespace tandem {
namespace {

// Stands for minus infinity, which JSON cannot say, as with OpenAI.
constexpr double kNoProbability = -9999.0;

double Finite(float logprob) { return std::isfinite(logprob) ? logprob : kNoProbability; }

std::string Escape(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(c));
  }
  return out;
}

Json ByteList(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return list;
}

// A hidden token has its literal name, and no bytes: it adds none to the text.
Json Entry(std::string_view bytes, float logprob, bool hidden) {
  return {{"token", ChatTokenName(bytes)},
          {"logprob", Finite(logprob)},
          {"bytes", ByteList(hidden ? std::string_view() : bytes)}};
}

Json TopMap(const Tokenizer& tokenizer, const TextToken& token) {
  Json map = Json::object();
  for (const TokenLogprob& entry : token.logprobs) {
    // Of two tokens with one name the likelier: it comes first, the chosen one before all.
    const std::string name = CompletionTokenName(TokenText(tokenizer, entry.token, token.at_start));
    if (!map.contains(name)) map[name] = Finite(entry.logprob);
  }
  return map;
}

}  // namespace

std::string TokenText(const Tokenizer& tokenizer, TokenId token, bool at_start) {
  std::string bytes(tokenizer.TokenBytes(token));
  if (!at_start) return bytes;
  if (tokenizer.first_space() == FirstSpace::kDropAll) std::erase(bytes, ' ');
  if (tokenizer.first_space() == FirstSpace::kDropOne && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

std::string ChatTokenName(std::string_view bytes) {
  return IsValidUtf8(bytes) ? std::string(bytes) : Escape(bytes);
}

std::string CompletionTokenName(std::string_view bytes) {
  return IsValidUtf8(bytes) ? std::string(bytes) : "bytes:" + Escape(bytes);
}

void AppendChatLogprobs(const Tokenizer& tokenizer, std::span<const TextToken> tokens, int32_t top,
                        Json& content) {
  for (const TextToken& token : tokens) {
    if (!token.in_text || token.logprobs.empty()) continue;
    const auto bytes_of = [&](const TokenLogprob& entry) {
      return TokenText(tokenizer, entry.token, token.at_start);
    };
    const TokenLogprob& chosen = token.logprobs.front();
    Json entry = Entry(bytes_of(chosen), chosen.logprob, token.hidden);
    Json alternatives = Json::array();
    const auto count = std::min(token.logprobs.size() - 1, static_cast<size_t>(top));
    for (const TokenLogprob& other : std::span(token.logprobs).subspan(1, count)) {
      const bool hidden = token.hidden && other.token == chosen.token;
      alternatives.push_back(Entry(bytes_of(other), other.logprob, hidden));
    }
    entry["top_logprobs"] = std::move(alternatives);
    content.push_back(std::move(entry));
  }
}

void CompletionLogprobs::Append(const Tokenizer& tokenizer, std::span<const TextToken> tokens,
                                int64_t text_offset) {
  for (const TextToken& token : tokens) {
    if (!token.in_text) continue;
    tokens_.push_back(CompletionTokenName(TokenText(tokenizer, token.token, token.at_start)));
    text_offset_.push_back(text_offset + token.text_begin);
    if (token.logprobs.empty()) {
      token_logprobs_.push_back(nullptr);
      top_logprobs_.push_back(nullptr);
      continue;
    }
    token_logprobs_.push_back(Finite(token.logprobs.front().logprob));
    top_logprobs_.push_back(TopMap(tokenizer, token));
  }
}

Json CompletionLogprobs::Take() {
  const auto take = [](Json& list) { return std::exchange(list, Json::array()); };
  return {{"tokens", take(tokens_)},
          {"token_logprobs", take(token_logprobs_)},
          {"top_logprobs", take(top_logprobs_)},
          {"text_offset", take(text_offset_)}};
}

}  // namespace tandem
