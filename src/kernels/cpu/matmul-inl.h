// What: MatMul: products of a few activation rows with packed weights, on integer dot products for quantised weights
//   ("fast") or f32 fma on dequantised weights ("exact").
// Not here: packing (packed_matrix.h), the choice of numerics (the caller, by the forms of x).
// Threads: a task is a run of groups of one part times a run of activation rows.
// Invariants: a sum over K belongs to one lane and runs in column order whatever the tile: as ref/ops_ref.h.
// Cost: for one row, one pass over the weights at the speed of memory; for many, each block of weights is unpacked once
//   per kTileRows rows.
#pragma once

#include <cstring>

#include "base/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/math-inl.h"

#include "kernels/cpu/isa_begin-inl.h"

namespace tandem::TANDEM_ISA {

// Groups of one task at most: their partial sums stay in L1.
inline constexpr int32_t kTaskGroups = 16;
// Activation rows of one task: with 2048 columns of codes they take half of a 512 KiB L2.
inline constexpr int32_t kTaskRows = 128;
// Tasks per thread that balance asks for.
inline constexpr int32_t kTasksPerThread = 6;
// How far ahead of use weights are fetched: about 100 ns at the speed of memory.
inline constexpr int64_t kPrefetchBytes = 2048;

// ---------------------------------------------------------------- integer dot products

// Activations of one block of columns for kRows rows, in the order the inner loop reads them.
template <int kRows>
struct CodePanel {
  int8_t codes[kRows][kActivationBlock];
  float scale[kRows];
  int32_t init[kRows];   // where the integer sum starts: undoes the weights' unsigned form
  float offset[kRows];   // scale * sum of codes: what the weights' minimum is multiplied with
};
// Columns whose panel is filled at a time; its size is kTileRows * 44 bytes per block of 32.
inline constexpr int32_t kPanelBlocks = 64;

struct CodecQ4_0 {
  static constexpr int kCodeBytes = 256, kScaleBytes = 32, kMaxCode = 15, kBias = 8;
  static constexpr bool kHasMinimum = false;
  TANDEM_INLINE static BlockCodes Codes(const std::byte* p) { return LoadNibbles(p); }
};
struct CodecQ4_1 {
  static constexpr int kCodeBytes = 256, kScaleBytes = 64, kMaxCode = 15, kBias = 0;
  static constexpr bool kHasMinimum = true;
  TANDEM_INLINE static BlockCodes Codes(const std::byte* p) { return LoadNibbles(p); }
};
struct CodecQ8_0 {
  static constexpr int kCodeBytes = 512, kScaleBytes = 32, kMaxCode = 255, kBias = 128;
  static constexpr bool kHasMinimum = false;
  TANDEM_INLINE static BlockCodes Codes(const std::byte* p) { return LoadBytes(p); }
};

TANDEM_INLINE const uint16_t* AsHalf(const std::byte* p) {
  return reinterpret_cast<const uint16_t*>(p);
}

template <typename Codec, int kRows>
TANDEM_INLINE void FillPanel(const QuantizedRows& x, int32_t cols, int64_t first_row,
                             int32_t first_block, int32_t num_blocks, CodePanel<kRows>* panel) {
  const int32_t row_blocks = cols / kActivationBlock;
  for (int m = 0; m < kRows; ++m) {
    const int8_t* codes =
        x.codes + (first_row + m) * cols + int64_t{first_block} * kActivationBlock;
    const float* scales = x.scales + (first_row + m) * row_blocks + first_block;
    const int32_t* sums = x.sums + (first_row + m) * row_blocks + first_block;
    for (int32_t b = 0; b < num_blocks; ++b) {
      std::memcpy(panel[b].codes[m], codes + b * kActivationBlock, kActivationBlock);
      panel[b].scale[m] = scales[b];
      panel[b].init[m] = -Codec::kBias * sums[b];
      panel[b].offset[m] = scales[b] * static_cast<float>(sums[b]);
    }
  }
}

// Adds num_blocks blocks of kGroups neighbouring groups to their sums, [kGroups][kRows][lane].
template <typename Codec, int kRows, int kGroups>
TANDEM_INLINE void DotGroups(const std::byte* group, int64_t group_bytes, int32_t row_blocks,
                             int32_t first_block, int32_t num_blocks,
                             const CodePanel<kRows>* panel, float* sums) {
  Vf acc[kGroups][kRows];
  const std::byte* codes[kGroups];
  const std::byte* scales[kGroups];
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    codes[g] = group + g * group_bytes + int64_t{first_block} * Codec::kCodeBytes;
    scales[g] = group + g * group_bytes + int64_t{row_blocks} * Codec::kCodeBytes +
                int64_t{first_block} * Codec::kScaleBytes;
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) acc[g][m] = Load(sums + (g * kRows + m) * kLanes);
  }
  for (int32_t b = 0; b < num_blocks; ++b, ++panel) {
    TANDEM_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TANDEM_UNROLL
      for (int line = 0; line < Codec::kCodeBytes; line += 64) {
        if (kRows == 1) __builtin_prefetch(codes[g] + kPrefetchBytes + line, 0, 1);
      }
      const BlockCodes block = Codec::Codes(codes[g]);
      const Vf scale = Load(AsHalf(scales[g]));
      Vf minimum = scale;
      if (Codec::kHasMinimum) minimum = Load(AsHalf(scales[g] + 2 * kLanes));
      TANDEM_UNROLL
      for (int m = 0; m < kRows; ++m) {
        const Vi dot = DotBlock<Codec::kMaxCode>(block, panel->codes[m], panel->init[m]);
        acc[g][m] = Fma(ToFloat(dot), Mul(scale, Set1(panel->scale[m])), acc[g][m]);
        if (Codec::kHasMinimum) acc[g][m] = Fma(minimum, Set1(panel->offset[m]), acc[g][m]);
      }
      codes[g] += Codec::kCodeBytes;
      scales[g] += Codec::kScaleBytes;
    }
  }
  TANDEM_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) Store(sums + (g * kRows + m) * kLanes, acc[g][m]);
  }
}

