// What: the bodies of POST /tokenize and /detokenize, in vLLM's shapes.
// Not here: the tokens (tokenize_endpoint.h). Included by the server's .cc files only.
// Threads: pure functions.
// Invariants: docs/formats/http-api.md shows the same tables, and a test compares them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "server/api_error.h"
#include "server/chat_request.h"
#include "server/field_info.h"

namespace tandem {

// Answers hold some thirty bytes for each token, so the text is limited.
inline constexpr size_t kTokenizeBytesMax = size_t{1} << 20;

struct TokenizeRequest : RenderingFields {
  std::string model;                  // empty: the served one
  std::optional<std::string> prompt;  // none: `messages` are to be rendered
  // Default: true for a prompt; for messages false, their template writes what is needed.
  std::optional<bool> add_special_tokens;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;  // ids are not checked
};

ApiResult<TokenizeRequest> ParseTokenizeRequest(std::string_view body);
ApiResult<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body);

// Those of /tokenize but the shared ones (RenderingFieldInfos).
std::vector<FieldInfo> TokenizeRequestFields();
std::vector<FieldInfo> DetokenizeRequestFields();

}  // namespace tandem
