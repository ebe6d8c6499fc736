// What: the list "messages" of a chat: roles, content, tool calls and their results, checked and in
//   the form that templates are given.
// Not here: rendering (chat_prompt.h). Included by the server's .cc files only.
// Threads: pure functions.
// Invariants: every message that comes out has "role" (developer has become system) and "content",
//   a string: text parts are joined by '\n', null beside tool calls is empty.
#pragma once

#include <string_view>
#include <vector>

#include "server/field_table.h"

namespace tandem {

// Appends to `out`, an array.
MaybeError ParseMessages(const Json& value, std::string_view param, Json& out);

std::vector<FieldInfo> ChatMessageFields();
std::vector<FieldInfo> ContentPartFields();
std::vector<FieldInfo> ToolCallFields();
std::vector<FieldInfo> ToolCallFunctionFields();

}  // namespace tandem
