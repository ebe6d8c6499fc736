// What: Attention: scores, softmax and weighted sums over paged state, split by split, and the
//   merge of splits.
// Not here: how stored values are read (stored_state-inl.h), writing them (rope-inl.h); which rows
//   exist (the batch).
// Threads: Attend's tasks write their tokens' and heads' results, MergeAttention's those of their
//   tokens.
// Invariants: as ref/ops_ref.h. How a row divides into tasks (by tiles of queries; by splits when
//   rows are few) never shows: every split is reduced on its own and splits are merged in order.
//   Positions beyond a query's own are never read into a result: a page may hold anything there.
#pragma once

#include <limits>

#include "base/check.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/stored_state-inl.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// Query rows whose sums are in registers at a time.
inline constexpr int kRegisterRows = 4;

// Queries of neighbouring tokens and heads that read the same KV head, and what is known of their
// results. Query row i is token i / heads and head i % heads of the tile.
struct QueryTile {
  int32_t rows;
  int32_t heads;
  int32_t first_position;                         // of the first token
  alignas(64) float q[kMaxHeadDim * kQueryRows];  // [dim][row], scaled
  alignas(64) float scores[kQueryRows * kAttentionSplit];
  alignas(64) float out[kQueryRows * kMaxHeadDim];
  float max[kQueryRows];
  float sum[kQueryRows];

  // Positions of split `split` that row i attends to.
  int32_t Count(int32_t i, int32_t split) const {
    const int32_t count = first_position + i / heads + 1 - split * kAttentionSplit;
    return count < 0 ? 0 : (count > kAttentionSplit ? kAttentionSplit : count);
  }
};

// ---------------------------------------------------------------- scores

// Scores of kVectors vectors of positions for kRows queries.
template <typename T, int kRows, int kVectors>
TANDEM_INLINE void ScoreVectors(const KeyVector<T>* vectors, int64_t step, const float* q,
                                int32_t dims, float* scores) {
  for (int32_t d = 0; d < dims;) {
    const int32_t begin = d;
    const int32_t end = kHasScales<T> && dims - d > kScaleDims ? d + kScaleDims : dims;
    Vf acc[kRows][kVectors];
    TANDEM_UNROLL
    for (int m = 0; m < kRows; ++m) {
      TANDEM_UNROLL
      for (int u = 0; u < kVectors; ++u) acc[m][u] = Zero();
    }
    for (; d < end; ++d) {
      Vf key[kVectors];
      TANDEM_UNROLL
      for (int u = 0; u < kVectors; ++u) key[u] = Load(vectors[u].keys + d * step);
      TANDEM_UNROLL
      for (int m = 0; m < kRows; ++m) {
        const Vf query = Set1(q[d * kQueryRows + m]);
        TANDEM_UNROLL
        for (int u = 0; u < kVectors; ++u) acc[m][u] = Fma(query, key[u], acc[m][u]);
      }
    }
    TANDEM_UNROLL
    for (int u = 0; u < kVectors; ++u) {
      TANDEM_UNROLL
      for (int m = 0; m < kRows; ++m) {
        float* const to = scores + m * kAttentionSplit + u * kLanes;
        if constexpr (kHasScales<T>) {
          const Vf scale = Load(vectors[u].scales + begin / kScaleDims * step);
          Store(to, Fma(acc[m][u], scale, begin == 0 ? Zero() : Load(to)));
        } else {
          Store(to, acc[m][u]);
        }
      }
    }
  }
}

template <typename T, int kVectors, int kRows = kRegisterRows>
inline void ScoreRows(int32_t rows, const KeyVector<T>* vectors, int64_t step, const float* q,
                      int32_t dims, float* scores) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return ScoreRows<T, kVectors, kRows - 1>(rows, vectors, step, q, dims, scores);
    }
  }
  ScoreVectors<T, kRows, kVectors>(vectors, step, q, dims, scores);
}

