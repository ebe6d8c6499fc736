// What: products of f32 activations with dequantised weights ("exact", and unquantised weights).
// Not here: tasks (matmul-inl.h).
// Threads: pure functions of their arguments' memory.
// Invariants: a sum over K belongs to one lane and runs column by column in order; a weight has the
//   value that its scalar codec gives it: as ref/ops_ref.h.
#pragma once

#include <cstring>

#include "kernels/activation.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul_dot-inl.h"
#include "kernels/packed_matrix.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// Columns whose weights are dequantised at a time: 2 KiB a group.
inline constexpr int32_t kFloatColumns = 32;

// Values of four consecutive columns, from the bytes of the lanes.
template <bool kHasMinimum>
TANDEM_INLINE void DequantizeFour(Vi fields, Vi bias, Vf scale, Vf minimum, float* out) {
  const Vi mask = Set1(int32_t{255});
  const Vi codes[4] = {And(fields, mask), And(ShiftRight<8>(fields), mask),
                       And(ShiftRight<16>(fields), mask), ShiftRight<24>(fields)};
  TANDEM_UNROLL
  for (int i = 0; i < 4; ++i) {
    Vf value = Mul(scale, ToFloat(Add(codes[i], bias)));
    if (kHasMinimum) value = Add(value, minimum);
    Store(out + i * kLanes, value);
  }
}

// The values of a block of 32 columns, [column][lane].
template <typename C>
inline void DequantizeBlock(const PackedMatrix& w, const std::byte* group, int32_t block,
                            float* out) {
  const BlockCodes codes = LoadCodes<C>(group + int64_t{block} * C::kCodeBytes);
  const std::byte* scales = group + int64_t{w.cols / kActivationBlock} * C::kCodeBytes;
  const BlockScales<C::kParts> of = LoadScales<C>(scales, block);
  const Vi bias = Set1(int32_t{-C::kBias});
  for (int j = 0; j < 8; ++j) {
    const int p = j * C::kParts / 8;
    DequantizeFour<C::kHasMinimum>(WordOf(codes, j), bias, of.scale[p],
                                   C::kHasMinimum ? of.minimum[p] : of.scale[p],
                                   out + 4 * j * kLanes);
  }
}
struct BlockDequantizer {
  const PackedMatrix& w;
  const std::byte* group;
  int32_t block;
  float* out;
  template <typename C>
  void Run() const {
    DequantizeBlock<C>(w, group, block, out);
  }
};

// The values of columns [begin, begin + count) of a group, [column][lane]; in `buffer`, or where
// they already lie.
inline const float* DequantizeColumns(const PackedMatrix& w, const std::byte* group, int32_t begin,
                                      int32_t count, float* buffer) {
  const auto* halves = AsHalf(group) + int64_t{begin} * kLanes;
  switch (w.dtype) {
    case DType::kF32: return reinterpret_cast<const float*>(group) + int64_t{begin} * kLanes;
    case DType::kF16:
      for (int32_t i = 0; i < count; ++i) Store(buffer + i * kLanes, Load(halves + i * kLanes));
      break;
    case DType::kBF16:
      for (int32_t i = 0; i < count; ++i) Store(buffer + i * kLanes, LoadBf16(halves + i * kLanes));
      break;
    default: WithCodec(w.dtype, BlockDequantizer{w, group, begin / kActivationBlock, buffer});
  }
  return buffer;
}

// kGroups neighbouring groups times kRows activation rows, into sums[kGroups][kRows][lane].
template <int kRows, int kGroups>
inline void FloatGroups(const PackedMatrix& w, const std::byte* group, const Activation& x,
                        int64_t first_row, float* sums) {
  const int64_t group_bytes = PackedGroupBytes(w.dtype, w.cols);
  const float* rows = x.f32 + first_row * x.cols;
  Vf acc[kGroups][kRows];
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) acc[g][m] = Zero();
  }
  alignas(64) float buffer[kGroups][kFloatColumns * kLanes];
  const float* weights[kGroups];
  for (int32_t c = 0; c < w.cols; c += kFloatColumns) {
    const int32_t count = w.cols - c < kFloatColumns ? w.cols - c : kFloatColumns;
    for (int g = 0; g < kGroups; ++g) {
      weights[g] = DequantizeColumns(w, group + g * group_bytes, c, count, buffer[g]);
    }
    for (int32_t i = 0; i < count; ++i) {
      const float* at = rows + c + i;
      TANDEM_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        const Vf weight = Load(weights[g] + i * kLanes);
        TANDEM_UNROLL
        for (int m = 0; m < kRows; ++m) {
          acc[g][m] = Fma(Set1(at[int64_t{m} * x.cols]), weight, acc[g][m]);
        }
      }
    }
  }
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) Store(sums + (g * kRows + m) * kLanes, acc[g][m]);
  }
}

template <int kRows>
inline void FloatTile(const PackedMatrix& w, const std::byte* group, int32_t num_groups,
                      const Activation& x, int64_t first_row, float* sums) {
  const int64_t group_bytes = PackedGroupBytes(w.dtype, w.cols);
  int32_t g = 0;
  if constexpr (kRows == 1) {
    for (; g + kRowGroups <= num_groups; g += kRowGroups) {
      FloatGroups<1, kRowGroups>(w, group + g * group_bytes, x, first_row, sums + g * kLanes);
    }
  }
  for (; g < num_groups; ++g) {
    FloatGroups<kRows, 1>(w, group + g * group_bytes, x, first_row, sums + g * kRows * kLanes);
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
