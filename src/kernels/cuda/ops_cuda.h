// What: the ops of kernels/ops.h that have a CUDA body.
// Not here: the choice between devices (ops.cc).
// Threads: as the stream.
// Invariants: the values of ref/ops_ref.h, bit for bit.
#pragma once

#include "kernels/ops.h"

namespace tandem::cuda {

// f32 form only.
void RmsNorm(Stream& stream, const RmsNormArgs& args);
void Add(Stream& stream, const AddArgs& args);

}  // namespace tandem::cuda