template <typename T, int kVectors>
inline void ScoreAllRows(const QueryTile& tile, const KeyVector<T>* vectors, int64_t step,
                         int32_t dims, float* scores) {
  for (int32_t i = 0; i < tile.rows; i += kRegisterRows) {
    const int32_t rows = tile.rows - i < kRegisterRows ? tile.rows - i : kRegisterRows;
    ScoreRows<T, kVectors>(rows, vectors, step, tile.q + i, dims, scores + i * kAttentionSplit);
  }
}

// Scores of the split's first `count` positions, for every query row, in vectors of 16.
template <typename T>
inline void Score(const HeadPages& pages, int32_t split, int32_t count, QueryTile* tile) {
  const int32_t begin = split * kAttentionSplit;
  int32_t p = 0;
  if (pages.per_block % kLanes == 0) {
    KeyVector<T> vectors[kAttentionSplit / kLanes];
    for (int32_t i = 0; i < count; i += kLanes) vectors[i / kLanes] = KeysAt<T>(pages, begin + i);
    for (; p + (kScoreVectors - 1) * kLanes < count; p += kScoreVectors * kLanes) {
      ScoreAllRows<T, kScoreVectors>(*tile, vectors + p / kLanes, pages.per_block, pages.dims,
                                     tile->scores + p);
    }
    for (; p < count; p += kLanes) {
      ScoreAllRows<T, 1>(*tile, vectors + p / kLanes, pages.per_block, pages.dims,
                         tile->scores + p);
    }
    return;
  }
  for (; p < count; p += kLanes) {
    const GatheredKeys<T> gathered(pages, begin + p, count - p < kLanes ? count - p : kLanes);
    const KeyVector<T> vector = gathered.vector();
    ScoreAllRows<T, 1>(*tile, &vector, kLanes, pages.dims, tile->scores + p);
  }
}

// Scores to exp(score - max), and their maximum and sum.
inline void Softmax(int32_t count, float* scores, float* max_out, float* sum_out) {
  const Vf lowest = Set1(-std::numeric_limits<float>::infinity());
  if (count % kLanes != 0) {
    float* last = scores + count / kLanes * kLanes;
    Store(last, FirstLanes(count % kLanes, Load(last), lowest));
  }
  Vf max = lowest;
  for (int32_t p = 0; p < count; p += kLanes) max = Max(Load(scores + p), max);
  *max_out = ReduceMax(max);
  const Vf shift = Set1(*max_out);
  Vf sum = Zero();
  for (int32_t p = 0; p < count; p += kLanes) {
    const Vf weight = Exp(Sub(Load(scores + p), shift));
    Store(scores + p, weight);
    sum = Add(sum, weight);
  }
  *sum_out = ReduceAdd(sum);
}

// ---------------------------------------------------------------- weighted sums

// acc += weight * value, of one position. The weight of the next row is kRowStep floats on, that of
// the next run of dimensions kRunStep.
template <int kRowStep, int kRunStep, typename T, int kRows, int kVectors>
TANDEM_INLINE void AddWeighted(const T* value, int lanes, const float* weights,
                               Vf (&acc)[kRows][kVectors]) {
  Vf v[kVectors];
  TANDEM_UNROLL
  for (int u = 0; u < kVectors; ++u) v[u] = LoadLanes(value + u * kLanes, lanes);
  TANDEM_UNROLL
  for (int m = 0; m < kRows; ++m) {
    TANDEM_UNROLL
    for (int u = 0; u < kVectors; ++u) {
      const Vf weight = Set1(weights[m * kRowStep + u * kLanes / kScaleDims * kRunStep]);
      acc[m][u] = Fma(weight, v[u], acc[m][u]);
    }
  }
}

