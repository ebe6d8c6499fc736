// What: the body of POST /v1/chat/completions, from bytes to a checked value or the error to answer
//   with; and the table that says of every known field whether it is honoured, ignored or refused.
// Not here: which model is served and what fits its context (chat_completion.h).
// Threads: pure functions.
// Invariants: a field is honoured exactly if the table holds its parser, so table and code cannot
//   disagree; docs/formats/http-api.md shows the same table, and a test compares them. null means
//   absent for every field.
// Cost: linear in the body; nesting is limited to kJsonDepthMax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/chat_prompt.h"

namespace tandem {

// Tool schemas nest about ten deep; more than this is an attack on recursive code.
inline constexpr int kJsonDepthMax = 64;
// OpenAI's limit.
inline constexpr size_t kStopStringsMax = 4;

// What requests that generate have in common.
struct GenerationFields {
  std::string model;
  std::optional<int32_t> max_tokens;  // of the answer; from max_completion_tokens or max_tokens
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;  // 0: no limit
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool stream = false;
  bool include_usage = false;
};

struct ChatRequest : GenerationFields {
  // At least one; the role "developer" has become "system", text parts are joined by '\n'.
  std::vector<ChatMessage> messages;
};

// Never throws, never aborts, whatever the bytes.
ApiResult<ChatRequest> ParseChatRequest(std::string_view body);

enum class FieldUse {
  kHonoured,
  kIgnored,  // accepted, without effect on the answer
  kRefused,  // 400 unsupported_parameter, unless it has its neutral value
};
std::string_view NameOf(FieldUse use);

struct FieldInfo {
  std::string_view name;
  FieldUse use;
  std::string_view neutral;  // JSON: the value that asks for nothing; empty: none
};
// Every known field of the request, of one message, and of stream_options.
std::vector<FieldInfo> ChatRequestFields();
std::vector<FieldInfo> ChatMessageFields();
std::vector<FieldInfo> StreamOptionsFields();

}  // namespace tandem
