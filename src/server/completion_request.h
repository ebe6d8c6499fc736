// What: the body of POST /v1/completions, from bytes to a checked value or the error to answer
//   with; and the table of its fields.
// Not here: which model is served, whether token ids exist (completion_endpoint.h).
// Threads: pure functions.
// Invariants: docs/formats/http-api.md shows the same table, and a test compares them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "server/api_error.h"
#include "server/generation_fields.h"

namespace tandem {

struct CompletionRequest : GenerationFields {
  using Prompt = std::variant<std::string, std::vector<TokenId>>;
  std::vector<Prompt> prompts;  // at least one; times n at most kChoicesMax; ids are not checked
  bool prompt_is_list = false;  // of texts or of lists, so that an error can say which
  bool echo = false;
  std::optional<int32_t> logprobs;  // 0 to kMaxTopLogprobs
  bool add_special_tokens = true;   // to prompts that are text
  std::optional<int32_t> best_of;   // only as many as n
};

// Never throws, never aborts, whatever the bytes.
ApiResult<CompletionRequest> ParseCompletionRequest(std::string_view body);

// The fields of the body but the shared ones (generation_fields.h).
std::vector<FieldInfo> CompletionRequestFields();

}  // namespace tandem
