// What: vectors of sixteen lanes on AVX-512 (F, BW, VL, DQ, VNNI): the primitives of kernels-inl.h.
// Not here: algorithms. The same names exist in simd_avx2-inl.h and simd_scalar-inl.h.
// Threads: pure functions.
// Invariants: each primitive gives the same bits on every instruction set (simd_scalar-inl.h says
//   which).
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// gcc 12 warns of its own intrinsics' undefined operands.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa_region-inl.h"
#include "tensor/half.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

using Vf = __m512;
using Vi = __m512i;

// Rows of activations that share one pass over the weights: 8 code vectors, 8 sums and their
// temporaries fill the 32 registers.
inline constexpr int kTileRows = 8;
// Of many rows: 6 rows of 2 groups are 12 float and 12 integer sums.
inline constexpr int kWideRows = 6;
inline constexpr int kWideGroups = 2;
// Groups of weights in flight for one row: enough independent sums to cover the latency of fma.
inline constexpr int kRowGroups = 4;
// Vectors of scores in flight per query row.
inline constexpr int kScoreVectors = 4;
// Vectors of an output head in flight per query row.
inline constexpr int kValueVectors = 4;

TANDEM_INLINE Vf Zero() { return _mm512_setzero_ps(); }
TANDEM_INLINE Vf Set1(float x) { return _mm512_set1_ps(x); }
TANDEM_INLINE Vf Load(const float* p) { return _mm512_loadu_ps(p); }
TANDEM_INLINE void Store(float* p, Vf v) { _mm512_storeu_ps(p, v); }
TANDEM_INLINE Vf Load(const uint16_t* half) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half)));
}
TANDEM_INLINE void Store(uint16_t* half, Vf v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(half),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
TANDEM_INLINE Vf LoadBf16(const uint16_t* bf16) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bf16)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
TANDEM_INLINE Vf Load(const BFloat16* p) { return LoadBf16(reinterpret_cast<const uint16_t*>(p)); }
// Rounds to nearest even (the instruction for it would flush subnormal numbers).
TANDEM_INLINE void Store(BFloat16* p, Vf v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i all = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                                           _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(all, 16)));
}
TANDEM_INLINE Vf Load(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// One f16 in all lanes.
TANDEM_INLINE Vf Set1Half(uint16_t half) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(half)));
}
TANDEM_INLINE Vf Add(Vf a, Vf b) { return _mm512_add_ps(a, b); }
TANDEM_INLINE Vf Sub(Vf a, Vf b) { return _mm512_sub_ps(a, b); }
TANDEM_INLINE Vf Mul(Vf a, Vf b) { return _mm512_mul_ps(a, b); }
TANDEM_INLINE Vf Div(Vf a, Vf b) { return _mm512_div_ps(a, b); }
TANDEM_INLINE Vf Fma(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }
TANDEM_INLINE Vf Max(Vf a, Vf b) { return _mm512_max_ps(a, b); }
TANDEM_INLINE Vf Min(Vf a, Vf b) { return _mm512_min_ps(a, b); }
TANDEM_INLINE Vf Abs(Vf a) { return _mm512_abs_ps(a); }
TANDEM_INLINE Vf Round(Vf a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TANDEM_INLINE Vf IfLess(Vf a, Vf b, Vf yes, Vf no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
TANDEM_INLINE Vi ToInt(Vf a) { return _mm512_cvtps_epi32(a); }
TANDEM_INLINE Vf ToFloat(Vi a) { return _mm512_cvtepi32_ps(a); }
TANDEM_INLINE Vf AsFloat(Vi a) { return _mm512_castsi512_ps(a); }
TANDEM_INLINE Vi AsInt(Vf a) { return _mm512_castps_si512(a); }
TANDEM_INLINE Vi Set1(int32_t x) { return _mm512_set1_epi32(x); }
TANDEM_INLINE Vi Add(Vi a, Vi b) { return _mm512_add_epi32(a, b); }
TANDEM_INLINE Vi And(Vi a, Vi b) { return _mm512_and_si512(a, b); }
TANDEM_INLINE Vi AndOr(Vi a, Vi b, Vi c) {  // (a & b) | c
  return _mm512_ternarylogic_epi32(a, b, c, 0xEA);
}
TANDEM_INLINE Vi Xor(Vi a, Vi b) { return _mm512_xor_si512(a, b); }
template <int kBits>
TANDEM_INLINE Vi ShiftLeft(Vi a) {
  return _mm512_slli_epi32(a, kBits);
}
TANDEM_INLINE Vi ShiftLeft(Vi a, int32_t bits) {  // 0 .. 31
  return _mm512_sllv_epi32(a, _mm512_set1_epi32(bits));
}
template <int kBits>
TANDEM_INLINE Vi ShiftRight(Vi a) {  // zeros come in
  return _mm512_srli_epi32(a, kBits);
}
TANDEM_INLINE Vi LoadInts(const void* p) { return _mm512_loadu_si512(p); }
TANDEM_INLINE __m128i Load16Bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
TANDEM_INLINE Vi LoadUnsigned(const uint8_t* p) { return _mm512_cvtepu8_epi32(Load16Bytes(p)); }
TANDEM_INLINE Vi LoadSigned(const int8_t* p) { return _mm512_cvtepi8_epi32(Load16Bytes(p)); }
// Each byte of `indices`, all 0 .. 15, becomes the table's.
TANDEM_INLINE Vi Lookup(const uint8_t* table, Vi indices) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(Load16Bytes(table)), indices);
}

