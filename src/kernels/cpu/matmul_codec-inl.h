// What: how the packed bytes of each quantised type are read: codes as bytes, scales and minima as
//   f32.
// Not here: products (matmul_dot-inl.h, matmul_float-inl.h), the layout's definition
//   (packed_matrix.h).
// Threads: pure functions.
// Invariants: scales and minima have the bits of ScaleOf (tensor/block_fields.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/packed_matrix.h"
#include "tensor/block_fields.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

TANDEM_INLINE const uint16_t* AsHalf(const std::byte* p) {
  return reinterpret_cast<const uint16_t*>(p);
}

// The tables of 4-bit codes as unsigned bytes: each value plus 128.
inline constexpr uint8_t kNonlinearBytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kFloat4Bytes[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                             128, 127, 126, 125, 124, 122, 120, 116};

// How the packed bytes of a type are read (packed_matrix.h): codes of kBits, kParts scales for 32
// columns.
template <int kBits_, int kBias_, int kParts_, ScaleForm kForm_, const uint8_t* kTable_ = nullptr>
struct Codec {
  static constexpr int kBits = kBits_, kParts = kParts_;
  static constexpr ScaleForm kForm = kForm_;
  static constexpr const uint8_t* kTable = kTable_;
  static constexpr int kCodeBytes = 64 * kBits;
  static constexpr int kMaxCode = kTable != nullptr ? 255 : (1 << kBits) - 1;  // as unpacked
  static constexpr int kBias = kBias_;
  static constexpr bool kHasProduct =
      kForm == ScaleForm::kProduct || kForm == ScaleForm::kProductAndMinimum;
  static constexpr bool kHasMinimum =
      kForm == ScaleForm::kHalfAndMinimum || kForm == ScaleForm::kProductAndMinimum;
  // Low bits and high bits, each a plane.
  static constexpr int kLow = kBits == 8 ? 8 : kBits >= 4 ? 4 : 2;
  static constexpr int kHigh = kBits - kLow;
  // Scales of a block; or of eight blocks, integers of a block.
  static constexpr int kFirstBytes =
      kForm == ScaleForm::kExponent ? kLanes : (kHasMinimum ? 4 : 2) * kLanes;
  static constexpr int kIntegerBytes =
      kHasProduct ? (kParts + (kHasMinimum && kParts == 1 ? 1 : 0)) * kLanes : 0;

  // Of `block`'s scale, among the scales of a group.
  TANDEM_INLINE static int64_t First(int64_t block) {
    return kHasProduct ? block / 8 * (kFirstBytes + 8 * kIntegerBytes) : block * kFirstBytes;
  }
  // Of the last bytes that belong to `block`.
  TANDEM_INLINE static int64_t Integers(int64_t block) {
    return kHasProduct ? First(block) + kFirstBytes + block % 8 * kIntegerBytes : First(block);
  }
};
using CodecQ4_0 = Codec<4, 8, 1, ScaleForm::kHalf>;
using CodecQ4_1 = Codec<4, 0, 1, ScaleForm::kHalfAndMinimum>;
using CodecQ5_0 = Codec<5, 16, 1, ScaleForm::kHalf>;
using CodecQ5_1 = Codec<5, 0, 1, ScaleForm::kHalfAndMinimum>;
using CodecQ8_0 = Codec<8, 128, 1, ScaleForm::kHalf>;
using CodecQ2_K = Codec<2, 0, 2, ScaleForm::kProductAndMinimum>;
using CodecQ3_K = Codec<3, 4, 2, ScaleForm::kProduct>;
using CodecQ4_K = Codec<4, 0, 1, ScaleForm::kProductAndMinimum>;
using CodecQ5_K = Codec<5, 0, 1, ScaleForm::kProductAndMinimum>;
using CodecQ6_K = Codec<6, 32, 2, ScaleForm::kProduct>;
using CodecIQ4_NL = Codec<4, 128, 1, ScaleForm::kHalf, kNonlinearBytes>;
using CodecIQ4_XS = Codec<4, 128, 1, ScaleForm::kProduct, kNonlinearBytes>;
using CodecMXFP4 = Codec<4, 128, 1, ScaleForm::kExponent, kFloat4Bytes>;

// function.Run<the type's codec>(); nothing for plain types.
template <typename Function>
TANDEM_INLINE void WithCodec(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: break;
    case DType::kQ4_0: return function.template Run<CodecQ4_0>();
    case DType::kQ4_1: return function.template Run<CodecQ4_1>();
    case DType::kQ5_0: return function.template Run<CodecQ5_0>();
    case DType::kQ5_1: return function.template Run<CodecQ5_1>();
    case DType::kQ8_0: return function.template Run<CodecQ8_0>();
    case DType::kQ2_K: return function.template Run<CodecQ2_K>();
    case DType::kQ3_K: return function.template Run<CodecQ3_K>();
    case DType::kQ4_K: return function.template Run<CodecQ4_K>();
    case DType::kQ5_K: return function.template Run<CodecQ5_K>();
    case DType::kQ6_K: return function.template Run<CodecQ6_K>();
    case DType::kIQ4_NL: return function.template Run<CodecIQ4_NL>();
    case DType::kIQ4_XS: return function.template Run<CodecIQ4_XS>();
    case DType::kMXFP4: return function.template Run<CodecMXFP4>();
  }
}

