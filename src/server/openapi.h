// What: the OpenAPI 3.1 description of the API, made from the tables that parse its requests, so
//   that it cannot say anything else than they do.
// Not here: the tables; how the API is used (docs/formats/http-api.md).
// Threads: pure function.
#pragma once

#include <cstdint>
#include <string>

#include "server/served_model.h"

namespace tandem {

// JSON. The names of the served model are the values that "model" may have.
std::string OpenApiJson(const ServedModel& model, int32_t max_context_tokens, bool needs_key);

}  // namespace tandem
