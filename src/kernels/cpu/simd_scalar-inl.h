// What: vectors of sixteen lanes in plain C++, for machines without a better instruction set; the
//   definition of what each primitive returns.
// Not here: algorithms. The same names exist in simd_avx2-inl.h and simd_avx512-inl.h.
// Threads: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/isa_region-inl.h"
#include "tensor/half.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

struct Vf {
  float x[16];
};
struct Vi {
  int32_t x[16];
};

inline constexpr int kTileRows = 4;
inline constexpr int kWideRows = 4;
inline constexpr int kWideGroups = 1;
inline constexpr int kRowGroups = 1;
inline constexpr int kScoreVectors = 1;
// Vectors of an output head in flight per query row.
inline constexpr int kValueVectors = 1;

#define TANDEM_LANES(Type, expression)                  \
  Type out;                                             \
  for (int i = 0; i < 16; ++i) out.x[i] = (expression); \
  return out

TANDEM_INLINE Vf Set1(float x) { TANDEM_LANES(Vf, x); }
TANDEM_INLINE Vf Zero() { return Set1(0.0f); }
TANDEM_INLINE Vf Load(const float* p) { TANDEM_LANES(Vf, p[i]); }
TANDEM_INLINE void Store(float* p, const Vf& v) { std::memcpy(p, v.x, sizeof(v.x)); }
TANDEM_INLINE Vf Load(const uint16_t* half) { TANDEM_LANES(Vf, HalfToFloat(half[i])); }
// Rounds to nearest even.
TANDEM_INLINE void Store(uint16_t* half, const Vf& v) {
  for (int i = 0; i < 16; ++i) half[i] = FloatToHalf(v.x[i]);
}
TANDEM_INLINE Vf LoadBf16(const uint16_t* bf16) { TANDEM_LANES(Vf, BFloat16ToFloat(bf16[i])); }
TANDEM_INLINE Vf Load(const BFloat16* p) { TANDEM_LANES(Vf, BFloat16ToFloat(p[i].bits)); }
// Rounds to nearest even, as FloatToBFloat16.
TANDEM_INLINE void Store(BFloat16* p, const Vf& v) {
  for (int i = 0; i < 16; ++i) p[i].bits = FloatToBFloat16(v.x[i]);
}
TANDEM_INLINE Vf Load(const int8_t* p) { TANDEM_LANES(Vf, static_cast<float>(p[i])); }
// One f16 in all lanes.
TANDEM_INLINE Vf Set1Half(uint16_t half) { return Set1(HalfToFloat(half)); }
TANDEM_INLINE Vf Add(const Vf& a, const Vf& b) { TANDEM_LANES(Vf, a.x[i] + b.x[i]); }
TANDEM_INLINE Vf Sub(const Vf& a, const Vf& b) { TANDEM_LANES(Vf, a.x[i] - b.x[i]); }
TANDEM_INLINE Vf Mul(const Vf& a, const Vf& b) { TANDEM_LANES(Vf, a.x[i] * b.x[i]); }
TANDEM_INLINE Vf Div(const Vf& a, const Vf& b) { TANDEM_LANES(Vf, a.x[i] / b.x[i]); }
// a * b + c, rounded once.
TANDEM_INLINE Vf Fma(const Vf& a, const Vf& b, const Vf& c) {
  TANDEM_LANES(Vf, std::fma(a.x[i], b.x[i], c.x[i]));
}
// The second where the comparison fails, also for NaN.
TANDEM_INLINE Vf Max(const Vf& a, const Vf& b) {
  TANDEM_LANES(Vf, a.x[i] > b.x[i] ? a.x[i] : b.x[i]);
}
TANDEM_INLINE Vf Min(const Vf& a, const Vf& b) {
  TANDEM_LANES(Vf, a.x[i] < b.x[i] ? a.x[i] : b.x[i]);
}
TANDEM_INLINE Vf Abs(const Vf& a) { TANDEM_LANES(Vf, std::fabs(a.x[i])); }
// To the nearest integer, halves to even.
TANDEM_INLINE Vf Round(const Vf& a) { TANDEM_LANES(Vf, std::nearbyint(a.x[i])); }
TANDEM_INLINE Vf IfLess(const Vf& a, const Vf& b, const Vf& yes, const Vf& no) {
  TANDEM_LANES(Vf, a.x[i] < b.x[i] ? yes.x[i] : no.x[i]);
}
// Rounds as Round; NaN and what does not fit become the smallest integer.
TANDEM_INLINE int32_t ToInt(float a) {
  if (!(a >= -0x1p31f && a < 0x1p31f)) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(std::nearbyint(a));
}
TANDEM_INLINE Vi ToInt(const Vf& a) { TANDEM_LANES(Vi, ToInt(a.x[i])); }
TANDEM_INLINE Vf ToFloat(const Vi& a) { TANDEM_LANES(Vf, static_cast<float>(a.x[i])); }
TANDEM_INLINE Vf AsFloat(const Vi& a) { TANDEM_LANES(Vf, std::bit_cast<float>(a.x[i])); }
TANDEM_INLINE Vi AsInt(const Vf& a) { TANDEM_LANES(Vi, std::bit_cast<int32_t>(a.x[i])); }
TANDEM_INLINE Vi Set1(int32_t x) { TANDEM_LANES(Vi, x); }
// Modulo 2^32.
TANDEM_INLINE Vi Add(const Vi& a, const Vi& b) {
  TANDEM_LANES(Vi,
               static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) + static_cast<uint32_t>(b.x[i])));
}
TANDEM_INLINE Vi And(const Vi& a, const Vi& b) { TANDEM_LANES(Vi, a.x[i] & b.x[i]); }
TANDEM_INLINE Vi AndOr(const Vi& a, const Vi& b, const Vi& c) {
  TANDEM_LANES(Vi, (a.x[i] & b.x[i]) | c.x[i]);
}
TANDEM_INLINE Vi Xor(const Vi& a, const Vi& b) { TANDEM_LANES(Vi, a.x[i] ^ b.x[i]); }
template <int kBits>
TANDEM_INLINE Vi ShiftLeft(const Vi& a) {
  TANDEM_LANES(Vi, static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) << kBits));
}
TANDEM_INLINE Vi ShiftLeft(const Vi& a, int32_t bits) {  // 0 .. 31
  TANDEM_LANES(Vi, static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) << bits));
}
template <int kBits>
TANDEM_INLINE Vi ShiftRight(const Vi& a) {  // zeros come in
  TANDEM_LANES(Vi, static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) >> kBits));
}
TANDEM_INLINE Vi LoadInts(const void* p) {
  Vi out;
  std::memcpy(out.x, p, sizeof(out.x));
  return out;
}
TANDEM_INLINE Vi LoadUnsigned(const uint8_t* p) { TANDEM_LANES(Vi, p[i]); }
TANDEM_INLINE Vi LoadSigned(const int8_t* p) { TANDEM_LANES(Vi, p[i]); }
#undef TANDEM_LANES
// Each byte of `indices`, all 0 .. 15, becomes the table's.
TANDEM_INLINE Vi Lookup(const uint8_t* table, Vi indices) {
  uint8_t bytes[64];
  std::memcpy(bytes, indices.x, sizeof(bytes));
  for (uint8_t& b : bytes) b = table[b & 15];
  std::memcpy(indices.x, bytes, sizeof(bytes));
  return indices;
}

