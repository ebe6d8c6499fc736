// What: QuantizeGguf: from a GGUF file to one whose matrices are of another type.
// Not here: codecs (tensor/block_quant.h), the mix of types (quantize_mix.h).
// Threads: one.
// Cost: reads the input once and writes the output once; memory is a few megabytes and the header.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "model/model_source.h"
#include "model/quantize_mix.h"
#include "os/file.h"

namespace tandem {

struct QuantizeOptions {
  TypeMix mix;
  LoadProgress progress;            // in bytes of the input; may be empty
  std::function<bool()> cancelled;  // asked now and then; may be empty
};

struct QuantizeReport {
  int64_t bytes_in = 0;   // of the tensors
  int64_t bytes_out = 0;  // of the file
  TypeCounts counts;
  // Tensors that were quantised already and now are so again, which adds the errors of both.
  int64_t requantised = 0;
};

// Writes the model of the GGUF file `in` (of a split one, the first part) to `out`, with all
// metadata kept but "general.file_type", "general.quantization_version" and the keys of a split
// file; tensors that have their type already are copied as they are. A file at `out` is replaced
// once the new one is complete; on failure nothing is left behind. Errors as GgufFile::Open and
// SpecFromGguf; INVALID_ARGUMENT when `out` is `in` or a folder; DATA_LOSS names a tensor with a
// value that is not a finite number within the new type's range; UNAVAILABLE when the input changes
// meanwhile; CANCELLED; those of AtomicFile.
Result<QuantizeReport> QuantizeGguf(FileSystem& fs, const std::string& in, const std::string& out,
                                    const QuantizeOptions& options);

}  // namespace tandem
