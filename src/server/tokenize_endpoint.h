// What: POST /tokenize and /detokenize.
// Not here: the fields (tokenize_request.h).
// Threads: from any thread; for workers, as they encode.
#pragma once

#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/server_state.h"

namespace tandem {

// The body of the answer.
ApiResult<std::string> Tokenize(ServerState& state, std::string_view body);
ApiResult<std::string> Detokenize(ServerState& state, std::string_view body);

}  // namespace tandem
