// What: POST /v1/completions: a checked body to the plan of its answer.
// Not here: the fields (completion_request.h), the answer's shape (completion_answer.h).
// Threads: from any thread.
#pragma once

#include <string_view>

#include "server/answer_plan.h"

namespace tandem {

// OpenAI's, for a request that names none; less where the context has no place for them.
inline constexpr int32_t kCompletionTokensDefault = 16;

ApiResult<AnswerPlan> PlanCompletion(ServerState& state, std::string_view body,
                                     const RequestContext& context);

}  // namespace tandem
