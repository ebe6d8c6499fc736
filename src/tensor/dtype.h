// What: element types of tensors: plain floats and block-quantised formats, with their block
//   geometry.
// Not here: the codecs (block_quant.h), file-format type numbers (model/gguf), packed kernel
//   layouts.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};

struct DTypeInfo {
  std::string_view name;   // "Q4_1"
  int32_t block_elements;  // values per block; 1 for plain types
  int32_t block_bytes;     // bytes per block
};

const DTypeInfo& InfoOf(DType dtype);
inline std::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }
// By its name, upper or lower case; none when unknown.
std::optional<DType> DTypeFromName(std::string_view name);

// Bytes of `elements` consecutive values; `elements` must be a multiple of the block.
int64_t BytesOf(DType dtype, int64_t elements);

}  // namespace tandem
