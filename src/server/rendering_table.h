// What: the rows of the fields that say how a conversation becomes a prompt, shared by chats and
//   /tokenize.
// Not here: the values (chat_request.h). Included by the server's .cc files only.
// Threads: pure functions.
#pragma once

#include <span>

#include "server/chat_request.h"
#include "server/field_table.h"

namespace tandem {

std::span<const Field<RenderingFields>> RenderingTable();
// What no single field can say about continue_final_message and add_generation_prompt.
MaybeError CheckRendering(const Json& body, RenderingFields& fields);

}  // namespace tandem
