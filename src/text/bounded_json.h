// What: ParseBoundedJson: a JSON object from a file that nobody vouches for.
// Not here: what the keys mean. Included by .cc files only.
// Threads: pure function.
// Cost: one pass; about 16 bytes per value and what its text takes.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace tandem {

// DATA_LOSS for what is not JSON or not UTF-8 and for a key that occurs twice in an object,
// OUT_OF_RANGE for a text longer than `max_bytes` or one that nests deeper than `max_depth`,
// INVALID_ARGUMENT when it is no object. Messages begin with `name`.
Result<nlohmann::json> ParseBoundedJson(std::string_view name, std::string_view text,
                                        size_t max_bytes, int max_depth);

}  // namespace tandem
