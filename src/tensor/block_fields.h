// What: the fields of a block of a quantised type, apart from how the source packs their bits:
//   codes, the block's scale and minimum, the small integers of sub-blocks; and what they mean.
// Not here: whole rows, choosing codes (block_quant.h), packed kernel layouts (kernels/).
// Threads: pure functions.
// Invariants: a value is scale * (code - bias), or scale * table[code], plus the minimum where
//   there is one; scale and minimum belong to `columns_per_scale` values and are made in f32, each
//   operation rounded once:
//     kHalf                 scale = d (f16)
//     kHalfAndMinimum       scale = d, minimum = m (f16)
//     kProduct              scale = d * scales[i]
//     kProductAndMinimum    scale = d * scales[i], minimum = -(m * minima[i])
//     kExponent             scale = 2^(d - 128), d an 8-bit exponent
// Based on: the ggml project's block formats; models.md 1.3 and 1.4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tandem {

enum class ScaleForm : uint8_t {
  kHalf,
  kHalfAndMinimum,
  kProduct,
  kProductAndMinimum,
  kExponent,
};

struct QuantFormat {
  int32_t code_bits;          // 2 to 6, or 8
  int32_t bias;               // of codes; 0 where there is a table
  const int8_t* table;        // of 16 values, or null
  int32_t columns_per_scale;  // 32 or 16
  ScaleForm form;

  int32_t max_code() const { return (1 << code_bits) - 1; }
  bool has_minimum() const {
    return form == ScaleForm::kHalfAndMinimum || form == ScaleForm::kProductAndMinimum;
  }
  bool has_product() const {
    return form == ScaleForm::kProduct || form == ScaleForm::kProductAndMinimum;
  }
  // The integer (MXFP4: twice the number) that a code stands for.
  int32_t ValueOf(uint8_t code) const { return table != nullptr ? table[code] : code - bias; }
};

inline constexpr int32_t kMaxBlockElements = 256;
inline constexpr int32_t kMaxBlockScales = 16;

// Sixteen values that 4-bit codes stand for.
inline constexpr int8_t kNonlinearTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kFloat4Table[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// Requires a quantised type: one whose block has more than one value.
const QuantFormat& FormatOf(DType dtype);

struct BlockFields {
  uint8_t codes[kMaxBlockElements] = {};  // 0 .. max_code; a Q8_0 code is the signed byte + 128
  uint16_t d = 0;                         // f16 bits, or the exponent
  uint16_t m = 0;                         // f16 bits
  int8_t scales[kMaxBlockScales] = {};    // Q3_K, IQ4_XS: less 32, -32 .. 31
  uint8_t minima[kMaxBlockScales] = {};
};

struct ScaleAndMinimum {
  float scale = 0;
  float minimum = 0;  // added
};
// Of the columns_per_scale values from columns_per_scale * i on.
ScaleAndMinimum ScaleOf(const QuantFormat& format, const BlockFields& fields, int32_t i);

// One block of source bytes (any alignment) taken apart, and put together. Every byte pattern is a
// block.
void ReadBlock(DType dtype, const std::byte* block, BlockFields* fields);
void WriteBlock(DType dtype, const BlockFields& fields, std::byte* block);

}  // namespace tandem
