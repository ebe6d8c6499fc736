// What: from a GGUF file's metadata to the ModelSpec, with every needed tensor's presence and shape
//   checked; and the identity of a model's content.
// Not here: the file format (gguf.h), the list of tensors (tensor_layout.h), tokenizer keys.
// Threads: pure functions of an immutable file; IdentifyGguf keeps its index in files.
#pragma once

#include <string>

#include "base/hash.h"
#include "base/status.h"
#include "core/model_spec.h"
#include "model/gguf.h"
#include "model/weights.h"
#include "os/file.h"

namespace tandem {

// All fields but `identity`. UNIMPLEMENTED names an architecture, rope scaling, tensor or tensor
// type that Tandem does not run; INVALID_ARGUMENT a key or a tensor (with expected and found shape)
// that makes no sense; NOT_FOUND a missing one. Reads no tensor data.
Result<ModelSpec> SpecFromGguf(const GgufFile& file);

// A hash of all the file's bytes. With a `cache_dir`, a file that lies there unchanged since it was
// last hashed is not read again; an empty one means none. DATA_LOSS or UNAVAILABLE when the file
// shrinks or changes meanwhile.
Result<Hash128> IdentifyGguf(FileSystem& fs, const GgufFile& file, const std::string& cache_dir,
                             const LoadProgress& progress = {});

// Both: the spec with its identity.
Result<ModelSpec> LoadModelSpec(FileSystem& fs, const GgufFile& file, const std::string& cache_dir,
                                const LoadProgress& progress = {});

}  // namespace tandem
