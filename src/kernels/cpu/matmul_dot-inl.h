// What: integer dot products of quantised weights with a few rows of 8-bit activations ("fast"):
//   the panel of activations, and the tile of up to kTileRows rows.
// Not here: reading packed weights (matmul_codec-inl.h), many rows (matmul_wide-inl.h), tasks
//   (matmul-inl.h).
// Threads: pure functions of their arguments' memory.
// Invariants: a sum over K belongs to one lane and runs block by block in order: as ref/ops_ref.h.
// Cost: for one row, one pass over the weights at the speed of memory.
#pragma once

#include <cstring>

#include "kernels/activation.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul_codec-inl.h"
#include "kernels/packed_matrix.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// How far ahead of use weights are fetched, all groups in flight together: a memory latency of 100
// to 200 ns under load at the 20 to 40 GB/s of one thread.
inline constexpr int kPrefetchBytes = 8192;

// Activations of one block of columns for kRows rows, in the order the inner loop reads them. Parts
// are the columns that share a scale of the weights: 32, or 16.
template <int kRows, int kParts>
struct CodePanel {
  int8_t codes[kRows][kActivationBlock];
  float scale[kRows];
  int32_t init[kParts][kRows];  // where the integer sum starts: undoes the weights' unsigned form
  float offset[kParts]
              [kRows];  // scale * sum of codes: what the weights' minimum is multiplied with
  bool refined;         // in any of the rows: then the FinePanel counts, for all of them
};
// The fine codes of the same rows: the sum is (dot << shift) + fine dot, times `unit`. A row whose
// block is not refined has zeros, shift 0 and its scale, and so the operations of a plain block.
template <int kRows, int kParts>
struct FinePanel {
  int8_t codes[kRows][kActivationBlock];
  float unit[kRows];     // scale, or scale / 256
  int32_t shift[kRows];  // 0, or 8
  int32_t init[kParts][kRows];
};
// Columns whose panels are filled at a time; they take kTileRows * 88 bytes per block of 32, of
// which blocks that are not refined touch 44.
inline constexpr int32_t kPanelBlocks = 64;

// Sum of the codes of one part of a block, whose sum is `all`.
template <int kParts>
TANDEM_INLINE int32_t PartSum(const int8_t* codes, int32_t all, int part) {
  if constexpr (kParts == 1) return all;
  int32_t first = 0;
  for (int i = 0; i < kActivationBlock / 2; ++i) first += codes[i];
  return part == 0 ? first : all - first;
}

// Row m of the fine panel of a block that is refined in some row.
template <typename C, int kRows>
TANDEM_INLINE void FillFine(const QuantizedRows& x, int32_t cols, int64_t row, int32_t block, int m,
                            CodePanel<kRows, C::kParts>* panel, FinePanel<kRows, C::kParts>* fine) {
  const int64_t at = row * (cols / kActivationBlock) + block;
  if (x.fine.refined[at] == 0) {
    fine->unit[m] = panel->scale[m];
    fine->shift[m] = 0;
    std::memset(fine->codes[m], 0, kActivationBlock);
    for (int p = 0; p < C::kParts; ++p) fine->init[p][m] = 0;
    return;
  }
  fine->unit[m] = panel->scale[m] * (1.0f / numerics::kFineUnits);
  fine->shift[m] = numerics::kFineBits;
  std::memcpy(fine->codes[m], x.fine.codes + at * kActivationBlock, kActivationBlock);
  for (int p = 0; p < C::kParts; ++p) {
    const int32_t sum = PartSum<C::kParts>(panel->codes[m], x.sums[at], p);
    const int32_t fine_sum = PartSum<C::kParts>(fine->codes[m], x.fine.sums[at], p);
    fine->init[p][m] = -C::kBias * fine_sum;
    panel->offset[p][m] =
        fine->unit[m] * static_cast<float>((1 << numerics::kFineBits) * sum + fine_sum);
  }
}

template <typename C, int kRows>
TANDEM_INLINE void FillPanel(const QuantizedRows& x, int32_t cols, int64_t first_row,
                             int32_t first_block, int32_t num_blocks,
                             CodePanel<kRows, C::kParts>* panel,
                             FinePanel<kRows, C::kParts>* fine) {
  const int32_t row_blocks = cols / kActivationBlock;
  for (int32_t b = 0; b < num_blocks; ++b) panel[b].refined = false;
  for (int m = 0; m < kRows; ++m) {
    const int8_t* codes =
        x.codes + (first_row + m) * cols + int64_t{first_block} * kActivationBlock;
    const float* scales = x.scales + (first_row + m) * row_blocks + first_block;
    const int32_t* sums = x.sums + (first_row + m) * row_blocks + first_block;
    for (int32_t b = 0; b < num_blocks; ++b) {
      std::memcpy(panel[b].codes[m], codes + b * kActivationBlock, kActivationBlock);
      panel[b].scale[m] = scales[b];
      for (int p = 0; p < C::kParts; ++p) {
        const int32_t sum = PartSum<C::kParts>(panel[b].codes[m], sums[b], p);
        panel[b].init[p][m] = -C::kBias * sum;
        panel[b].offset[p][m] = scales[b] * static_cast<float>(sum);
      }
    }
    if (x.fine.codes == nullptr) continue;
    const uint8_t* refined = x.fine.refined + (first_row + m) * row_blocks + first_block;
    for (int32_t b = 0; b < num_blocks; ++b) panel[b].refined |= refined[b] != 0;
  }
  for (int32_t b = 0; b < num_blocks; ++b) {
    if (!panel[b].refined) continue;
    for (int m = 0; m < kRows; ++m) {
      FillFine<C, kRows>(x, cols, first_row + m, first_block + b, m, &panel[b], &fine[b]);
    }
  }
}

