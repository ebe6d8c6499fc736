// What: the scalar codecs of every element type: what the bytes of a row mean, and how a row is
//   rounded to a type. They are the specification that packing and kernels are tested against.
// Not here: fast paths and packed layouts (kernels/), geometry (dtype.h), types we cannot decode.
// Threads: pure functions.
// Invariants: a value is computed in f32 in the order written below, each operation rounded once
//   (no fma), so decoding has one result on every machine. With d, m the block's f16 scale and
//   minimum and q its codes:
//     Q4_0  y = d * (q - 8)    q in 0..15; byte i holds element i (low half) and i + 16 (high half)
//     Q4_1  y = d * q + m      codes as Q4_0
//     Q8_0  y = d * q          q a signed byte
//   Zero, infinite and NaN scales follow IEEE arithmetic (infinity * 0 is NaN); no block is
//   refused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tandem {

// Decodes `n` values at `src` (any alignment) to `out`. `n` must be a multiple of the block.
void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* out);

// Rounds `n` values to the nearest codes of a scale chosen per block: Q4_0 maps the value of
// largest magnitude to -8, Q4_1 the minimum to 0 and the maximum to 15, Q8_0 the largest magnitude
// to +-127; halves round up (Q8_0: away from zero). The codes are chosen for the f32 scale, which
// is then stored as f16. A scale beyond f16 becomes infinite; what a block with an infinity or a
// NaN decodes to is unspecified. `n` must be a multiple of the block.
void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* out);

}  // namespace tandem
