// What: ChatPrompt: a conversation to the tokens the model continues. The template's control tokens
//   become tokens; the same words inside a message stay words, so that no user can end his turn and
//   speak as another.
// Not here: the template language and the tokenizer (text/). Included by the server's .cc files
//   only.
// Threads: immutable; Encode from any thread.
// Cost: rendering and tokenising, linear in the conversation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "server/chat_request.h"

namespace tandem {

class ChatTemplate;
class Tokenizer;

struct EncodedPrompt {
  std::vector<TokenId> tokens;
  // The last bytes of the text, for AnswerParser::Options::prompt_end.
  std::string text_end;
};

class ChatPrompt {
 public:
  // `chat_template` may be null: then Encode fails.
  ChatPrompt(std::shared_ptr<const Tokenizer> tokenizer,
             std::shared_ptr<const ChatTemplate> chat_template);

  // The template's variable that a request may not set with chat_template_kwargs, if there is one
  // among them.
  static std::optional<std::string_view> ReservedVariable(const Json& kwargs);

  // `fields.tools` is what the template is to show. `answer_begin` is put behind the prompt, as
  // text of the template's own. Errors: FAILED_PRECONDITION without a template, those of
  // ChatTemplate::Render (the template may refuse a role or an order), INVALID_ARGUMENT when the
  // last message, which is to be continued, is empty or changed by the template.
  Result<EncodedPrompt> Encode(const RenderingFields& fields, std::string_view answer_begin,
                               bool add_special) const;

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const ChatTemplate> template_;
};

}  // namespace tandem