TANDEM_INLINE float ReduceAdd(Vf v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
TANDEM_INLINE float ReduceMax(Vf v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
TANDEM_INLINE int32_t ReduceAdd(Vi v) {
  const __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti32x8_epi32(v, 1));
  __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}
// The low byte of each lane.
TANDEM_INLINE void StoreBytes(int8_t* p, Vi v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}

// Unsigned codes of one block of a group: v[j] holds, per lane, columns 4j .. 4j + 3.
struct BlockCodes {
  __m512i v[8];
};
TANDEM_INLINE BlockCodes LoadBytes(const std::byte* p) {
  BlockCodes c;
  TANDEM_UNROLL
  for (int j = 0; j < 8; ++j) c.v[j] = _mm512_loadu_si512(p + 64 * j);
  return c;
}
// Columns 4j .. 4j + 3 of each lane.
TANDEM_INLINE Vi WordOf(const BlockCodes& c, int j) { return c.v[j]; }
TANDEM_INLINE void SetWord(BlockCodes* c, int j, Vi word) { c->v[j] = word; }
// init + sum of codes * x over the kWords * 4 columns from 4 * kFirst on, exact.
template <int kMaxCode, int kFirst = 0, int kWords = 8>
TANDEM_INLINE Vi DotBlock(const BlockCodes& c, const int8_t* x, int32_t init) {
  Vi sum = _mm512_set1_epi32(init);
  TANDEM_UNROLL
  for (int j = kFirst; j < kFirst + kWords; ++j) {
    int32_t four;
    std::memcpy(&four, x + 4 * j, 4);
    sum = _mm512_dpbusd_epi32(sum, c.v[j], _mm512_set1_epi32(four));
  }
  return sum;
}

TANDEM_INLINE void StoreCodes(std::byte* p, const BlockCodes& c) {
  TANDEM_UNROLL
  for (int j = 0; j < 8; ++j) _mm512_storeu_si512(p + 64 * j, c.v[j]);
}
// DotBlock of the codes at codes[g], as StoreCodes wrote them, with each of kRows rows.
template <int kMaxCode, int kFirst, int kWords, int kGroups, int kRows>
TANDEM_INLINE void DotRows(const std::byte* const (&codes)[kGroups], const int8_t (*x)[32],
                           const int32_t* init, Vi (&out)[kGroups][kRows]) {
  TANDEM_UNROLL
  for (int m = 0; m < kRows; ++m) {
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) out[g][m] = _mm512_set1_epi32(init[m]);
  }
  TANDEM_UNROLL
  for (int j = kFirst; j < kFirst + kWords; ++j) {
    __m512i code[kGroups];
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) code[g] = _mm512_loadu_si512(codes[g] + 64 * j);
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) {
      int32_t four;
      std::memcpy(&four, x[m] + 4 * j, 4);
      const __m512i activation = _mm512_set1_epi32(four);
      TANDEM_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        out[g][m] = _mm512_dpbusd_epi32(out[g][m], code[g], activation);
      }
    }
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
