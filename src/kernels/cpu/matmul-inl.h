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

// Groups whose sums one pass keeps: what is prepared of the activations is used this often.
inline constexpr int32_t kPassGroups = 16;
// Groups of one task at most: some ten microseconds of reading for one row.
inline constexpr int32_t kTaskGroups = 4 * kPassGroups;
// Activation rows of one task at most.
inline constexpr int32_t kTaskRows = kWideTiles * kWideRows;
// Fewer rows: unpacking codes to memory does not pay.
inline constexpr int32_t kWideRowsMin = 24;

using TileFunction = void (*)(const PackedMatrix& w, const std::byte* group, int32_t num_groups,
                              const Activation& x, int64_t first_row, float* sums);

template <int kRows>
struct TileChoice {
  TileFunction* tile;
  template <typename C>
  void Run() const {
    *tile = DotTile<C, kRows>;
  }
};
template <int kRows>
inline TileFunction TileOf(const PackedMatrix& w, const Activation& x) {
  TileFunction tile = FloatTile<kRows>;
  if (x.has_q8()) WithCodec(w.dtype, TileChoice<kRows>{&tile});
  return tile;
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

// How a MatMul divides. The groups of all parts, one part after the other, are cut into runs, long
// ones first: a thread streams through most of its share at once, and the short runs at the end let
// threads finish together. Tasks are run by run, rows of a run kTaskRows at a time.
class MatMulTasks {
 public:
  MatMulTasks(const MatMulArgs& args, int num_threads) : num_threads_(num_threads) {
    for (int32_t p = 0; p < args.num_parts; ++p) groups_ += args.parts[p].weight.num_groups();
    row_runs_ = (args.rows + kTaskRows - 1) / kTaskRows;
    longest_ = args.rows <= kTileRows ? kTaskGroups : kPassGroups;
    for (int64_t g = 0; g < groups_; g += RunAt(g)) ++runs_;
  }
  int64_t count() const { return runs_ * row_runs_; }

  struct Piece {
    int64_t first_group, end_group;  // over all parts
    int64_t first_row;
  };
  // Requires `task` not below the last one.
  Piece Task(int64_t task) {
    while (run_ < task / row_runs_) {
      group_ += RunAt(group_);
      ++run_;
    }
    return {group_, group_ + RunAt(group_), task % row_runs_ * kTaskRows};
  }

 private:
  // Length of the run that begins at `group`: three quarters of a thread's share of the rest.
  int64_t RunAt(int64_t group) const {
    const int64_t rest = groups_ - group;
    int64_t run = rest * 3 / (4 * num_threads_);
    run -= run % kRowGroups;
    if (run > longest_) run = longest_;
    if (run < kRowGroups) run = kRowGroups;
    return run < rest ? run : rest;
  }

  const int num_threads_;
  int64_t groups_ = 0;
  int64_t row_runs_ = 0;
  int64_t longest_ = 0;
  int64_t runs_ = 0;
  int64_t run_ = 0;  // the cursor
  int64_t group_ = 0;
};

// Some groups of one part times some rows.
struct MatMulPiece {
  const MatMulPart* part;
  const std::byte* group;  // the first of num_groups
  int32_t first_group;
  int32_t num_groups;
  int64_t row;
  int64_t end;
};

// As many rows as fill wide tiles; `done` gets the first row that is left.
struct WideRunner {
  const MatMulPiece& piece;
  const Activation& x;
  int64_t* done;
  template <typename C>
  void Run() const {
    const int64_t tiles = (piece.end - piece.row) / kWideRows;
    alignas(64) float sums[kPassGroups * kWideTiles * kWideRows * kLanes];
    DotWide<C>(piece.part->weight, piece.group, piece.num_groups, x, piece.row, tiles, sums);
    WriteTile(*piece.part, piece.first_group, piece.num_groups, piece.row, tiles * kWideRows, sums);
    *done = piece.row + tiles * kWideRows;
  }
};

inline int64_t WideRows(const MatMulPiece& piece, const Activation& x) {
  int64_t done = piece.row;
  if (x.has_q8() && piece.end - piece.row >= kWideRowsMin) {
    WithCodec(piece.part->weight.dtype, WideRunner{piece, x, &done});
  }
  return done;
}

inline void MatMulPass(const MatMulPiece& piece, const Activation& x) {
  const PackedMatrix& weight = piece.part->weight;
  int64_t row = WideRows(piece, x);
  alignas(64) float sums[kPassGroups * kTileRows * kLanes];
  while (row < piece.end) {
    const int64_t rows = piece.end - row < kTileRows ? piece.end - row : kTileRows;
    TileFor(rows, weight, x)(weight, piece.group, piece.num_groups, x, row, sums);
    WriteTile(*piece.part, piece.first_group, piece.num_groups, row, rows, sums);
    row += rows;
  }
}

inline void MatMulTask(const MatMulArgs& args, const MatMulTasks::Piece& task) {
  int64_t part_begin = 0;  // in groups over all parts
  for (int32_t p = 0; p < args.num_parts; ++p) {
    const MatMulPart& part = args.parts[p];
    const int64_t part_end = part_begin + part.weight.num_groups();
    const int64_t group_bytes = PackedGroupBytes(part.weight.dtype, part.weight.cols);
    int64_t group = task.first_group < part_begin ? part_begin : task.first_group;
    const int64_t end = task.end_group < part_end ? task.end_group : part_end;
    while (group < end) {
      MatMulPiece piece;
      piece.part = &part;
      piece.first_group = static_cast<int32_t>(group - part_begin);
      piece.num_groups =
          static_cast<int32_t>(end - group < kPassGroups ? end - group : kPassGroups);
      piece.group = part.weight.data + piece.first_group * group_bytes;
      piece.row = task.first_row;
      piece.end = args.rows - piece.row < kTaskRows ? args.rows : piece.row + kTaskRows;
      MatMulPass(piece, args.x);
      group += piece.num_groups;
    }
    part_begin = part_end;
  }
}

inline void MatMul(CpuTaskContext& context, const MatMulArgs& args) {
  MatMulTasks tasks(args, context.num_threads);
  for (int64_t t; (t = context.NextTask(tasks.count())) >= 0;) MatMulTask(args, tasks.Task(t));
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