// dims [0, kVectors * 16) from `dim` on (fewer when `lanes` < 16 and kVectors is 1) of kRows query
// rows: over the positions that all rows attend to together, then the rest row by row.
template <typename T, int kRows, int kVectors>
inline void WeighVectors(const HeadPages& pages, int32_t begin, const int32_t* counts, int32_t dim,
                         int lanes, const float* weights, float* out) {
  Vf acc[kRows][kVectors];
  TANDEM_UNROLL
  for (int m = 0; m < kRows; ++m) {
    TANDEM_UNROLL
    for (int u = 0; u < kVectors; ++u) acc[m][u] = Zero();
  }
  const int32_t common = counts[0];  // the earliest token's
  for (int32_t p = 0; p < common;) {
    const T* value = pages.Values<T>(begin + p) + dim;
    const int32_t in_block = pages.per_block - (begin + p) % pages.per_block;
    int32_t end = common - p < in_block ? common : p + in_block;
    if constexpr (kHasScales<T>) {
      constexpr int kRuns = (kVectors * kLanes + kScaleDims - 1) / kScaleDims;
      if (end - p > kLanes) end = p + kLanes;
      const ScaledWeights<kRows, kRuns> scaled(pages, begin + p, end - p, dim, weights + p);
      for (int i = 0; p < end; ++p, ++i, value += pages.dims) {
        AddWeighted<kLanes, kRows * kLanes>(value, lanes, &scaled.of[0][0][i], acc);
      }
    } else {
      for (; p < end; ++p, value += pages.dims) {
        AddWeighted<kAttentionSplit, 0>(value, lanes, weights + p, acc);
      }
    }
  }
  TANDEM_UNROLL
  for (int m = 0; m < kRows; ++m) {
    for (int32_t p = common; p < counts[m]; ++p) {
      const T* value = pages.Values<T>(begin + p) + dim;
      TANDEM_UNROLL
      for (int u = 0; u < kVectors; ++u) {
        Vf weight = Set1(weights[m * kAttentionSplit + p]);
        if constexpr (kHasScales<T>) {
          const int32_t run = (dim + u * kLanes) / kScaleDims;
          weight = Mul(weight, Set1Half(pages.ValueScales(begin + p)[run * pages.per_block]));
        }
        acc[m][u] = Fma(weight, LoadLanes(value + u * kLanes, lanes), acc[m][u]);
      }
    }
    TANDEM_UNROLL
    for (int u = 0; u < kVectors; ++u) Store(out + m * kMaxHeadDim + dim + u * kLanes, acc[m][u]);
  }
}

template <typename T, int kVectors, int kRows = kRegisterRows>
inline void WeighRows(int32_t rows, const HeadPages& pages, int32_t begin, const int32_t* counts,
                      int32_t dim, int lanes, const float* weights, float* out) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return WeighRows<T, kVectors, kRows - 1>(rows, pages, begin, counts, dim, lanes, weights,
                                               out);
    }
  }
  WeighVectors<T, kRows, kVectors>(pages, begin, counts, dim, lanes, weights, out);
}

template <typename T>
inline void Weigh(const HeadPages& pages, int32_t split, const QueryTile& tile, float* out) {
  const int32_t begin = split * kAttentionSplit;
  for (int32_t i = 0; i < tile.rows; i += kRegisterRows) {
    const int32_t rows = tile.rows - i < kRegisterRows ? tile.rows - i : kRegisterRows;
    int32_t counts[kRegisterRows];
    for (int32_t m = 0; m < rows; ++m) counts[m] = tile.Count(i + m, split);
    const float* weights = tile.scores + i * kAttentionSplit;
    float* const to = out + i * kMaxHeadDim;
    int32_t dim = 0;
    for (; dim + kValueVectors * kLanes <= pages.dims; dim += kValueVectors * kLanes) {
      WeighRows<T, kValueVectors>(rows, pages, begin, counts, dim, kLanes, weights, to);
    }
    for (; dim < pages.dims; dim += kLanes) {
      const int lanes = pages.dims - dim < kLanes ? pages.dims - dim : kLanes;
      WeighRows<T, 1>(rows, pages, begin, counts, dim, lanes, weights, to);
    }
  }
}

// ---------------------------------------------------------------- splits