// Bits of columns 4j .. 4j + 3 in a plane of kPlaneBits, each in the low bits of its byte.
template <int kPlaneBits, int kWord>
TANDEM_INLINE Vi PlaneWord(const std::byte* plane) {
  const Vi word = LoadInts(plane + 64 * (kWord % kPlaneBits));
  if constexpr (kPlaneBits == 8) {
    return word;
  } else {
    const Vi mask = Set1(int32_t{0x01010101 * ((1 << kPlaneBits) - 1)});
    return And(ShiftRight<kWord / kPlaneBits * kPlaneBits>(word), mask);
  }
}
// low | the same columns' bits of the plane above, which lie in its bytes from bit kWord / kHigh *
// kHigh on and belong from bit kLow on.
template <int kLow, int kHigh, int kWord>
TANDEM_INLINE Vi AddHighBits(const std::byte* plane, Vi low) {
  constexpr int kMove = kLow - kWord / kHigh * kHigh;
  Vi word = LoadInts(plane + 64 * (kWord % kHigh));
  if constexpr (kMove > 0) word = ShiftLeft<kMove>(word);
  if constexpr (kMove < 0) word = ShiftRight<-kMove>(word);
  return AndOr(word, Set1(int32_t{0x01010101 * (((1 << kHigh) - 1) << kLow)}), low);
}
template <typename C, int kWord = 0>
TANDEM_INLINE void UnpackWords(const std::byte* p, BlockCodes* out) {
  Vi word = PlaneWord<C::kLow, kWord>(p);
  if constexpr (C::kHigh != 0) word = AddHighBits<C::kLow, C::kHigh, kWord>(p + 64 * C::kLow, word);
  if constexpr (C::kTable != nullptr) word = Lookup(C::kTable, word);
  SetWord(out, kWord, word);
  if constexpr (kWord < 7) UnpackWords<C, kWord + 1>(p, out);
}
// The codes of a block, a byte each.
template <typename C>
TANDEM_INLINE BlockCodes LoadCodes(const std::byte* p) {
  BlockCodes out;
  UnpackWords<C>(p, &out);
  return out;
}

// Scales of a block, and what is added (nothing if the type has no minimum).
template <int kParts>
struct BlockScales {
  Vf scale[kParts];
  Vf minimum[kParts];
};
// 2^(e - 128), e = 0 .. 255, as a product of two normal numbers.
TANDEM_INLINE Vf PowerOfTwo(Vi e) {
  const Vi half = ShiftRight<1>(e);
  const Vi rest = ShiftRight<1>(Add(e, Set1(int32_t{1})));
  const Vi bias = Set1(int32_t{63});
  return Mul(AsFloat(ShiftLeft<23>(Add(half, bias))), AsFloat(ShiftLeft<23>(Add(rest, bias))));
}
// `scales` are all those of a group.
template <typename C>
TANDEM_INLINE BlockScales<C::kParts> LoadScales(const std::byte* scales, int64_t block) {
  BlockScales<C::kParts> out;
  const std::byte* first = scales + C::First(block);
  if constexpr (C::kForm == ScaleForm::kExponent) {
    out.scale[0] = PowerOfTwo(LoadUnsigned(reinterpret_cast<const uint8_t*>(first)));
  } else if constexpr (!C::kHasProduct) {
    out.scale[0] = Load(AsHalf(first));
    if constexpr (C::kHasMinimum) out.minimum[0] = Load(AsHalf(first + 2 * kLanes));
  } else {
    const Vf d = Load(AsHalf(first));
    [[maybe_unused]] Vf minus_m;
    if constexpr (C::kHasMinimum) minus_m = Mul(Load(AsHalf(first + 2 * kLanes)), Set1(-1.0f));
    const std::byte* integers = scales + C::Integers(block);
    TANDEM_UNROLL
    for (int p = 0; p < C::kParts; ++p) {
      const std::byte* at = integers + p * kLanes;
      if constexpr (C::kHasMinimum) {
        Vi scale = LoadUnsigned(reinterpret_cast<const uint8_t*>(at));
        Vi minimum;
        if constexpr (C::kParts == 1) {
          minimum = LoadUnsigned(reinterpret_cast<const uint8_t*>(at + kLanes));
        } else {
          minimum = ShiftRight<4>(scale);
          scale = And(scale, Set1(int32_t{15}));
        }
        out.scale[p] = Mul(d, ToFloat(scale));
        out.minimum[p] = Mul(minus_m, ToFloat(minimum));
      } else {
        out.scale[p] = Mul(d, ToFloat(LoadSigned(reinterpret_cast<const int8_t*>(at))));
      }
    }
  }
  return out;
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
