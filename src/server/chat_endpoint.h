// What: POST /v1/chat/completions: a checked body to the plan of its answer.
// Not here: the fields (chat_request.h), the answer's shape (chat_answer.h).
// Threads: from any thread.
#pragma once

#include <string_view>

#include "server/answer_plan.h"

namespace tandem {

ApiResult<AnswerPlan> PlanChat(ServerState& state, std::string_view body,
                               const RequestContext& context);

}  // namespace tandem
