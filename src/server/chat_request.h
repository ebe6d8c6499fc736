// What: the body of POST /v1/chat/completions, from bytes to a checked value or the error to answer
//   with; and the table that says of every known field whether it is honoured, ignored or refused.
// Not here: which model is served and what it can do (chat_endpoint.h). Included by the server's
//   .cc files only.
// Threads: pure functions.
// Invariants: docs/formats/http-api.md shows the same table, and a test compares them.
// Cost: linear in the body; nesting is limited to kJsonDepthMax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/chat_tools.h"
#include "server/generation_fields.h"
#include "server/json_body.h"

namespace tandem {

// How a conversation becomes a prompt; /tokenize has these fields too.
struct RenderingFields {
  Json messages = Json::array();  // as ParseMessages makes them; at least one
  Json tools = Json::array();
  Json chat_template_kwargs = Json::object();
  bool add_generation_prompt = true;
  // The prompt ends within the last message, the assistant's; then without generation prompt.
  bool continue_final_message = false;
};

struct ChatRequest : GenerationFields, RenderingFields {
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  bool logprobs = false;
  int32_t top_logprobs = 0;  // above 0 only with logprobs
  std::string reasoning_effort;
  bool include_reasoning = true;
};

// Never throws, never aborts, whatever the bytes.
ApiResult<ChatRequest> ParseChatRequest(std::string_view body);

// The fields of the body but the shared ones (generation_fields.h).
std::vector<FieldInfo> ChatRequestFields();
std::vector<FieldInfo> RenderingFieldInfos();

}  // namespace tandem