// Groups [0, num_groups) from `group` on times kRows activation rows, into sums[num_groups][kRows][lane].
template <typename Codec, int kRows>
inline void DotTile(const PackedMatrix& w, const std::byte* group, int32_t num_groups,
                    const Activation& x, int64_t first_row, float* sums) {
  const int64_t group_bytes = PackedGroupBytes(w.dtype, w.cols);
  const int32_t row_blocks = w.cols / kActivationBlock;
  std::memset(sums, 0, sizeof(float) * kLanes * kRows * static_cast<size_t>(num_groups));
  CodePanel<kRows> panel[kPanelBlocks];
  for (int32_t b = 0; b < row_blocks; b += kPanelBlocks) {
    const int32_t blocks = row_blocks - b < kPanelBlocks ? row_blocks - b : kPanelBlocks;
    FillPanel<Codec, kRows>(x.q8, w.cols, first_row, b, blocks, panel);
    int32_t g = 0;
    if constexpr (kRows == 1) {
      for (; g + kRowGroups <= num_groups; g += kRowGroups) {
        DotGroups<Codec, kRows, kRowGroups>(group + g * group_bytes, group_bytes, row_blocks, b,
                                            blocks, panel, sums + g * kRows * kLanes);
      }
    }
    for (; g < num_groups; ++g) {
      DotGroups<Codec, kRows, 1>(group + g * group_bytes, group_bytes, row_blocks, b, blocks,
                                 panel, sums + g * kRows * kLanes);
    }
  }
}

// ---------------------------------------------------------------- f32 on dequantised weights

// Columns whose weights are dequantised at a time: 2 KiB a group.
inline constexpr int32_t kFloatColumns = 32;

