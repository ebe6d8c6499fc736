// What: from a GGUF file's metadata to the ModelSpec, with every needed tensor's presence and shape
//   checked.
// Not here: the file format (gguf.h), the list of tensors (tensor_layout.h), tokenizer keys.
// Threads: pure functions of an immutable file.
#pragma once

#include "base/status.h"
#include "core/model_spec.h"
#include "model/gguf.h"

namespace tandem {

// All fields but `identity`. UNIMPLEMENTED names an architecture, rope scaling, tensor or tensor
// type that Tandem does not run; INVALID_ARGUMENT a key or a tensor (with expected and found shape)
// that makes no sense; NOT_FOUND a missing one. Reads no tensor data but the rope's divisors.
Result<ModelSpec> SpecFromGguf(const GgufFile& file);

}  // namespace tandem
