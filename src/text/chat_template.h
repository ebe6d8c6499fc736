// What: ChatTemplate: turns a conversation into the text a model was trained to continue.
// Not here: tokenising that text (Tokenizer::Encode of a MarkedText, with parse_special, without
//   add_special).
// Threads: immutable after Create; Render from any thread.
// Invariants: what users and tools wrote is marked in the text: everything in `messages`, `tools`
//   and `extra` but the well-known names of roles, which templates join to control tokens.
// Cost: as jinja.h.
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/jinja.h"
#include "text/marked_text.h"

namespace tandem {

struct RenderOptions {
  // Ends the text where the assistant's answer begins.
  bool add_generation_prompt = true;
  // The array of tools as the API has them; null: none.
  jinja::Json tools = nullptr;
  // More variables for the template ("chat_template_kwargs"), an object or null. A name that the
  // template gets anyway (messages, tools, bos_token, ...) is refused.
  jinja::Json extra = nullptr;
  // The local time that a template prints as today's date; none: the present one.
  std::optional<std::tm> now = {};
  jinja::Limits limits;
};

class ChatTemplate {
 public:
  // `bos_token` and `eos_token` are texts the template may print. Errors as
  // jinja::Template::Create.
  static Result<ChatTemplate> Create(std::string_view source, std::string bos_token,
                                     std::string eos_token);

  // `messages` is an array of objects with "role" and "content". Arguments of tool calls
  // (tool_calls[].function.arguments) that are the text of a JSON object, as the API has them,
  // reach the template as that object. Which roles and orders are allowed is the template's
  // business; its raise_exception is an INVALID_ARGUMENT with its words.
  Result<MarkedText> RenderMarked(const jinja::Json& messages, const RenderOptions& options) const;
  // The same without marks.
  Result<std::string> Render(const jinja::Json& messages, const RenderOptions& options) const;

 private:
  ChatTemplate(jinja::Template compiled, std::string bos_token, std::string eos_token)
      : template_(std::move(compiled)),
        bos_token_(std::move(bos_token)),
        eos_token_(std::move(eos_token)) {}

  jinja::Template template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace tandem
