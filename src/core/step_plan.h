// What: StepPlan and StepResult: a scheduling iteration as a value. A plan is a flat delta against
//   the tables that an executor keeps (slots, their tokens and block tables); a result says what
//   happened.
// Not here: who decides (sched/), who runs (exec/, the simulator).
// Threads: values.
// Invariants: plans are executed in step order, each once. A slot is joined before its first row
//   and leaves after its last. Rows are in the order of the batch; each slot has at most one row
//   per plan.
// Based on: iteration-level scheduling (Orca, OSDI'22); deltas as in persistent-batch executors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/sampling_params.h"

namespace tandem {

// A sequence takes an empty slot. Its block tables start empty.
struct SlotJoin {
  SlotId slot;
  RequestId request;
  uint32_t sample_index = 0;  // tells the samples of one request apart
  SamplingParams sampling;
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> stop_tokens;  // given only with sampling.min_tokens > 0
  int32_t prompt_tokens = 0;         // of the known tokens, those that are not outputs
  // Positions whose state the blocks of this slot hold already; they are run by no row. Their
  // tokens are plan.tokens[restored_begin, + num_restored).
  int32_t restored_begin = 0;
  int32_t num_restored = 0;
};

// One physical block enters a slot's table of one state group: behind its last entry, or as entry
// `entry`, which may be held already (the block was shared and has been copied) or lie further back
// (a window that is restored in the middle of a sequence).
struct BlockAppend {
  SlotId slot;
  GroupId group;
  BlockId block;
  int32_t entry = -1;  // -1: behind the last
};

// Before any row runs, the content of `from` is copied to `to` (copy-on-write).
struct BlockCopy {
  GroupId group;
  BlockId from;
  BlockId to;
};

// The tokens of one sequence that this step runs, at positions [position, position + num_tokens).
struct PlanRow {
  SlotId slot;
  int32_t position = 0;
  int32_t num_tokens = 0;
  // Known tokens: plan.tokens[tokens_begin, + num_tokens). Otherwise (tokens_begin < 0) num_tokens
  // is 1 and the token is the output of row `from_row` of step `from_step`, which need not be
  // finished yet.
  int32_t tokens_begin = 0;
  StepId from_step;
  int32_t from_row = 0;
  bool sample = false;        // choose a token after the last position
  int32_t return_logits = 0;  // logits of this many last positions come back in the result
  // The log probability of the known token behind each of this many positions comes back: the last
  // ones of the row, or with `sample` the last ones before the one that is sampled. Without
  // `sample` the token behind the row is `next_token`. Not together with return_logits, and only
  // for slots whose sampling wants log probabilities.
  int32_t score = 0;
  TokenId next_token;

  bool token_is_output() const { return tokens_begin < 0; }
  // Positions of this row whose logits must be computed.
  int32_t num_logits() const { return std::max(return_logits, score + (sample ? 1 : 0)); }
};

struct StepPlan {
  StepId step;
  std::vector<SlotId>
      leaves;  // taken out before the joins: a slot may leave and be joined in one plan
  std::vector<SlotJoin> joins;
  std::vector<BlockAppend> appends;
  std::vector<BlockCopy> copies;
  std::vector<PlanRow> rows;
  std::vector<TokenId> tokens;

  int32_t NumTokens() const;
  void Clear();
  // One line per entry, for traces and logs: "step 3", "join slot=0 request=7", "row slot=0 pos=0
  // n=16 ...".
  std::string ToText() const;
};

struct StepResult {
  struct Row {
    SlotId slot;
    bool sampled = false;
    TokenId token;  // when sampled
    // Positions with log probabilities: PlanRow::score known tokens, then the sampled one if its
    // slot wants them. Each has 1 + top_logprobs entries: the token itself, then the likeliest
    // tokens in falling order.
    int32_t logprobs_begin = 0;  // into StepResult::logprobs
    int32_t num_logprobs = 0;    // entries, not positions
  };
  StepId step;
  Status status;       // not ok: no row of this step has a result
  TimeNs started = 0;  // on the device's time line
  TimeNs finished = 0;
  std::vector<Row> rows;      // as the plan's rows
  std::vector<float> logits;  // [sum of return_logits, vocab_size], in row order
  std::vector<TokenLogprob> logprobs;
};

}  // namespace tandem
