// What: from the flags --type and --embedding-type to the types of a file's tensors.
// Not here: the flags (options.h), the mix (model/quantize_mix.h).
// Threads: pure functions.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/options.h"
#include "model/quantize_mix.h"

namespace tandem {

// INVALID_ARGUMENT lists the types.
Result<TypeMix> TypeMixOf(const TypeOptions& options);
// What was written, in one line or two.
std::string DescribeTypes(const TypeCounts& counts);

}  // namespace tandem