// Lane i with lane i + 8, then 4, 2 and 1 apart.
TANDEM_INLINE float ReduceAdd(Vf v) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v.x[i] += v.x[i + width];
  }
  return v.x[0];
}
// No lane may be NaN.
TANDEM_INLINE float ReduceMax(const Vf& v) {
  float max = v.x[0];
  for (int i = 1; i < 16; ++i) max = v.x[i] > max ? v.x[i] : max;
  return max;
}
TANDEM_INLINE int32_t ReduceAdd(const Vi& v) {
  uint32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += static_cast<uint32_t>(v.x[i]);
  return static_cast<int32_t>(sum);
}
// The low byte of each lane; lanes must be in -128 .. 127.
TANDEM_INLINE void StoreBytes(int8_t* p, const Vi& v) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(v.x[i]);
}

// Unsigned codes of one block of a group: [column / 4][lane][column % 4].
struct BlockCodes {
  uint8_t v[8 * 16 * 4];
};
TANDEM_INLINE BlockCodes LoadBytes(const std::byte* p) {
  BlockCodes c;
  std::memcpy(c.v, p, sizeof(c.v));
  return c;
}
// Columns 4j .. 4j + 3 of each lane.
TANDEM_INLINE Vi WordOf(const BlockCodes& c, int j) { return LoadInts(c.v + j * 64); }
TANDEM_INLINE void SetWord(BlockCodes* c, int j, const Vi& word) {
  std::memcpy(c->v + j * 64, word.x, sizeof(word.x));
}
// init + sum of codes * x over the kWords * 4 columns from 4 * kFirst on, exact. kMaxCode: below
// 64, or 255 with init = -128 * sum(x).
template <int kMaxCode, int kFirst = 0, int kWords = 8>
TANDEM_INLINE Vi DotBlock(const BlockCodes& c, const int8_t* x, int32_t init) {
  Vi sum = Set1(init);
  for (int j = kFirst; j < kFirst + kWords; ++j) {
    for (int lane = 0; lane < 16; ++lane) {
      for (int i = 0; i < 4; ++i) sum.x[lane] += c.v[(j * 16 + lane) * 4 + i] * x[4 * j + i];
    }
  }
  return sum;
}

TANDEM_INLINE void StoreCodes(std::byte* p, const BlockCodes& c) {
  std::memcpy(p, c.v, sizeof(c.v));
}
// DotBlock of the codes at codes[g], as StoreCodes wrote them, with each of kRows rows.
template <int kMaxCode, int kFirst, int kWords, int kGroups, int kRows>
TANDEM_INLINE void DotRows(const std::byte* const (&codes)[kGroups], const int8_t (*x)[32],
                           const int32_t* init, Vi (&out)[kGroups][kRows]) {
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    const BlockCodes block = LoadBytes(codes[g]);
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) {
      out[g][m] = DotBlock<kMaxCode, kFirst, kWords>(block, x[m], init[m]);
    }
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
