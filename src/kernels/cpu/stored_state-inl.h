// What: how attention reads stored keys and values of each type: sixteen positions of a key's
//   dimension, sixteen dimensions of a value, and the scales that belong to them.
// Not here: what is done with them (attention-inl.h), writing them (rope-inl.h), where a tile's
//   values and scales lie (tensor/state_group.h).
// Threads: pure functions of the pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/ops.h"
#include "tensor/half.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// What Load takes of a stored type: float, uint16_t (f16), BFloat16, or int8_t: codes without the
// scale of their run.
template <typename T>
inline constexpr bool kHasScales = std::is_same_v<T, int8_t>;

// The pages of one layer and KV head of one sequence.
struct HeadPages {
  const std::byte* keys;  // of block 0
  const std::byte* values;
  int64_t scales;  // from a tile to its scales, if it has any
  int64_t block_bytes;
  int32_t per_block;
  int32_t dims;
  const int32_t* table;

  TANDEM_INLINE int64_t BlockOffset(int32_t position) const {
    return table[position / per_block] * block_bytes;
  }
  template <typename T>
  TANDEM_INLINE const T* Values(int32_t position) const {
    return reinterpret_cast<const T*>(values + BlockOffset(position)) +
           int64_t{position % per_block} * dims;
  }
  // Key dimension d of `position` is at [d * per_block].
  template <typename T>
  TANDEM_INLINE const T* Keys(int32_t position) const {
    return reinterpret_cast<const T*>(keys + BlockOffset(position)) + position % per_block;
  }
  // The scale of run r is at [r * per_block].
  TANDEM_INLINE const uint16_t* KeyScales(int32_t position) const {
    return reinterpret_cast<const uint16_t*>(keys + scales + BlockOffset(position)) +
           position % per_block;
  }
  TANDEM_INLINE const uint16_t* ValueScales(int32_t position) const {
    return reinterpret_cast<const uint16_t*>(values + scales + BlockOffset(position)) +
           position % per_block;
  }
};

inline HeadPages PagesOf(const AttentionArgs& args, const BatchRow& row, int32_t kv_head) {
  const StateGroup& group = *args.state.group;
  const std::byte* head = args.state.base + group.OffsetInBlock(args.layer, kv_head, 0);
  return {head,
          head + group.PlaneBytes(0),
          group.ScalesOffset(0),
          group.BlockBytes(),
          group.tokens_per_block,
          args.head_dim,
          args.batch.block_tables + row.table_begin};
}

// The keys of 16 neighbouring positions of a tile.
template <typename T>
struct KeyVector {
  const T* keys;
};
template <>
struct KeyVector<int8_t> {
  const int8_t* keys;
  const uint16_t* scales;
};

template <typename T>
TANDEM_INLINE KeyVector<T> KeysAt(const HeadPages& pages, int32_t position) {
  if constexpr (kHasScales<T>) {
    return {pages.Keys<T>(position), pages.KeyScales(position)};
  } else {
    return {pages.Keys<T>(position)};
  }
}

// The keys of up to 16 positions that lie in several tiles, as a vector of one tile of 16.
template <typename T>
struct GatheredKeys {
  alignas(64) T keys[kMaxHeadDim * kLanes] = {};
  alignas(64) uint16_t scales[ScaleRuns(kMaxHeadDim) * kLanes] = {};

  GatheredKeys(const HeadPages& pages, int32_t begin, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      const KeyVector<T> from = KeysAt<T>(pages, begin + i);
      for (int32_t d = 0; d < pages.dims; ++d) {
        keys[d * kLanes + i] = from.keys[int64_t{d} * pages.per_block];
      }
      if constexpr (kHasScales<T>) {
        for (int32_t run = 0; run < ScaleRuns(pages.dims); ++run) {
          scales[run * kLanes + i] = from.scales[int64_t{run} * pages.per_block];
        }
      }
    }
  }
  KeyVector<T> vector() const {
    if constexpr (kHasScales<T>) {
      return {keys, scales};
    } else {
      return {keys};
    }
  }
};

// Weights of kRows query rows at up to 16 neighbouring positions of a tile, times the values'
// scales of kRuns runs from `dim` on. The next row's weights begin kAttentionSplit floats later.
template <int kRows, int kRuns>
struct ScaledWeights {
  alignas(64) float of[kRuns][kRows][kLanes];

  TANDEM_INLINE ScaledWeights(const HeadPages& pages, int32_t position, int32_t count, int32_t dim,
                              const float* weights) {
    const uint16_t* scales = pages.ValueScales(position) + dim / kScaleDims * pages.per_block;
    TANDEM_UNROLL
    for (int run = 0; run < kRuns; ++run, scales += pages.per_block) {
      if (pages.per_block % kLanes == 0) {  // so is `position`
        const Vf scale = Load(scales);
        TANDEM_UNROLL
        for (int m = 0; m < kRows; ++m) {
          Store(of[run][m], Mul(Load(weights + m * kAttentionSplit), scale));
        }
        continue;
      }
      for (int i = 0; i < count; ++i) {
        const float scale = HalfToFloat(scales[i]);
        for (int m = 0; m < kRows; ++m) of[run][m][i] = weights[m * kAttentionSplit + i] * scale;
      }
    }
  }
};

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
