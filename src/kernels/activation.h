// What: Activation: rows of activations in the forms that a matrix product can take: f32, and 8-bit
//   codes with a scale per row and block of 32.
// Not here: owning memory (exec/ allocates it once).
// Threads: values.
// Invariants: the 8-bit form of a row depends on that row's f32 values alone: scale = max|x| / 127
//   of a block (0 for a block of zeros), code = x / scale rounded to nearest even.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int32_t kActivationBlock = 32;

struct QuantizedRows {
  int8_t* codes = nullptr;  // [rows, cols]
  float* scales = nullptr;  // [rows, cols / 32]
  int32_t* sums = nullptr;  // [rows, cols / 32]: sum of a block's codes
};

struct Activation {
  int32_t cols = 0;
  float* f32 = nullptr;  // [rows, cols], or null when no consumer needs it
  QuantizedRows q8;      // codes null when no consumer needs it
  bool has_q8() const { return q8.codes != nullptr; }
};

}  // namespace tandem
