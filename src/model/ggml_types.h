// What: the tensor types of GGUF files by number: name, block geometry, and how a block's bytes
//   divide into codes and scales, for all types, decodable or not.
// Not here: codecs (tensor/block_quant.h).
// Threads: pure functions.
// Based on: the ggml project's type list; models.md's tables (checked against the `gguf` package's
//   sizes).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace tandem {

struct GgmlTypeInfo {
  uint32_t id = 0;
  std::string_view name;  // "Q4_K"
  int32_t block_elements = 1;
  int32_t block_bytes = 0;
  int32_t scale_bytes =
      0;  // of block_bytes: scales, minimums, sums; the rest are codes. 0 for plain types
  std::optional<DType> dtype;  // what Tandem computes with; none: known, not supported

  bool quantised() const { return scale_bytes > 0; }
};

// Null for numbers that were never assigned or have been withdrawn.
const GgmlTypeInfo* FindGgmlType(uint32_t id);
// All of them, ascending by number.
std::span<const GgmlTypeInfo> AllGgmlTypes();
// Names of those with a dtype, for messages: "F32, F16, Q4_0, ...".
std::string SupportedGgmlTypes();

}  // namespace tandem
