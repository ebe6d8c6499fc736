// What: ChatPrompt: a conversation to the tokens the model continues. The template's control tokens
//   become tokens; the same words inside a message stay words, so that no user can end his turn and
//   speak as another.
// Not here: the template language and the tokenizer (text/).
// Threads: immutable; Encode from any thread.
// Cost: rendering and tokenising, linear in the conversation.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tandem {

class ChatTemplate;
class Tokenizer;

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatPrompt {
 public:
  // Requires both not null.
  ChatPrompt(std::shared_ptr<const Tokenizer> tokenizer,
             std::shared_ptr<const ChatTemplate> chat_template);

  // Errors: those of ChatTemplate::Render (the template may refuse a role or an order).
  Result<std::vector<TokenId>> Encode(std::span<const ChatMessage> messages) const;

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const ChatTemplate> template_;
};

}  // namespace tandem
