// What: AnswerPlan: what a request for text asks of the engine, and how its answer is to look; and
//   the checks and conversions that the endpoints which make one share.
// Not here: the fields (generation_fields.h), running the plan (answer.h).
// Threads: values; the functions from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/generation.h"
#include "server/generation_fields.h"
#include "server/request_context.h"
#include "server/server_state.h"

namespace tandem {

class AnswerBody;
struct AnswerIdentity;

struct AnswerPlan {
  AnswerPlan();
  AnswerPlan(AnswerPlan&&) noexcept;
  AnswerPlan& operator=(AnswerPlan&&) noexcept;
  ~AnswerPlan();

  std::vector<TextGeneration::Options> choices;  // one engine request each
  size_t samples = 1;  // of each prompt: choice i is of prompt i / samples
  std::unique_ptr<AnswerBody> body;
  int32_t prompt_tokens = 0;  // billed: each prompt once, however many samples it has
  bool count_output = true;   // off: nothing that is generated counts
  bool stream = false;
  bool usage_at_end = false;  // of a stream
};

// From the bytes of a body to a plan or the error to answer with.
using AnswerPlanner = ApiResult<AnswerPlan> (*)(ServerState& state, std::string_view body,
                                                const RequestContext& context);

// A new answer's; `model` is the name the request used.
AnswerIdentity NewIdentity(ServerState& state, std::string_view id_prefix, std::string_view model);

// 404 for a model that is not served.
std::optional<ApiError> CheckModel(const ServerState& state, std::string_view model);
// 400 for stop_token_ids and logit_bias that are no tokens.
std::optional<ApiError> CheckTokenFields(const ServerState& state, const GenerationFields& fields);
// 400 for an id that is no token; `param` names the list.
std::optional<ApiError> CheckTokens(const ServerState& state, const std::vector<TokenId>& tokens,
                                    std::string_view param);
// 400 context_length_exceeded unless prompt and answer fit; `param` names the prompt.
std::optional<ApiError> CheckContext(const ServerState& state, int64_t prompt_tokens,
                                     std::optional<int32_t> max_tokens, std::string_view param);
// The same for a text of so many bytes, found before the work of encoding it: no token stands for
// more than max_token_bytes.
std::optional<ApiError> CheckTextLength(const ServerState& state, size_t bytes,
                                        std::string_view param);

// The engine's request without its prompt, limit and log probabilities.
Request BuildRequest(ServerState& state, const GenerationFields& fields,
                     const RequestContext& context);
TextOptions BuildTextOptions(const ServerState& state, const GenerationFields& fields);
// Appends fields.n samples of the same prompt.
void AddSamples(const Request& request, const TextOptions& text, int32_t n, AnswerPlan& plan);

}  // namespace tandem