// Values of four consecutive columns, from the lanes' bit fields at kShift, + 8, + 16 and + 24.
template <int kShift, bool kHasMinimum>
TANDEM_INLINE void DequantizeFour(Vi fields, Vi mask, Vi bias, Vf scale, Vf minimum, float* out) {
  const Vi codes[4] = {ShiftRight<kShift>(fields), ShiftRight<kShift + 8>(fields),
                       ShiftRight<kShift + 16>(fields), ShiftRight<kShift + 24>(fields)};
  TANDEM_UNROLL
  for (int i = 0; i < 4; ++i) {
    Vf value = Mul(scale, ToFloat(Add(And(codes[i], mask), bias)));
    if (kHasMinimum) value = Add(value, minimum);
    Store(out + i * kLanes, value);
  }
}

// The values of a block of 32 columns, [column][lane].
template <typename Codec>
inline void DequantizeBlock(const PackedMatrix& w, const std::byte* group, int32_t block,
                            float* out) {
  const std::byte* codes = group + int64_t{block} * Codec::kCodeBytes;
  const std::byte* scales = group + int64_t{w.cols / kActivationBlock} * Codec::kCodeBytes +
                            int64_t{block} * Codec::kScaleBytes;
  const Vf scale = Load(AsHalf(scales));
  const Vf minimum = Codec::kHasMinimum ? Load(AsHalf(scales + 2 * kLanes)) : scale;
  const Vi mask = Set1(int32_t{Codec::kMaxCode});
  const Vi bias = Set1(int32_t{-Codec::kBias});
  for (int j = 0; j < Codec::kCodeBytes / 64; ++j) {
    const Vi fields = LoadInts(codes + 64 * j);
    float* at = out + 4 * j * kLanes;
    DequantizeFour<0, Codec::kHasMinimum>(fields, mask, bias, scale, minimum, at);
    if constexpr (Codec::kMaxCode == 15) {
      DequantizeFour<4, Codec::kHasMinimum>(fields, mask, bias, scale, minimum, at + 16 * kLanes);
    }
  }
}

// The values of columns [begin, begin + count) of a group, [column][lane]; in `buffer`, or where they already lie.
inline const float* DequantizeColumns(const PackedMatrix& w, const std::byte* group,
                                      int32_t begin, int32_t count, float* buffer) {
  const auto* halves = AsHalf(group) + int64_t{begin} * kLanes;
  switch (w.dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(group) + int64_t{begin} * kLanes;
    case DType::kF16:
      for (int32_t i = 0; i < count; ++i) Store(buffer + i * kLanes, Load(halves + i * kLanes));
      break;
    case DType::kBF16:
      for (int32_t i = 0; i < count; ++i) Store(buffer + i * kLanes, LoadBf16(halves + i * kLanes));
      break;
    case DType::kQ4_0:
      DequantizeBlock<CodecQ4_0>(w, group, begin / kActivationBlock, buffer);
      break;
    case DType::kQ4_1:
      DequantizeBlock<CodecQ4_1>(w, group, begin / kActivationBlock, buffer);
      break;
    case DType::kQ8_0:
      DequantizeBlock<CodecQ8_0>(w, group, begin / kActivationBlock, buffer);
      break;
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

// ---------------------------------------------------------------- tiles and tasks

using TileFunction = void (*)(const PackedMatrix& w, const std::byte* group, int32_t num_groups,
                              const Activation& x, int64_t first_row, float* sums);

template <int kRows>
inline TileFunction TileOf(const PackedMatrix& w, const Activation& x) {
  if (x.has_q8()) {
    switch (w.dtype) {
      case DType::kQ4_0:
        return DotTile<CodecQ4_0, kRows>;
      case DType::kQ4_1:
        return DotTile<CodecQ4_1, kRows>;
      case DType::kQ8_0:
        return DotTile<CodecQ8_0, kRows>;
      default:
        break;
    }
  }
  return FloatTile<kRows>;
}

// The function for a tile of `rows` activation rows, 1 .. kTileRows.
template <int kRows = kTileRows>
inline TileFunction TileFor(int64_t rows, const PackedMatrix& w, const Activation& x) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileFor<kRows - 1>(rows, w, x);
  }
  return TileOf<kRows>(w, x);
}

