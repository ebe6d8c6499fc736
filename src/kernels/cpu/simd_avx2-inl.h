// What: vectors of sixteen lanes on AVX2 with FMA and F16C, as two registers.
// Not here: algorithms. The same names exist in simd_avx512-inl.h and simd_scalar-inl.h.
// Threads: pure functions.
// Invariants: each primitive gives the same bits on every instruction set (simd_scalar-inl.h says
//   which).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa_region-inl.h"
#include "tensor/half.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

struct Vf {
  __m256 lo, hi;
};
struct Vi {
  __m256i lo, hi;
};

// Sixteen registers: 8 hold the sums of four rows.
inline constexpr int kTileRows = 4;
inline constexpr int kWideRows = 4;
inline constexpr int kWideGroups = 1;
inline constexpr int kRowGroups = 2;
inline constexpr int kScoreVectors = 1;
// Vectors of an output head in flight per query row.
inline constexpr int kValueVectors = 1;

TANDEM_INLINE Vf Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TANDEM_INLINE Vf Set1(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
TANDEM_INLINE Vf Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
TANDEM_INLINE void Store(float* p, Vf v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
TANDEM_INLINE __m128i Load16Bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
TANDEM_INLINE Vf Load(const uint16_t* half) {
  return {_mm256_cvtph_ps(Load16Bytes(half)), _mm256_cvtph_ps(Load16Bytes(half + 8))};
}
TANDEM_INLINE void Store(uint16_t* half, Vf v) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(half), _mm256_cvtps_ph(v.lo, kRound));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(half + 8), _mm256_cvtps_ph(v.hi, kRound));
}
TANDEM_INLINE Vf LoadBf16(const uint16_t* bf16) {
  const __m256i lo = _mm256_cvtepu16_epi32(Load16Bytes(bf16));
  const __m256i hi = _mm256_cvtepu16_epi32(Load16Bytes(bf16 + 8));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
TANDEM_INLINE Vf Load(const BFloat16* p) { return LoadBf16(reinterpret_cast<const uint16_t*>(p)); }
// The bfloat16 of each value, in the low half of a lane.
TANDEM_INLINE __m256i RoundToBf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
TANDEM_INLINE void Store(BFloat16* p, Vf v) {
  const __m256i packed = _mm256_packus_epi32(RoundToBf16(v.lo), RoundToBf16(v.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}
TANDEM_INLINE Vf Load(const int8_t* p) {
  const __m128i bytes = Load16Bytes(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
// One f16 in all lanes.
TANDEM_INLINE Vf Set1Half(uint16_t half) {
  const __m256 v = _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(half)));
  return {v, v};
}
TANDEM_INLINE Vf Add(Vf a, Vf b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
TANDEM_INLINE Vf Sub(Vf a, Vf b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
TANDEM_INLINE Vf Mul(Vf a, Vf b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
TANDEM_INLINE Vf Div(Vf a, Vf b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
TANDEM_INLINE Vf Fma(Vf a, Vf b, Vf c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
TANDEM_INLINE Vf Max(Vf a, Vf b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
TANDEM_INLINE Vf Min(Vf a, Vf b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
TANDEM_INLINE Vf Abs(Vf a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
TANDEM_INLINE Vf Round(Vf a) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kRound), _mm256_round_ps(a.hi, kRound)};
}
TANDEM_INLINE Vf IfLess(Vf a, Vf b, Vf yes, Vf no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
TANDEM_INLINE Vi ToInt(Vf a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
TANDEM_INLINE Vf ToFloat(Vi a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
TANDEM_INLINE Vf AsFloat(Vi a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
TANDEM_INLINE Vi AsInt(Vf a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
TANDEM_INLINE Vi Set1(int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {v, v};
}
TANDEM_INLINE Vi Add(Vi a, Vi b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
TANDEM_INLINE Vi And(Vi a, Vi b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
TANDEM_INLINE Vi AndOr(Vi a, Vi b, Vi c) {  // (a & b) | c
  return {_mm256_or_si256(_mm256_and_si256(a.lo, b.lo), c.lo),
          _mm256_or_si256(_mm256_and_si256(a.hi, b.hi), c.hi)};
}
TANDEM_INLINE Vi Xor(Vi a, Vi b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int kBits>
TANDEM_INLINE Vi ShiftLeft(Vi a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
TANDEM_INLINE Vi ShiftLeft(Vi a, int32_t bits) {  // 0 .. 31
  const __m256i all = _mm256_set1_epi32(bits);
  return {_mm256_sllv_epi32(a.lo, all), _mm256_sllv_epi32(a.hi, all)};
}
template <int kBits>
TANDEM_INLINE Vi ShiftRight(Vi a) {  // zeros come in
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
TANDEM_INLINE __m256i Load32Bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
TANDEM_INLINE Vi LoadInts(const void* p) {
  return {Load32Bytes(p), Load32Bytes(static_cast<const std::byte*>(p) + 32)};
}
TANDEM_INLINE Vi LoadUnsigned(const uint8_t* p) {
  const __m128i bytes = Load16Bytes(p);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
TANDEM_INLINE Vi LoadSigned(const int8_t* p) {
  const __m128i bytes = Load16Bytes(p);
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
// Each byte of `indices`, all 0 .. 15, becomes the table's.
TANDEM_INLINE Vi Lookup(const uint8_t* table, Vi indices) {
  const __m256i values = _mm256_broadcastsi128_si256(Load16Bytes(table));
  return {_mm256_shuffle_epi8(values, indices.lo), _mm256_shuffle_epi8(values, indices.hi)};
}

TANDEM_INLINE float ReduceAdd(Vf v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
TANDEM_INLINE float ReduceMax(Vf v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
TANDEM_INLINE int32_t ReduceAdd(Vi v) {
  const __m256i a = _mm256_add_epi32(v.lo, v.hi);
  __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}
// The low byte of each lane; lanes must be in -128 .. 127.
TANDEM_INLINE void StoreBytes(int8_t* p, Vi v) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.lo, v.hi), 0xD8);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(words, words), 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
}

// Unsigned codes of one block of a group: lo[j] and hi[j] hold, per lane, columns 4j .. 4j + 3.
struct BlockCodes {
  __m256i lo[8], hi[8];
};
TANDEM_INLINE BlockCodes LoadBytes(const std::byte* p) {
  BlockCodes c;
  TANDEM_UNROLL
  for (int j = 0; j < 8; ++j) {
    c.lo[j] = Load32Bytes(p + 64 * j);
    c.hi[j] = Load32Bytes(p + 64 * j + 32);
  }
  return c;
}

// Columns 4j .. 4j + 3 of each lane.
TANDEM_INLINE Vi WordOf(const BlockCodes& c, int j) { return {c.lo[j], c.hi[j]}; }
TANDEM_INLINE void SetWord(BlockCodes* c, int j, Vi word) {
  c->lo[j] = word.lo;
  c->hi[j] = word.hi;
}

// Codes below 64: pairs of products are at most 2 * kMaxCode * 128, and some of them fit 16 bits.
template <int kMaxCode, int kFirst, int kWords>
TANDEM_INLINE __m256i DotSmall(const __m256i* codes, const int8_t* x) {
  constexpr int kFit = 32767 / (2 * 128 * kMaxCode);
  constexpr int kRun = kFit < kWords ? kFit : kWords;
  static_assert(kWords % kRun == 0);
  __m256i total = _mm256_setzero_si256();
  TANDEM_UNROLL
  for (int begin = kFirst; begin < kFirst + kWords; begin += kRun) {
    __m256i sum = _mm256_setzero_si256();
    TANDEM_UNROLL
    for (int j = begin; j < begin + kRun; ++j) {
      int32_t four;
      std::memcpy(&four, x + 4 * j, 4);
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes[j], _mm256_set1_epi32(four)));
    }
    total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
  }
  return total;
}
// Codes 0 .. 255 would saturate 16 bits: the dot product of code - 128, as |code - 128| times x
// with its sign, whose pairs are at most 2 * 128 * 127. The caller's init of -128 * sum(x) is
// already contained.
template <int kFirst, int kWords>
TANDEM_INLINE __m256i DotBytes(const __m256i* codes, const int8_t* x) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  __m256i sum = _mm256_setzero_si256();
  TANDEM_UNROLL
  for (int j = kFirst; j < kFirst + kWords; ++j) {
    int32_t four;
    std::memcpy(&four, x + 4 * j, 4);
    const __m256i code = _mm256_xor_si256(codes[j], flip);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(code),
                                               _mm256_sign_epi8(_mm256_set1_epi32(four), code));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
  }
  return sum;
}
// init + sum of codes * x over the kWords * 4 columns from 4 * kFirst on, exact. kMaxCode: below
// 64, or 255 with init = -128 * sum(x).
template <int kMaxCode, int kFirst = 0, int kWords = 8>
TANDEM_INLINE Vi DotBlock(const BlockCodes& c, const int8_t* x, int32_t init) {
  if constexpr (kMaxCode == 255) {
    return {DotBytes<kFirst, kWords>(c.lo, x), DotBytes<kFirst, kWords>(c.hi, x)};
  } else {
    return Add(Vi{DotSmall<kMaxCode, kFirst, kWords>(c.lo, x),
                  DotSmall<kMaxCode, kFirst, kWords>(c.hi, x)},
               Set1(init));
  }
}

TANDEM_INLINE void StoreCodes(std::byte* p, const BlockCodes& c) {
  TANDEM_UNROLL
  for (int j = 0; j < 8; ++j) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 64 * j), c.lo[j]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 64 * j + 32), c.hi[j]);
  }
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