template <typename T>
inline void ReduceSplitOf(const HeadPages& pages, int32_t split, QueryTile* tile, float* max,
                          float* sum, float* out) {
  Score<T>(pages, split, tile->Count(tile->rows - 1, split), tile);
  for (int32_t i = 0; i < tile->rows; ++i) {
    const int32_t count = tile->Count(i, split);
    if (count > 0) Softmax(count, tile->scores + i * kAttentionSplit, max + i, sum + i);
  }
  Weigh<T>(pages, split, *tile, out);
}

// Reduces one split for all rows of the tile: max, sum and out of rows that attend to any of its
// positions.
inline void ReduceSplit(const AttentionArgs& args, const HeadPages& pages, int32_t split,
                        QueryTile* tile, float* max, float* sum, float* out) {
  switch (args.state.group->planes[0].dtype) {
    case DType::kF32: return ReduceSplitOf<float>(pages, split, tile, max, sum, out);
    case DType::kF16: return ReduceSplitOf<uint16_t>(pages, split, tile, max, sum, out);
    case DType::kBF16: return ReduceSplitOf<BFloat16>(pages, split, tile, max, sum, out);
    default: return ReduceSplitOf<int8_t>(pages, split, tile, max, sum, out);
  }
}

TANDEM_INLINE float ExpOf(float x) {
  float all[kLanes];
  Store(all, Exp(Set1(x)));
  return all[0];
}

// The next split joins the earlier ones. `dims` values; both arrays may be read and written up to
// the next multiple of 16.
inline void MergeSplit(float max, float sum, const float* out, int32_t dims, float* max_so_far,
                       float* sum_so_far, float* out_so_far) {
  const float top = max > *max_so_far ? max : *max_so_far;
  const float keep = ExpOf(*max_so_far - top);
  const float join = ExpOf(max - top);
  *max_so_far = top;
  const float kept_sum = *sum_so_far * keep;
  *sum_so_far = __builtin_fmaf(sum, join, kept_sum);
  for (int32_t d = 0; d < dims; d += kLanes) {
    const Vf kept = Mul(Load(out_so_far + d), Set1(keep));
    Store(out_so_far + d, Fma(Load(out + d), Set1(join), kept));
  }
}

inline void WriteHead(const float* out, float sum, int32_t dims, float* to) {
  const Vf scale = Set1(1.0f / sum);
  int32_t d = 0;
  for (; d + kLanes <= dims; d += kLanes) Store(to + d, Mul(Load(out + d), scale));
  if (d < dims) StoreFirst(to + d, Mul(Load(out + d), scale), dims - d);
}

// ---------------------------------------------------------------- tasks

inline void LoadQueries(const AttentionArgs& args, const AttentionTask& task, QueryTile* tile) {
  tile->rows = task.num_tokens * task.num_heads;
  tile->heads = task.num_heads;
  tile->first_position = task.first_position;
  for (int32_t i = 0; i < tile->rows; ++i) {
    const float* q = args.q + int64_t{task.first_token + i / task.num_heads} * args.q_stride +
                     int64_t{task.first_head + i % task.num_heads} * args.head_dim;
    for (int32_t d = 0; d < args.head_dim; ++d) tile->q[d * kQueryRows + i] = q[d] * args.scale;
  }
}

// All splits of the task's rows, one after the other, to the finished output.
inline void AttendAllSplits(const AttentionArgs& args, const AttentionTask& task,
                            const HeadPages& pages, QueryTile* tile) {
  alignas(64) float next_out[kQueryRows * kMaxHeadDim];
  float next_max[kQueryRows], next_sum[kQueryRows];
  const int32_t last = task.first_position + task.num_tokens - 1;
  ReduceSplit(args, pages, 0, tile, tile->max, tile->sum, tile->out);
  for (int32_t split = 1; split <= last / kAttentionSplit; ++split) {
    ReduceSplit(args, pages, split, tile, next_max, next_sum, next_out);
    for (int32_t i = 0; i < tile->rows; ++i) {
      if (tile->Count(i, split) == 0) continue;
      MergeSplit(next_max[i], next_sum[i], next_out + i * kMaxHeadDim, args.head_dim, tile->max + i,
                 tile->sum + i, tile->out + i * kMaxHeadDim);
    }
  }
  for (int32_t i = 0; i < tile->rows; ++i) {
    WriteHead(
        tile->out + i * kMaxHeadDim, tile->sum[i], args.head_dim,
        FinishedHead(args, task.first_token + i / tile->heads, task.first_head + i % tile->heads));
  }
}