// sums[num_groups][rows][lane] to the output.
inline void WriteTile(const MatMulPart& part, int32_t first_group, int32_t num_groups,
                      int64_t first_row, int64_t rows, const float* sums) {
  for (int32_t g = 0; g < num_groups; ++g) {
    const int32_t n = (first_group + g) * kPackRows;
    const int32_t lanes = part.weight.rows - n < kLanes ? part.weight.rows - n : kLanes;
    for (int64_t m = 0; m < rows; ++m) {
      const Vf sum = Load(sums + (g * rows + m) * kLanes);
      float* out = part.out + (first_row + m) * part.out_stride + n;
      if (lanes == kLanes) {
        Store(out, part.accumulate ? Add(Load(out), sum) : sum);
      } else {
        StoreFirst(out, part.accumulate ? Add(LoadFirst(out, lanes), sum) : sum, lanes);
      }
    }
  }
}

// How a MatMul divides: tasks are numbered part by part, row run by row run, group run by group run.
struct MatMulTasks {
  int32_t groups_per_task = 1;
  int32_t row_runs = 1;
  int64_t end_of_part[3] = {};
  int64_t count = 0;

  MatMulTasks(const MatMulArgs& args, int num_threads) {
    int64_t groups = 0;
    for (int32_t p = 0; p < args.num_parts; ++p) groups += args.parts[p].weight.num_groups();
    row_runs = (args.rows + kTaskRows - 1) / kTaskRows;
    const int64_t wanted = groups * row_runs / (int64_t{num_threads} * kTasksPerThread);
    groups_per_task = static_cast<int32_t>(
        wanted < kRowGroups ? kRowGroups : (wanted > kTaskGroups ? kTaskGroups : wanted));
    groups_per_task -= groups_per_task % kRowGroups;
    for (int32_t p = 0; p < args.num_parts; ++p) {
      count += int64_t{GroupRuns(args.parts[p])} * row_runs;
      end_of_part[p] = count;
    }
  }
  int32_t GroupRuns(const MatMulPart& part) const {
    return (part.weight.num_groups() + groups_per_task - 1) / groups_per_task;
  }
};

inline void MatMulTask(const MatMulArgs& args, const MatMulTasks& tasks, int64_t task) {
  int32_t p = 0;
  while (task >= tasks.end_of_part[p]) ++p;
  const MatMulPart& part = args.parts[p];
  const int64_t in_part = task - (p == 0 ? 0 : tasks.end_of_part[p - 1]);
  const int32_t runs = tasks.GroupRuns(part);
  const auto first_group = static_cast<int32_t>(in_part % runs) * tasks.groups_per_task;
  const int32_t groups_left = part.weight.num_groups() - first_group;
  const int32_t num_groups =
      groups_left < tasks.groups_per_task ? groups_left : tasks.groups_per_task;
  const std::byte* group =
      part.weight.data + first_group * PackedGroupBytes(part.weight.dtype, part.weight.cols);
  int64_t row = in_part / runs * kTaskRows;
  const int64_t end = args.rows - row < kTaskRows ? args.rows : row + kTaskRows;
  alignas(64) float sums[kTaskGroups * kTileRows * kLanes];
  while (row < end) {
    const int64_t rows = end - row < kTileRows ? end - row : kTileRows;
    TileFor(rows, part.weight, args.x)(part.weight, group, num_groups, args.x, row, sums);
    WriteTile(part, first_group, num_groups, row, rows, sums);
    row += rows;
  }
}

inline void MatMul(CpuTaskContext& context, const MatMulArgs& args) {
  const MatMulTasks tasks(args, context.num_threads);
  for (int64_t t; (t = context.NextTask(tasks.count)) >= 0;) MatMulTask(args, tasks, t);
}

}  // namespace tandem::TANDEM_ISA

#include "kernels/cpu/isa_end-inl.h"