// acc + part p of a block times row m.
template <typename C, int p, int kRows>
TANDEM_INLINE Vf AddPart(const BlockCodes& codes, const BlockScales<C::kParts>& scales,
                         const CodePanel<kRows, C::kParts>& panel,
                         const FinePanel<kRows, C::kParts>& fine, int m, Vf acc) {
  constexpr int kWords = 8 / C::kParts;
  Vi dot = DotBlock<C::kMaxCode, p * kWords, kWords>(codes, panel.codes[m], panel.init[p][m]);
  if (panel.refined) {
    const Vi rest =
        DotBlock<C::kMaxCode, p * kWords, kWords>(codes, fine.codes[m], fine.init[p][m]);
    dot = Add(ShiftLeft(dot, fine.shift[m]), rest);
  }
  const float unit = panel.refined ? fine.unit[m] : panel.scale[m];
  acc = Fma(ToFloat(dot), Mul(scales.scale[p], Set1(unit)), acc);
  if constexpr (C::kHasMinimum) acc = Fma(scales.minimum[p], Set1(panel.offset[p][m]), acc);
  return acc;
}

// Adds num_blocks blocks of kGroups neighbouring groups to their sums, [kGroups][kRows][lane].
// Fetches ahead, at the end from the same blocks of the next kGroups groups where `more` says that
// they will be wanted.
template <typename C, int kRows, int kGroups>
TANDEM_INLINE void DotGroups(const std::byte* group, int64_t group_bytes, int32_t row_blocks,
                             int32_t first_block, int32_t num_blocks, bool more,
                             const CodePanel<kRows, C::kParts>* panel,
                             const FinePanel<kRows, C::kParts>* fine, float* sums) {
  constexpr int kAheadMax = kPrefetchBytes / (C::kCodeBytes * kGroups);
  const int32_t ahead = kAheadMax < num_blocks ? kAheadMax : num_blocks;
  const int64_t next = more ? kGroups * group_bytes : 0;
  Vf acc[kGroups][kRows];
  const std::byte* codes[kGroups];
  const std::byte* scales[kGroups];
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    codes[g] = group + g * group_bytes + int64_t{first_block} * C::kCodeBytes;
    scales[g] = group + g * group_bytes + int64_t{row_blocks} * C::kCodeBytes;
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) acc[g][m] = Load(sums + (g * kRows + m) * kLanes);
  }
  for (int32_t b = 0; b < num_blocks; ++b, ++panel, ++fine) {
    const bool wraps = b + ahead >= num_blocks;
    const int64_t blocks = wraps ? ahead - num_blocks : ahead;
    const int64_t from = wraps ? next : 0;
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TANDEM_UNROLL
      for (int line = 0; line < C::kCodeBytes; line += 64) {
        __builtin_prefetch(codes[g] + from + blocks * C::kCodeBytes + line, 0, 1);
      }
      __builtin_prefetch(scales[g] + from + C::Integers(first_block + b + blocks), 0, 1);
      const BlockCodes block = LoadCodes<C>(codes[g]);
      const BlockScales<C::kParts> of = LoadScales<C>(scales[g], first_block + b);
      TANDEM_UNROLL
      for (int m = 0; m < kRows; ++m) {
        acc[g][m] = AddPart<C, 0, kRows>(block, of, *panel, *fine, m, acc[g][m]);
        if constexpr (C::kParts == 2) {
          acc[g][m] = AddPart<C, 1, kRows>(block, of, *panel, *fine, m, acc[g][m]);
        }
      }
      codes[g] += C::kCodeBytes;
    }
  }
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) Store(sums + (g * kRows + m) * kLanes, acc[g][m]);
  }
}

// Groups [0, num_groups) from `group` on times kRows activation rows, into
// sums[num_groups][kRows][lane].
template <typename C, int kRows>
inline void DotTile(const PackedMatrix& w, const std::byte* group, int32_t num_groups,
                    const Activation& x, int64_t first_row, float* sums) {
  const int64_t group_bytes = PackedGroupBytes(w.dtype, w.cols);
  const int32_t row_blocks = w.cols / kActivationBlock;
  std::memset(sums, 0, sizeof(float) * kLanes * kRows * static_cast<size_t>(num_groups));
  CodePanel<kRows, C::kParts> panel[kPanelBlocks];
  FinePanel<kRows, C::kParts> fine[kPanelBlocks];
  for (int32_t b = 0; b < row_blocks; b += kPanelBlocks) {
    const int32_t blocks = row_blocks - b < kPanelBlocks ? row_blocks - b : kPanelBlocks;
    FillPanel<C, kRows>(x.q8, w.cols, first_row, b, blocks, panel, fine);
    int32_t g = 0;
    if constexpr (kRows == 1) {
      for (; g + kRowGroups <= num_groups; g += kRowGroups) {
        DotGroups<C, kRows, kRowGroups>(group + g * group_bytes, group_bytes, row_blocks, b, blocks,
                                        g + 2 * kRowGroups <= num_groups, panel, fine,
                                        sums + g * kRows * kLanes);
      }
    }
    for (; g < num_groups; ++g) {
      DotGroups<C, kRows, 1>(group + g * group_bytes, group_bytes, row_blocks, b, blocks,
                             g + 1 < num_groups, panel, fine, sums + g * kRows * kLanes);
    }
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
