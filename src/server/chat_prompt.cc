#include "server/chat_prompt.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

// U+E000 and U+E001, private use: they stand around the number of a masked word while the template
// runs. Where a message holds the first itself, it is masked like a control word.
constexpr std::string_view kOpen = "\xEE\x80\x80";
constexpr std::string_view kClose = "\xEE\x80\x81";

SpecialTokens ControlWords(const Tokenizer& tokenizer) {
  // Only where a word stands is used, never its token.
  std::vector<std::pair<std::string_view, TokenId>> words = {{kOpen, TokenId(0)}};
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const TokenId token(static_cast<int32_t>(i));
    const std::string_view bytes = tokenizer.TokenBytes(token);
    if (tokenizer.IsControl(token) && !bytes.empty() && bytes != kOpen) {
      words.emplace_back(bytes, token);
    }
  }
  return SpecialTokens(std::move(words));
}

// The number between the two marks at the start of `text`, if it is one of `count`; its size with
// the marks.
std::optional<std::pair<size_t, size_t>> ReadMark(std::string_view text, size_t count) {
  if (!text.starts_with(kOpen)) return std::nullopt;
  const size_t close = text.find(kClose, kOpen.size());
  if (close == std::string_view::npos) return std::nullopt;
  size_t index = 0;
  const char* end = text.data() + close;
  const auto [stop, error] = std::from_chars(text.data() + kOpen.size(), end, index);
  if (error != std::errc() || stop != end || index >= count) return std::nullopt;
  return std::pair(index, close + kClose.size());
}

}  // namespace

ChatPrompt::ChatPrompt(std::shared_ptr<const Tokenizer> tokenizer,
                       std::shared_ptr<const ChatTemplate> chat_template)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      control_(ControlWords(*tokenizer_)) {
  TANDEM_CHECK(template_ != nullptr);
}

Result<std::vector<TokenId>> ChatPrompt::Encode(std::span<const ChatMessage> messages) const {
  jinja::Json list = jinja::Json::array();
  std::vector<std::string> masked;
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", Mask(message.content, masked)}});
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text, template_->Render(list, RenderOptions{}));
  return EncodeRendered(text, masked);
}

std::string ChatPrompt::Mask(std::string_view content, std::vector<std::string>& masked) const {
  std::string out;
  size_t from = 0;
  while (const auto match = control_.FindNext(content, from)) {
    out += content.substr(from, match->begin - from);
    out += fmt::format("{}{}{}", kOpen, masked.size(), kClose);
    masked.emplace_back(content.substr(match->begin, match->end - match->begin));
    from = match->end;
  }
  out += content.substr(from);
  return out;
}

std::vector<TokenId> ChatPrompt::EncodeRendered(std::string_view text,
                                                std::span<const std::string> masked) const {
  std::vector<TokenId> tokens;
  const auto append = [&](std::string_view piece, bool parse_special) {
    const std::vector<TokenId> more =
        tokenizer_->Encode(piece, {.add_special = false, .parse_special = parse_special});
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  size_t from = 0;
  for (size_t at = text.find(kOpen); at != std::string_view::npos && !masked.empty();
       at = text.find(kOpen, at)) {
    const auto mark = ReadMark(text.substr(at), masked.size());
    if (!mark) {
      at += kOpen.size();
      continue;
    }
    append(text.substr(from, at - from), true);
    append(masked[mark->first], false);
    at += mark->second;
    from = at;
  }
  append(text.substr(from), true);
  return tokens;
}

}  // namespace tandem
