#include "tensor/block_quant.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace tandem {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;

uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void StoreU16(std::byte* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }

float Low(std::byte b) { return static_cast<float>(static_cast<unsigned>(b) & 15u); }
float High(std::byte b) { return static_cast<float>(static_cast<unsigned>(b) >> 4); }

// Truncates to a code in 0..15; NaN becomes 0.
unsigned Nibble(float v) {
  if (!(v > 0)) return 0;
  return v >= 15 ? 15u : static_cast<unsigned>(v);
}

float Reciprocal(float d) { return d == 0 ? 0.0f : 1.0f / d; }

void DecodeQ4_0(const std::byte* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const std::byte* codes = block + 2;
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * (Low(codes[i]) - 8.0f);
    out[i + kHalf] = d * (High(codes[i]) - 8.0f);
  }
}

void DecodeQ4_1(const std::byte* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const float m = HalfToFloat(LoadU16(block + 2));
  const std::byte* codes = block + 4;
  for (int i = 0; i < kHalf; ++i) {
    out[i] = d * Low(codes[i]) + m;
    out[i + kHalf] = d * High(codes[i]) + m;
  }
}

void DecodeQ8_0(const std::byte* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const std::byte* codes = block + 2;
  for (int i = 0; i < kBlock; ++i) {
    out[i] = d * static_cast<float>(static_cast<int8_t>(codes[i]));
  }
}

void StoreNibbles(const unsigned* codes, std::byte* out) {
  for (int i = 0; i < kHalf; ++i) out[i] = static_cast<std::byte>(codes[i] | codes[i + kHalf] << 4);
}

void EncodeQ4_0(const float* x, std::byte* block) {
  float extreme = 0;  // the value of largest magnitude, with its sign
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  const float d = extreme / -8.0f;
  const float inverse = Reciprocal(d);
  unsigned codes[kBlock];
  for (int i = 0; i < kBlock; ++i) codes[i] = Nibble(x[i] * inverse + 8.5f);
  StoreU16(block, FloatToHalf(d));
  StoreNibbles(codes, block + 2);
}

void EncodeQ4_1(const float* x, std::byte* block) {
  float low = x[0];
  float high = x[0];
  for (int i = 1; i < kBlock; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float d = (high - low) / 15.0f;
  const float inverse = Reciprocal(d);
  unsigned codes[kBlock];
  for (int i = 0; i < kBlock; ++i) codes[i] = Nibble((x[i] - low) * inverse + 0.5f);
  StoreU16(block, FloatToHalf(d));
  StoreU16(block + 2, FloatToHalf(low));
  StoreNibbles(codes, block + 4);
}

void EncodeQ8_0(const float* x, std::byte* block) {
  float extreme = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > extreme) extreme = std::fabs(x[i]);
  }
  const float d = extreme / 127.0f;
  const float inverse = Reciprocal(d);
  StoreU16(block, FloatToHalf(d));
  for (int i = 0; i < kBlock; ++i) {
    const float code = std::round(x[i] * inverse);
    const bool fits = code >= -127 && code <= 127;  // false for NaN
    const int q = fits ? static_cast<int>(code) : (code > 0 ? 127 : (code < 0 ? -127 : 0));
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
  }
}

template <typename Function>
void ForEachBlock(DType dtype, int64_t n, Function function) {
  const int64_t blocks = n / kBlock;
  const int64_t bytes = InfoOf(dtype).block_bytes;
  for (int64_t b = 0; b < blocks; ++b) function(b * bytes, b * kBlock);
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* out) {
  TANDEM_CHECK_GE(n, 0);
  TANDEM_CHECK_EQ(n % InfoOf(dtype).block_elements, 0);
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = HalfToFloat(LoadU16(src + 2 * i));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = BFloat16ToFloat(LoadU16(src + 2 * i));
      return;
    case DType::kQ4_0:
      return ForEachBlock(dtype, n, [&](int64_t s, int64_t o) { DecodeQ4_0(src + s, out + o); });
    case DType::kQ4_1:
      return ForEachBlock(dtype, n, [&](int64_t s, int64_t o) { DecodeQ4_1(src + s, out + o); });
    case DType::kQ8_0:
      return ForEachBlock(dtype, n, [&](int64_t s, int64_t o) { DecodeQ8_0(src + s, out + o); });
  }
}

void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* out) {
  TANDEM_CHECK_GE(n, 0);
  TANDEM_CHECK_EQ(n % InfoOf(dtype).block_elements, 0);
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) StoreU16(out + 2 * i, FloatToHalf(src[i]));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) StoreU16(out + 2 * i, FloatToBFloat16(src[i]));
      return;
    case DType::kQ4_0:
      return ForEachBlock(dtype, n, [&](int64_t o, int64_t s) { EncodeQ4_0(src + s, out + o); });
    case DType::kQ4_1:
      return ForEachBlock(dtype, n, [&](int64_t o, int64_t s) { EncodeQ4_1(src + s, out + o); });
    case DType::kQ8_0:
      return ForEachBlock(dtype, n, [&](int64_t o, int64_t s) { EncodeQ8_0(src + s, out + o); });
  }
}

}  // namespace tandem
