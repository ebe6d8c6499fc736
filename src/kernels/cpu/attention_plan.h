// What: how the rows of a batch divide into attention tasks, and where partial results lie in the
//   scratch memory.
// Not here: arithmetic (attention-inl.h).
// Threads: a plan belongs to one thread; threads that build one from the same arguments get the
//   same.
// Invariants: only rows of few tokens, in a batch of few tasks, are split along their positions;
//   their tokens are at most kSplitTokensPerThread * threads, which bounds the scratch memory.
// Cost: one pass over the rows; tasks and tokens must be asked for in ascending order.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tandem {

// Query rows (token times head) of one task: their scores over a split take 32 KiB.
inline constexpr int32_t kQueryRows = 16;
inline constexpr int32_t kSplitTokensPerThread = 4;
// Max and sum before a partial output; keeps the output on a cache line.
inline constexpr int32_t kPartialHeader = 16;

struct AttentionTask {
  const BatchRow* row = nullptr;
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t first_position = 0;
  int32_t kv_head = 0;
  int32_t first_head = 0;
  int32_t num_heads = 0;
  int32_t num_splits = 1;  // > 1: only `split` is reduced, to partials
  int32_t split = 0;
  int64_t first_partial = 0;  // of the first token; a token has num_splits of them
};

class AttentionPlan {
 public:
  struct TokenSplits {
    int64_t first_partial = -1;  // -1: the token's result is finished
    int32_t count = 0;
  };

  AttentionPlan(const AttentionArgs& args, int num_threads);
  int64_t num_tasks() const { return num_tasks_; }
  bool splits_any() const { return splits_any_; }
  // Requires `task` not below the last one.
  AttentionTask Task(int64_t task);
  // Requires `token` not below the last one.
  TokenSplits SplitsOf(int32_t token);

 private:
  // What the cursor knows of a row.
  struct RowWork {
    int32_t index = 0;
    int64_t first_task = 0;
    int64_t num_tasks = 0;
    int32_t num_splits = 1;
    int64_t first_partial = 0;
    int32_t split_tokens = 0;  // of this row and those before it
  };
  RowWork WorkOf(int32_t row, const RowWork* before) const;
  int64_t TilesOf(const BatchRow& row) const;
  void Seek(int32_t row);

  const AttentionArgs& args_;
  int32_t heads_per_kv_ = 1;
  int32_t heads_per_tile_ = 1;  // a KV head with many query heads is several tiles
  int32_t tiles_per_kv_ = 1;
  int32_t tokens_per_tile_ = 1;
  int32_t split_tokens_max_ = 0;  // 0: tasks are many, nothing is split
  int64_t num_tasks_ = 0;
  bool splits_any_ = false;
  RowWork work_;
};

// Where the f32 result of a head is finished: in the output, or in scratch when only 8-bit codes
// are wanted.
inline float* FinishedHead(const AttentionArgs& args, int32_t token, int32_t head) {
  float* base = args.out.f32 != nullptr ? args.out.f32 : args.scratch;
  return base + (int64_t{token} * args.num_heads + head) * args.head_dim;
}
// Floats of one partial result.
inline int64_t PartialFloats(int32_t head_dim) {
  return kPartialHeader + (head_dim + kPartialHeader - 1) / kPartialHeader * kPartialHeader;
}
inline float* PartialOf(const AttentionArgs& args, int64_t partial, int32_t head) {
  return args.scratch + int64_t{args.batch.num_tokens} * args.num_heads * args.head_dim +
         (partial * args.num_heads + head) * PartialFloats(args.head_dim);
}

}  // namespace tandem
