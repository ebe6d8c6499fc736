// What: conversions between f32 and the 16-bit float formats, exact or rounded to nearest even.
// Not here: vectorised conversions (kernels/).
// Threads: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

float HalfToFloat(uint16_t half);
// Round to nearest even; overflow becomes infinity, NaN stays NaN.
uint16_t FloatToHalf(float value);

inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t FloatToBFloat16(float value);

// A stored bfloat16: a type of its own, where uint16_t stands for f16.
struct BFloat16 {
  uint16_t bits = 0;
};

}  // namespace tandem
