#include "server/chat_prompt.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

// What RenderOptions has fields for, or the model has.
constexpr std::array<std::string_view, 5> kReserved = {"messages", "tools", "add_generation_prompt",
                                                       "bos_token", "eos_token"};
constexpr size_t kTextEndBytes = 64;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// `text` up to the end of `last`, the content of its last message. Templates may trim contents.
Result<MarkedText> CutBehind(const MarkedText& text, std::string_view last) {
  const std::string_view body = Trimmed(last);
  if (body.empty()) return InvalidArgumentError("the message to be continued is empty");
  const size_t at = text.text().rfind(body);
  if (at == std::string::npos) {
    return InvalidArgumentError("the chat template changes the message to be continued");
  }
  size_t end = at + body.size();
  const std::string_view tail =
      last.substr(static_cast<size_t>(body.data() - last.data()) + body.size());
  if (std::string_view(text.text()).substr(end).starts_with(tail)) end += tail.size();
  return text.Part(0, end);
}

}  // namespace

ChatPrompt::ChatPrompt(std::shared_ptr<const Tokenizer> tokenizer,
                       std::shared_ptr<const ChatTemplate> chat_template)
    : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {
  TANDEM_CHECK(tokenizer_ != nullptr);
}

std::optional<std::string_view> ChatPrompt::ReservedVariable(const Json& kwargs) {
  for (const std::string_view name : kReserved) {
    if (kwargs.contains(name)) return name;
  }
  return std::nullopt;
}

Result<EncodedPrompt> ChatPrompt::Encode(const RenderingFields& fields,
                                         std::string_view answer_begin, bool add_special) const {
  if (!template_) {
    return FailedPreconditionError(
        "the model has no chat template: use /v1/completions, or serve it with one");
  }
  RenderOptions options;
  options.add_generation_prompt = fields.add_generation_prompt;
  if (!fields.tools.empty()) options.tools = fields.tools;
  options.extra = fields.chat_template_kwargs;
  TANDEM_ASSIGN_OR_RETURN(MarkedText text, template_->RenderMarked(fields.messages, options));
  if (fields.continue_final_message) {
    const Json& last = fields.messages.back().at("content");
    TANDEM_ASSIGN_OR_RETURN(text, CutBehind(text, last.get_ref<const std::string&>()));
  }
  EncodedPrompt prompt;
  prompt.text_end = text.text().substr(text.size() - std::min(text.size(), kTextEndBytes));
  text.Append(answer_begin);
  prompt.tokens = tokenizer_->Encode(text, {.add_special = add_special, .parse_special = true});
  return prompt;
}

}  // namespace tandem
