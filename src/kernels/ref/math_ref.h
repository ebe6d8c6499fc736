// What: the elementary functions and the 8-bit form of activations, one value at a time.
// Not here: vector forms (cpu/math-inl.h), constants (numerics.h).
// Threads: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/numerics.h"
#include "tensor/half.h"

namespace tandem::ref {

// Within 2e-7 of exp(x), relatively, in [kExpMin, kExpMax].
inline float Exp(float x) {
  namespace nm = numerics;
  if (x != x) return x;
  if (x < nm::kExpMin) return 0.0f;
  const float bounded = nm::kExpMax < x ? nm::kExpMax : x;
  const float n = std::nearbyint(bounded * nm::kLog2E);
  float r = std::fma(n, -nm::kLn2High, bounded);
  r = std::fma(n, -nm::kLn2Low, r);
  float sum = nm::kExpSeries[7];
  for (int i = 6; i >= 0; --i) sum = std::fma(sum, r, nm::kExpSeries[i]);
  return sum * std::bit_cast<float>((static_cast<uint32_t>(static_cast<int32_t>(n)) + 127u) << 23);
}

inline float Silu(float x) { return x / (1.0f + Exp(0.0f - x)); }

// Within 2e-7 of sin and cos of the exact product, for position < 2^24.
inline void SinCos(float position, float frequency, float* sin, float* cos) {
  namespace nm = numerics;
  const float angle = position * frequency;
  const float rest = std::fma(position, frequency, 0.0f - angle);
  const float n = std::nearbyint(angle * nm::kTwoOverPi);
  float r = angle;
  for (const float part : nm::kHalfPi) r = std::fma(n, -part, r);
  r = r + rest;
  const float square = r * r;
  float s = nm::kSinSeries[3];
  for (int i = 2; i >= 0; --i) s = std::fma(s, square, nm::kSinSeries[i]);
  s = std::fma(s * square, r, r);
  float c = nm::kCosSeries[4];
  for (int i = 3; i >= 0; --i) c = std::fma(c, square, nm::kCosSeries[i]);
  c = std::fma(c, square, 1.0f);
  const auto quadrant = static_cast<uint32_t>(static_cast<int32_t>(n));
  const bool odd = (quadrant & 1) != 0;
  *sin = (quadrant & 2) != 0 ? -(odd ? c : s) : (odd ? c : s);
  *cos = ((quadrant + 1) & 2) != 0 ? -(odd ? s : c) : (odd ? s : c);
}

// Sum of 16 lanes: lane i with lane i + 8, then 4, 2 and 1 apart.
inline float SumLanes(const float* lanes) {
  float v[16];
  for (int i = 0; i < 16; ++i) v[i] = lanes[i];
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  }
  return v[0];
}

// One block of 32 values. A NaN does not count for the scale and becomes the lowest code.
inline void QuantizeBlock(const float* x, int8_t* codes, float* scale, int32_t* sum) {
  float largest = 0.0f;
  for (int i = 0; i < kActivationBlock; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  *scale = largest < numerics::kLeastMagnitude ? 0.0f : largest / numerics::kMaxCode;
  const float divisor = *scale == 0.0f ? 1.0f : *scale;
  *sum = 0;
  for (int i = 0; i < kActivationBlock; ++i) {
    float code = x[i] / divisor;
    code = code > -numerics::kMaxCode ? code : -numerics::kMaxCode;
    code = code < numerics::kMaxCode ? code : numerics::kMaxCode;
    codes[i] = static_cast<int8_t>(std::nearbyint(code));
    *sum += codes[i];
  }
}

// A run of `n` values of stored state to codes and their scale, an f16.
inline uint16_t QuantizeRun(const float* x, int32_t n, int8_t* codes) {
  float largest = 0.0f;
  for (int32_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  const float wanted = largest / numerics::kMaxCode;
  const uint16_t half =
      FloatToHalf(wanted < numerics::kStateScaleMax ? wanted : numerics::kStateScaleMax);
  const float scale = HalfToFloat(half);
  const float divisor = scale == 0.0f ? 1.0f : scale;
  for (int32_t i = 0; i < n; ++i) {
    float code = x[i] / divisor;
    code = code > -numerics::kMaxCode ? code : -numerics::kMaxCode;
    code = code < numerics::kMaxCode ? code : numerics::kMaxCode;
    codes[i] = static_cast<int8_t>(std::nearbyint(code));
  }
  return half;
}

// The bits below the codes of a block with scale `scale`.
inline void RefineBlock(const float* x, float scale, int8_t* fine, int32_t* sum) {
  namespace nm = numerics;
  const auto clamp = [](float value, float limit) {
    value = value > -limit ? value : -limit;
    return value < limit ? value : limit;
  };
  *sum = 0;
  for (int i = 0; i < kActivationBlock; ++i) {
    const float code = std::nearbyint(clamp(x[i] / scale, nm::kMaxCode));
    const float all =
        std::nearbyint(clamp(x[i] / (scale / nm::kFineUnits), nm::kMaxCode * nm::kFineUnits));
    fine[i] = static_cast<int8_t>(clamp(all - code * nm::kFineUnits, nm::kMaxCode));
    *sum += fine[i];
  }
}

}  // namespace tandem::ref
