// What: the scalar codecs of every element type: what the bytes of a row mean, and how a row is
//   rounded to a type. They are the specification that packing and kernels are tested against.
// Not here: fast paths and packed layouts (kernels/), geometry (dtype.h), types we cannot decode.
// Threads: pure functions.
// Invariants: a value is computed in f32 in the order written below, each operation rounded once
//   (no fma), so decoding has one result on every machine. With d, m the block's f16 scale and
//   minimum and q its codes:
//     Q4_0  y = d * (q - 8)    q in 0..15; byte i holds element i (low half) and i + 16 (high half)
//     Q4_1  y = d * q + m      codes as Q4_0
//     Q5_0  y = d * (q - 16)   q in 0..31;  Q5_1  y = d * q + m
//     Q8_0  y = d * q          q a signed byte
//   and, for blocks of 256 with small integers s (scale) and u (minimum) per 16 or 32 values,
//     Q2_K, Q4_K, Q5_K  y = (d * s) * q - m * u      q of 2, 4, 5 bits
//     Q3_K, Q6_K        y = (d * s) * (q - 4), (d * s) * (q - 32)
//     IQ4_XS            y = (d * s) * table[q];  IQ4_NL  y = d * table[q]
//     MXFP4             y = 2^(e - 128) * table[q], e the block's exponent
//   block_fields.h is the formal statement.
//   Zero, infinite and NaN scales follow IEEE arithmetic (infinity * 0 is NaN); no block is
//   refused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tandem {

// Decodes `n` values at `src` (any alignment) to `out`. `n` must be a multiple of the block.
void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* out);

// Rounds `n` values to the nearest codes of scales chosen per block. Q4_0 and Q5_0 map the value of
// largest magnitude to the lowest code, Q4_1 and Q5_1 the least value to 0 and the largest to the
// highest code, Q8_0 the largest magnitude to +-127, MXFP4 takes the exponent of the largest
// magnitude; halves round up (Q8_0: away from zero), and codes are chosen for the f32 scale, which
// is then stored as f16. The other types search the scale of least squared error, and choose codes
// for the scale as it is stored. A scale beyond f16 becomes infinite; what a block with an infinity
// or a NaN decodes to is unspecified. `n` must be a multiple of the block.
void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* out);

}  // namespace tandem
