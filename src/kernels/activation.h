// What: Activation: rows of activations in the forms that a matrix product can take: f32, and 8-bit
//   codes with a scale per row and block of 32, refined by 8 more bits in the blocks where a row's
//   rounding error would gather.
// Not here: owning memory (exec/ allocates it once).
// Threads: values.
// Invariants: the 8-bit form of a row depends on that row's f32 values alone: scale = max|x| / 127
//   of a block (0 for a block of zeros), code = x / scale rounded to nearest even. Where there are
//   fine codes, a block whose squared scale is above the mean of its run (numerics.h) is refined:
//   x = scale * (code + fine / 256).
// Based on: docs/decisions/003-refined-activations.md.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int32_t kActivationBlock = 32;

struct FineCodes {
  int8_t* codes = nullptr;     // [rows, cols], meaningful where the block is refined; null: none is
  int32_t* sums = nullptr;     // [rows, cols / 32]: sum of a refined block's fine codes
  uint8_t* refined = nullptr;  // [rows, cols / 32]: 1 or 0
};

struct QuantizedRows {
  int8_t* codes = nullptr;  // [rows, cols]
  float* scales = nullptr;  // [rows, cols / 32]
  int32_t* sums = nullptr;  // [rows, cols / 32]: sum of a block's codes
  FineCodes fine;
};

struct Activation {
  int32_t cols = 0;
  float* f32 = nullptr;  // [rows, cols], or null when no consumer needs it
  QuantizedRows q8;      // codes null when no consumer needs it
  bool has_q8() const { return q8.codes != nullptr; }
};

}  // namespace tandem
