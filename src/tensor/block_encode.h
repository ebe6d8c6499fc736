// What: choosing the fields of a block (block_fields.h) for 32 or 256 values.
// Not here: rows (block_quant.h: what it promises of each type).
// Threads: pure functions.
#pragma once

#include "tensor/block_fields.h"
#include "tensor/dtype.h"

namespace tandem {

// Requires a quantised type; `x` has the type's block_elements. Any values: infinities and NaN give
// some block.
BlockFields EncodeBlock(DType dtype, const float* x);

}  // namespace tandem
