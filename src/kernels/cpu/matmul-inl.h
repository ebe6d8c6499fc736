// What: MatMul: products of activation rows with packed weights, divided into tasks.
// Not here: the products themselves (matmul_dot-inl.h, matmul_wide-inl.h, matmul_float-inl.h),
//   packing (packed_matrix.h), the choice of numerics (the caller, by the forms of x).
// Threads: a task is a run of groups of one part times a run of activation rows.
// Invariants: how a MatMul divides never shows in its values: as ref/ops_ref.h.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/matmul_dot-inl.h"
#include "kernels/cpu/matmul_float-inl.h"
#include "kernels/cpu/matmul_wide-inl.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// Groups of one task at most: what is prepared of the activations is used this often.
inline constexpr int32_t kTaskGroups = 16;
// Activation rows of one task.
inline constexpr int32_t kTaskRows = kWideTiles * kWideRows;
// Fewer rows: unpacking codes to memory does not pay.
inline constexpr int32_t kWideRowsMin = 24;
// Tasks per thread that balance asks for.
inline constexpr int32_t kTasksPerThread = 6;

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

// How a MatMul divides: tasks are numbered part by part, row run by row run, group run by group
// run.
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

// The part of a MatMul that one task computes.
struct MatMulPiece {
  const MatMulPart* part;
  const std::byte* group;  // the first of num_groups
  int32_t first_group;
  int32_t num_groups;
  int64_t row;
  int64_t end;
};

// As many rows as fill wide tiles; returns the first row that is left.
template <typename Codec>
inline int64_t WideRows(const MatMulPiece& piece, const Activation& x) {
  const int64_t tiles = (piece.end - piece.row) / kWideRows;
  alignas(64) float sums[kTaskGroups * kWideTiles * kWideRows * kLanes];
  DotWide<Codec>(piece.part->weight, piece.group, piece.num_groups, x, piece.row, tiles, sums);
  WriteTile(*piece.part, piece.first_group, piece.num_groups, piece.row, tiles * kWideRows, sums);
  return piece.row + tiles * kWideRows;
}

inline int64_t WideRows(const MatMulPiece& piece, const Activation& x) {
  if (x.has_q8() && piece.end - piece.row >= kWideRowsMin) {
    switch (piece.part->weight.dtype) {
      case DType::kQ4_0:
        return WideRows<CodecQ4_0>(piece, x);
      case DType::kQ4_1:
        return WideRows<CodecQ4_1>(piece, x);
      case DType::kQ8_0:
        return WideRows<CodecQ8_0>(piece, x);
      default:
        break;
    }
  }
  return piece.row;
}

inline void MatMulTask(const MatMulArgs& args, const MatMulTasks& tasks, int64_t task) {
  int32_t p = 0;
  while (task >= tasks.end_of_part[p]) ++p;
  const MatMulPart& part = args.parts[p];
  const int64_t in_part = task - (p == 0 ? 0 : tasks.end_of_part[p - 1]);
  const int32_t runs = tasks.GroupRuns(part);
  MatMulPiece piece;
  piece.part = &part;
  piece.first_group = static_cast<int32_t>(in_part % runs) * tasks.groups_per_task;
  const int32_t groups_left = part.weight.num_groups() - piece.first_group;
  piece.num_groups = groups_left < tasks.groups_per_task ? groups_left : tasks.groups_per_task;
  piece.group =
      part.weight.data + piece.first_group * PackedGroupBytes(part.weight.dtype, part.weight.cols);
  piece.row = in_part / runs * kTaskRows;
  piece.end = args.rows - piece.row < kTaskRows ? args.rows : piece.row + kTaskRows;

  int64_t row = WideRows(piece, args.x);
  alignas(64) float sums[kTaskGroups * kTileRows * kLanes];
  while (row < piece.end) {
    const int64_t rows = piece.end - row < kTileRows ? piece.end - row : kTileRows;
    TileFor(rows, part.weight, args.x)(part.weight, piece.group, piece.num_groups, args.x, row,
                                       sums);
    WriteTile(part, piece.first_group, piece.num_groups, row, rows, sums);
    row += rows;
  }
}

inline void MatMul(CpuTaskContext& context, const MatMulArgs& args) {
  const MatMulTasks tasks(args, context.num_threads);
  for (int64_t t; (t = context.NextTask(tasks.count)) >= 0;) MatMulTask(args, tasks, t);
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
