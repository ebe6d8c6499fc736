// What: a template's source to its syntax tree.
// Not here: running it.
// Threads: pure function.
// Cost: linear in the source.
// Based on: Jinja's template documentation, and the precedence of its grammar (a filter or test
//   binds tighter than any binary operator).
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace tandem::jinja {

// INVALID_ARGUMENT for a syntax error, UNIMPLEMENTED for a tag, filter, test, function or method
// that is not supported, OUT_OF_RANGE for one that nests too deep; each with the line. Requires
// valid UTF-8.
Result<Block> Parse(std::string_view source);

}  // namespace tandem::jinja
