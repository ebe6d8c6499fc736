#include "kernels/cpu/attention_plan.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

// Fewer tasks per thread than this: splitting rows along their positions pays.
constexpr int64_t kTasksPerThread = 4;

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

AttentionPlan::AttentionPlan(const AttentionArgs& args, int num_threads) : args_(args) {
  heads_per_kv_ = args.num_heads / args.num_kv_heads;
  tiles_per_kv_ = CeilDiv(heads_per_kv_, kQueryRows);
  heads_per_tile_ = CeilDiv(heads_per_kv_, tiles_per_kv_);
  tokens_per_tile_ = std::max(kQueryRows / heads_per_tile_, 1);
  int64_t unsplit = 0;
  for (int32_t r = 0; r < args.batch.num_rows; ++r) unsplit += TilesOf(args.batch.rows[r]);
  if (unsplit < kTasksPerThread * num_threads) {
    split_tokens_max_ = kSplitTokensPerThread * num_threads;
  }
  if (args.batch.num_rows == 0) return;
  work_ = WorkOf(0, nullptr);
  RowWork last = work_;
  splits_any_ = last.num_splits > 1;
  for (int32_t r = 1; r < args.batch.num_rows; ++r) {
    last = WorkOf(r, &last);
    splits_any_ = splits_any_ || last.num_splits > 1;
  }
  num_tasks_ = last.first_task + last.num_tasks;
}

int64_t AttentionPlan::TilesOf(const BatchRow& row) const {
  return int64_t{CeilDiv(row.num_tokens, tokens_per_tile_)} * args_.num_kv_heads * tiles_per_kv_;
}

AttentionPlan::RowWork AttentionPlan::WorkOf(int32_t row, const RowWork* before) const {
  const BatchRow& r = args_.batch.rows[row];
  RowWork work;
  work.index = row;
  if (before != nullptr) {
    work.first_task = before->first_task + before->num_tasks;
    work.split_tokens = before->split_tokens;
    work.first_partial = before->first_partial;
    if (before->num_splits > 1) {
      work.first_partial +=
          int64_t{args_.batch.rows[before->index].num_tokens} * before->num_splits;
    }
  }
  if (work.split_tokens + r.num_tokens <= split_tokens_max_) {
    work.num_splits = CeilDiv(r.position + r.num_tokens, kAttentionSplit);
    if (work.num_splits > 1) work.split_tokens += r.num_tokens;
  }
  work.num_tasks = TilesOf(r) * work.num_splits;
  return work;
}

void AttentionPlan::Seek(int32_t row) {
  TANDEM_CHECK_GE(row, work_.index);
  while (work_.index < row) work_ = WorkOf(work_.index + 1, &work_);
}

AttentionTask AttentionPlan::Task(int64_t task) {
  TANDEM_CHECK(task >= work_.first_task && task < num_tasks_);
  while (task >= work_.first_task + work_.num_tasks) Seek(work_.index + 1);
  const BatchRow& row = args_.batch.rows[work_.index];
  int64_t rest = task - work_.first_task;
  AttentionTask out;
  out.row = &row;
  out.num_splits = work_.num_splits;
  out.split = static_cast<int32_t>(rest % work_.num_splits);
  rest /= work_.num_splits;
  const auto head_tile = static_cast<int32_t>(rest % tiles_per_kv_);
  rest /= tiles_per_kv_;
  out.kv_head = static_cast<int32_t>(rest % args_.num_kv_heads);
  rest /= args_.num_kv_heads;
  // The last tokens read most: they go first, so that the team ends together.
  const int32_t tile = CeilDiv(row.num_tokens, tokens_per_tile_) - 1 - static_cast<int32_t>(rest);
  const int32_t token = tile * tokens_per_tile_;
  out.first_token = row.first_token + token;
  out.num_tokens = std::min(tokens_per_tile_, row.num_tokens - token);
  out.first_position = row.position + token;
  const int32_t head = head_tile * heads_per_tile_;
  out.first_head = out.kv_head * heads_per_kv_ + head;
  out.num_heads = std::min(heads_per_tile_, heads_per_kv_ - head);
  out.first_partial = work_.first_partial + int64_t{token} * work_.num_splits;
  return out;
}

AttentionPlan::TokenSplits AttentionPlan::SplitsOf(int32_t token) {
  Seek(args_.batch.row_of_token[token]);
  if (work_.num_splits == 1) return {};
  const BatchRow& row = args_.batch.rows[work_.index];
  const int32_t in_row = token - row.first_token;
  return {work_.first_partial + int64_t{in_row} * work_.num_splits,
          (row.position + in_row) / kAttentionSplit + 1};
}

int64_t AttentionScratchFloats(int32_t max_tokens, int32_t max_context, int32_t num_heads,
                               int32_t head_dim, int32_t num_threads) {
  const int64_t split_tokens = std::min(max_tokens, kSplitTokensPerThread * num_threads);
  const int64_t splits = CeilDiv(max_context, kAttentionSplit);
  return int64_t{max_tokens} * num_heads * head_dim +
         split_tokens * splits * num_heads * PartialFloats(head_dim);
}

}  // namespace tandem