// One split of the task's rows, to the scratch memory.
inline void AttendOneSplit(const AttentionArgs& args, const AttentionTask& task,
                           const HeadPages& pages, QueryTile* tile) {
  ReduceSplit(args, pages, task.split, tile, tile->max, tile->sum, tile->out);
  for (int32_t i = 0; i < tile->rows; ++i) {
    if (tile->Count(i, task.split) == 0) continue;
    float* partial =
        PartialOf(args, task.first_partial + (i / tile->heads) * task.num_splits + task.split,
                  task.first_head + i % tile->heads);
    partial[0] = tile->max[i];
    partial[1] = tile->sum[i];
    float* to = partial + kPartialHeader;
    for (int32_t d = 0; d < args.head_dim; d += kLanes) {
      Store(to + d, Load(tile->out + i * kMaxHeadDim + d));
    }
  }
}

inline void Attend(CpuTaskContext& context, const AttentionArgs& args) {
  AttentionPlan plan(args, context.num_threads);
  QueryTile tile;
  for (int64_t t; (t = context.NextTask(plan.num_tasks())) >= 0;) {
    const AttentionTask task = plan.Task(t);
    const HeadPages pages = PagesOf(args, *task.row, task.kv_head);
    LoadQueries(args, task, &tile);
    if (task.num_splits > 1) {
      AttendOneSplit(args, task, pages, &tile);
    } else {
      AttendAllSplits(args, task, pages, &tile);
    }
  }
}

inline void MergeHead(const AttentionArgs& args, int32_t token, int32_t head, int64_t partial,
                      int32_t num_splits) {
  alignas(64) float out[kMaxHeadDim];
  const float* first = PartialOf(args, partial, head);
  float max = first[0], sum = first[1];
  for (int32_t d = 0; d < args.head_dim; d += kLanes) {
    Store(out + d, Load(first + kPartialHeader + d));
  }
  for (int32_t split = 1; split < num_splits; ++split) {
    const float* next = PartialOf(args, partial + split, head);
    MergeSplit(next[0], next[1], next + kPartialHeader, args.head_dim, &max, &sum, out);
  }
  WriteHead(out, sum, args.head_dim, FinishedHead(args, token, head));
}

// Gives a finished token its 8-bit form.
inline void EmitToken(const AttentionArgs& args, int32_t token) {
  const float* x = FinishedHead(args, token, 0);
  const int32_t cols = args.out.cols;
  const int32_t run = numerics::RunColumns(cols, kActivationBlock);
  for (int32_t begin = 0; begin < cols; begin += run) {
    EmitRun(args.out, token, begin, cols - begin < run ? cols - begin : run, x + begin);
  }
}

inline void MergeAttention(CpuTaskContext& context, const AttentionArgs& args) {
  constexpr int32_t kTokens = 8;
  AttentionPlan plan(args, context.num_threads);
  const int32_t tokens = plan.splits_any() || args.out.has_q8() ? args.batch.num_tokens : 0;
  for (int64_t t; (t = context.NextTask((tokens + kTokens - 1) / kTokens)) >= 0;) {
    const auto begin = static_cast<int32_t>(t) * kTokens;
    const int32_t end = tokens - begin < kTokens ? tokens : begin + kTokens;
    for (int32_t token = begin; token < end; ++token) {
      const AttentionPlan::TokenSplits splits = plan.SplitsOf(token);
      if (splits.first_partial >= 0) {
        for (int32_t h = 0; h < args.num_heads; ++h) {
          MergeHead(args, token, h, splits.first_partial, splits.count);
        }
      }
      if (args.out.has_q8()) EmitToken(args, token);
    }
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
