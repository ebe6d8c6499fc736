// What: "tools" and "tool_choice" of a chat.
// Not here: whether the served model can call tools (chat_endpoint.h), tool calls in messages
//   (chat_message.h). Included by the server's .cc files only.
// Threads: values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/field_table.h"

namespace tandem {

// OpenAI's limit.
inline constexpr size_t kToolsMax = 128;

struct ToolChoice {
  enum class Kind { kDefault, kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kDefault;
  std::string name;  // of kNamed
};

// The tools as the template gets them: the request's own objects.
MaybeError ParseTools(const Json& value, std::string_view param, Json& out);
MaybeError ParseToolChoice(const Json& value, std::string_view param, ToolChoice& out);
// What tools and choice say together.
MaybeError CheckToolChoice(const Json& tools, const ToolChoice& choice);

extern const std::string_view kToolChoiceSchema;
std::vector<FieldInfo> ToolFields();
std::vector<FieldInfo> ToolFunctionFields();

}  // namespace tandem
