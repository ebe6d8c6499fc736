// What: integer dot products of quantised weights with many rows of 8-bit activations (prefill,
//   large batches).
// Not here: few rows, codecs (matmul_dot-inl.h); tasks (matmul-inl.h).
// Threads: pure functions of their arguments' memory.
// Invariants: the same operations per row and lane as matmul_dot-inl.h: equal bits.
// Cost: bound by the multiply-add units: a block of 32 columns takes 8 dot products and 2 or 3
//   float operations per row. Codes are unpacked once per task, and each activation that is loaded
//   serves kWideGroups groups.
#pragma once

#include <cstring>

#include "kernels/activation.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul_dot-inl.h"
#include "kernels/packed_matrix.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// Columns that one sweep over all rows takes: the unpacked codes of kWideGroups groups (16 KiB) and
// one tile of activations stay in a 32 KiB L1.
inline constexpr int32_t kWideBlocks = 16;
// Rows of one sweep at most: their activations stay in L2.
inline constexpr int32_t kWideTiles = 16;
inline constexpr int32_t kWideBlockBytes = 512;  // unpacked codes of one block of a group

// acc + part p of a block of kGroups groups times the rows of a tile.
template <typename C, int p, int kGroups>
TANDEM_INLINE void AddWidePart(const std::byte* const (&codes)[kGroups],
                               const BlockScales<C::kParts> (&scales)[kGroups],
                               const CodePanel<kWideRows, C::kParts>& panel,
                               const FinePanel<kWideRows, C::kParts>& fine,
                               Vf (&acc)[kGroups][kWideRows]) {
  constexpr int kWords = 8 / C::kParts;
  Vi dots[kGroups][kWideRows];
  DotRows<C::kMaxCode, p * kWords, kWords>(codes, panel.codes, panel.init[p], dots);
  const float* units = panel.scale;
  if (panel.refined) {
    Vi rest[kGroups][kWideRows];
    DotRows<C::kMaxCode, p * kWords, kWords>(codes, fine.codes, fine.init[p], rest);
    units = fine.unit;
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TANDEM_UNROLL
      for (int m = 0; m < kWideRows; ++m) {
        dots[g][m] = Add(ShiftLeft(dots[g][m], fine.shift[m]), rest[g][m]);
      }
    }
  }
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TANDEM_UNROLL
    for (int m = 0; m < kWideRows; ++m) {
      acc[g][m] = Fma(ToFloat(dots[g][m]), Mul(scales[g].scale[p], Set1(units[m])), acc[g][m]);
      if constexpr (C::kHasMinimum) {
        acc[g][m] = Fma(scales[g].minimum[p], Set1(panel.offset[p][m]), acc[g][m]);
      }
    }
  }
}

// Adds blocks to kGroups neighbouring groups' sums of one tile; sums of group g are at
// [g * group_sums], [row][lane]. Codes are unpacked, blocks kWideBlockBytes apart; `scales` are all
// those of a group.
template <typename C, int kGroups>
inline void DotWideTile(const std::byte* const* codes_of, const std::byte* const* scales,
                        int32_t first_block, int32_t num_blocks,
                        const CodePanel<kWideRows, C::kParts>* panel,
                        const FinePanel<kWideRows, C::kParts>* fine, float* sums,
                        int64_t group_sums) {
  Vf acc[kGroups][kWideRows];
  const std::byte* codes[kGroups];
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    codes[g] = codes_of[g];
    TANDEM_UNROLL
    for (int m = 0; m < kWideRows; ++m) acc[g][m] = Load(sums + g * group_sums + m * kLanes);
  }
  for (int32_t b = 0; b < num_blocks; ++b, ++panel, ++fine) {
    BlockScales<C::kParts> of[kGroups];
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) of[g] = LoadScales<C>(scales[g], first_block + b);
    AddWidePart<C, 0, kGroups>(codes, of, *panel, *fine, acc);
    if constexpr (C::kParts == 2) AddWidePart<C, 1, kGroups>(codes, of, *panel, *fine, acc);
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) codes[g] += kWideBlockBytes;
  }
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TANDEM_UNROLL
    for (int m = 0; m < kWideRows; ++m) Store(sums + g * group_sums + m * kLanes, acc[g][m]);
  }
}

// kGroups groups from `group` on, columns of blocks [first_block, + num_blocks), all tiles.
template <typename C, int kGroups>
inline void DotWideGroups(const PackedMatrix& w, const std::byte* group, int32_t first_block,
                          int32_t num_blocks, const CodePanel<kWideRows, C::kParts>* panels,
                          const FinePanel<kWideRows, C::kParts>* fines, int64_t tiles,
                          float* sums) {
  const int64_t group_bytes = PackedGroupBytes(w.dtype, w.cols);
  const int32_t row_blocks = w.cols / kActivationBlock;
  const int64_t tile_sums = kWideRows * kLanes;
  alignas(64) std::byte unpacked[kGroups][kWideBlocks * kWideBlockBytes];
  const std::byte* codes[kGroups];
  const std::byte* scales[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const std::byte* from = group + g * group_bytes;
    scales[g] = from + int64_t{row_blocks} * C::kCodeBytes;
    codes[g] = from + int64_t{first_block} * C::kCodeBytes;
    if constexpr (C::kCodeBytes != kWideBlockBytes) {
      for (int32_t b = 0; b < num_blocks; ++b) {
        StoreCodes(unpacked[g] + b * kWideBlockBytes,
                   LoadCodes<C>(codes[g] + int64_t{b} * C::kCodeBytes));
      }
      codes[g] = unpacked[g];
    }
  }
  for (int64_t t = 0; t < tiles; ++t) {
    DotWideTile<C, kGroups>(codes, scales, first_block, num_blocks, panels + t * kWideBlocks,
                            fines + t * kWideBlocks, sums + t * tile_sums, tiles * tile_sums);
  }
}

// Groups [0, num_groups) from `group` on times tiles * kWideRows rows, into
// sums[num_groups][tiles * kWideRows][lane].
template <typename C>
inline void DotWide(const PackedMatrix& w, const std::byte* group, int32_t num_groups,
                    const Activation& x, int64_t first_row, int64_t tiles, float* sums) {
  const int64_t group_bytes = PackedGroupBytes(w.dtype, w.cols);
  const int64_t group_sums = tiles * kWideRows * kLanes;
  const int32_t row_blocks = w.cols / kActivationBlock;
  std::memset(sums, 0, sizeof(float) * static_cast<size_t>(num_groups * group_sums));
  CodePanel<kWideRows, C::kParts> panels[kWideTiles * kWideBlocks];
  FinePanel<kWideRows, C::kParts> fines[kWideTiles * kWideBlocks];
  for (int32_t b = 0; b < row_blocks; b += kWideBlocks) {
    const int32_t blocks = row_blocks - b < kWideBlocks ? row_blocks - b : kWideBlocks;
    for (int64_t t = 0; t < tiles; ++t) {
      FillPanel<C, kWideRows>(x.q8, w.cols, first_row + t * kWideRows, b, blocks,
                              panels + t * kWideBlocks, fines + t * kWideBlocks);
    }
    int32_t g = 0;
    for (; g + kWideGroups <= num_groups; g += kWideGroups) {
      DotWideGroups<C, kWideGroups>(w, group + g * group_bytes, b, blocks, panels, fines, tiles,
                                    sums + g * group_sums);
    }
    for (; g < num_groups; ++g) {
      DotWideGroups<C, 1>(w, group + g * group_bytes, b, blocks, panels, fines, tiles,
                          sums + g * group_sums);
    }
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
