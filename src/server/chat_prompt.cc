#include "server/chat_prompt.h"

#include <utility>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

ChatPrompt::ChatPrompt(std::shared_ptr<const Tokenizer> tokenizer,
                       std::shared_ptr<const ChatTemplate> chat_template)
    : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {
  TANDEM_CHECK(tokenizer_ != nullptr && template_ != nullptr);
}

Result<std::vector<TokenId>> ChatPrompt::Encode(std::span<const ChatMessage> messages) const {
  jinja::Json list = jinja::Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  TANDEM_ASSIGN_OR_RETURN(const MarkedText text, template_->RenderMarked(list, RenderOptions{}));
  return tokenizer_->Encode(text, {.add_special = false, .parse_special = true});
}

}  // namespace tandem
