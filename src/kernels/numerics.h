// What: the constants of elementary functions and the 8-bit quantisation that define a row's
//   numbers: ref/ and every instruction set use the same ones in the same order.
// Not here: the code (ref/math_ref.h, cpu/math-inl.h).
// Threads: constants.
#pragma once

#include <cstdint>

namespace tandem::numerics {

// exp(x) = 2^n * e^r, n = round(x * log2(e)), r = x - n * ln(2) in two parts; e^r by its series up
// to r^7, whose rest is below 6e-9 for |r| <= ln(2) / 2. Below kExpMin the result is 0, above
// kExpMax that of kExpMax.
inline constexpr float kExpMin = -87.0f;  // n stays a normal exponent
inline constexpr float kExpMax = 88.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kExpSeries[8] = {1.0f,      1.0f,       1.0f / 2,   1.0f / 6,
                                        1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};

// sin and cos of angle = position * frequency, kept as a sum of two floats: n = round(angle * 2 /
// pi), r = angle - n * pi / 2 in three parts, series up to r^9 and r^10 (rest below 2e-9 for |r| <=
// pi / 4).
inline constexpr float kTwoOverPi = 0x1.45f306p-1f;
inline constexpr float kHalfPi[3] = {0x1.921fb6p+0f, -0x1.777a5cp-25f, -0x1.ee59dap-50f};
inline constexpr float kSinSeries[4] = {-1.0f / 6, 1.0f / 120, -1.0f / 5040, 1.0f / 362880};
inline constexpr float kCosSeries[5] = {-1.0f / 2, 1.0f / 24, -1.0f / 720, 1.0f / 40320,
                                        -1.0f / 3628800};

// Codes are at most this, so that a block's scale maps its largest magnitude to it.
inline constexpr float kMaxCode = 127.0f;
// A block whose largest magnitude is below counts as zeros: so scale / 256 stays a normal number.
inline constexpr float kLeastMagnitude = 0x1p-80f;
// The scale of a run of stored state, an f16, is at most its largest number: larger values than 127
// times that saturate.
inline constexpr float kStateScaleMax = 65504.0f;
inline constexpr int32_t kFineBits = 8;
inline constexpr float kFineUnits = 1 << kFineBits;  // per unit of a code

// Blocks compete for refinement within runs of equal length, at most this many columns: short
// enough for one task, long enough for a mean.
inline constexpr int32_t kRunColumnsMax = 512;
// Length of the runs that `cols` columns are cut into: whole blocks of `block` columns.
inline int32_t RunColumns(int32_t cols, int32_t block) {
  const int32_t blocks = (cols + block - 1) / block;
  const int32_t runs = (blocks * block + kRunColumnsMax - 1) / kRunColumnsMax;
  return runs == 0 ? block : (blocks + runs - 1) / runs * block;
}

}  // namespace tandem::numerics
