// What: SynthesizeGguf: a valid GGUF file of any shape and type with random weights, to measure
//   speed anywhere without a download.
// Not here: shapes' names and tokenizers (cli/synth_vocabulary.h), the mix of types
//   (quantize_mix.h).
// Threads: one.
// Invariants: the bytes are a function of the shape, the types, the seed and the tokenizer, on
//   every machine.
// Cost: writes the file once; memory is a few megabytes and the header.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/model_spec.h"
#include "model/gguf_writer.h"
#include "model/model_source.h"
#include "model/quantize_mix.h"
#include "os/file.h"

namespace tandem {

// Of "smollm2-135m", "qwen3-0.6b" or "llama-3.2-1b"; anything else is the path of a config.json as
// Hugging Face folders have it. Errors as SpecFromHfConfig; NOT_FOUND lists the names.
Result<ModelSpec> ShapeFromName(FileSystem& fs, const std::string& name);

struct SynthOptions {
  ModelSpec shape;
  TypeMix mix;
  uint64_t seed = 0;
  // Adds the keys of a tokenizer with at most shape.vocab_size tokens; may be empty.
  std::function<void(GgufHeader&)> add_tokenizer;
  LoadProgress progress;            // in bytes of the file; may be empty
  std::function<bool()> cancelled;  // asked now and then; may be empty
};

struct SynthReport {
  int64_t bytes = 0;  // of the file
  int64_t parameters = 0;
  TypeCounts counts;
};

// Weights are uniform around 0, with the variance that keeps activations near 1 through any number
// of layers; norms are near 1. A file at `out` is replaced once the new one is complete; on failure
// nothing is left behind. Errors as ModelSpec::Validate; UNIMPLEMENTED for an architecture that
// Tandem does not run; CANCELLED; those of AtomicFile.
Result<SynthReport> SynthesizeGguf(FileSystem& fs, const std::string& out,
                                   const SynthOptions& options);

}  // namespace tandem
