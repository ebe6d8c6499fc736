// What: StepInputs: a plan turned into what the device reads. A step is run in passes of bounded
//   size; a pass is cut into slabs, which take turns in each layer (model/model.h), and its rows of
//   logits into chunks, which take turns in the output projection, log probabilities and sampling.
//   Each pass has one packed array of int32 (positions, rows, block tables, ...) that a rank copies
//   to the device at once.
// Not here: device pointers (rank.cc adds a pass's offsets to its own base).
// Threads: built on the engine's thread, then read-only until its step has finished.
// Invariants: a pass has at most max_pass_tokens tokens, a slab max_tokens, a chunk max_logits rows
//   of logits. Rows keep their order; a row may be cut at any of these borders (which changes no
//   number: kernels/ops.h). Log probabilities and returned logits are in row order over all chunks.
// Cost: building allocates nothing once the arrays have grown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "exec/slot_table.h"
#include "kernels/ops.h"
#include "sampling/logprobs.h"
#include "sampling/sampling.h"

namespace tandem {

struct SlabLimits {
  int32_t max_tokens = 256;
  int32_t max_logits = 32;
  // The residual stream of so many tokens is kept. A step of at most this size has each layer
  // complete before the next one begins; a larger one runs in several passes.
  int32_t max_pass_tokens = 512;
};

// Entries [begin, begin + count) of an array.
struct IndexRange {
  int32_t begin = 0;
  int32_t count = 0;
};

// A run of a sequence's tokens that later choices must know: entries of the token table go to the
// slot's history.
struct HistoryWrite {
  int32_t slot = 0;
  int32_t position = 0;
  int32_t token_index = 0;
  int32_t num_tokens = 0;
};

struct Pass {
  struct Slab {
    IndexRange tokens;  // of the pass
    IndexRange rows;
  };
  struct Chunk {
    IndexRange logits;            // of logit_tokens; everything below counts its rows from here
    IndexRange returned;          // of return_rows
    IndexRange samples;           // of samples
    IndexRange biases;            // of biases; samples count them from here
    IndexRange logprobs;          // of logprobs
    int32_t logprob_entries = 0;  // that they write
  };
  int32_t num_tokens = 0;
  std::vector<Slab> slabs;
  std::vector<Chunk> chunks;
  // The pass's array: offsets in ints from its begin. Rows and the tokens of rows count from the
  // begin of their slab.
  std::vector<int32_t> ints;
  size_t positions = 0;              // [num_tokens]
  size_t row_of_token = 0;           // [num_tokens]
  size_t token_index = 0;            // [num_tokens], into the token table: slots, then known tokens
  size_t logit_tokens_offset = 0;    // logit_tokens
  std::vector<size_t> rows;          // per group: BatchRow[..]
  std::vector<size_t> block_tables;  // per group
  std::vector<int32_t> known_tokens;
  std::vector<HistoryWrite> history;
  std::vector<int32_t> logit_tokens;  // the tokens that need logits
  std::vector<int32_t> return_rows;   // the rows of logits that go to the result
  std::vector<SampleRow> samples;     // out_index and history_row are the slot
  std::vector<LogitBias> biases;
  std::vector<LogprobRow> logprobs;  // token_index is into the token table
};

class StepInputs {
 public:
  StepInputs(const SlabLimits& limits, std::span<const StateGroup> groups);

  // `table` must already hold the plan's delta. Replaces what was built before; keeps its memory.
  void Build(const StepPlan& plan, const SlotTable& table);

  std::span<const Pass> passes() const { return {passes_.data(), num_passes_}; }

  // Block copies of the plan for one group; they come before every row.
  struct Copies {
    std::vector<int32_t> from;
    std::vector<int32_t> to;
  };
  std::span<const Copies> copies() const { return copies_; }

  // Tokens of restored positions that later choices must know: they are in the history before any
  // row runs. A write's token_index is into restored_tokens.
  std::span<const HistoryWrite> restored() const { return restored_; }
  std::span<const int32_t> restored_tokens() const { return restored_tokens_; }

 private:
  struct Piece {  // part of a plan's row inside one slab
    int32_t row = 0;
    int32_t offset = 0;  // of its first token within the row
    int32_t num_tokens = 0;
  };
  void TakeDeltas(const StepPlan& plan);
  void NewPass();
  void AddPiece(const StepPlan& plan, const SlotTable& table, const Piece& piece);
  // Of the token at `offset` in the row, which is the pass's token `token`.
  void AddLogits(const StepPlan& plan, const SlotTable::Slot& slot, const PlanRow& row,
                 int32_t offset, int32_t token);
  void AddSample(const SlotTable::Slot& slot, const PlanRow& row, int32_t logits_row);
  void AddLogprob(const SlotTable::Slot& slot, LogprobRow row);
  void Pack(const StepPlan& plan, const SlotTable& table);
  void PackGroup(const StepPlan& plan, const SlotTable& table, size_t group);
  Pass& pass() { return passes_[num_passes_ - 1]; }

  const SlabLimits limits_;
  const std::vector<StateGroup> groups_;
  std::vector<Pass> passes_;
  size_t num_passes_ = 0;
  std::vector<Piece> pieces_;  // of the pass that is being built
  std::vector<Copies> copies_;
  std::vector<HistoryWrite> restored_;
  std::vector<int32_t> restored_tokens_;
};

// The most slabs of one pass, and the most ints that it needs on the device.
int32_t MaxSlabs(const SlabLimits& limits);
size_t MaxPassInts(const SlabLimits& limits, int32_t num_slots, int32_t max_context,
                   std::span<const StateGroup> groups);

}  // namespace tandem
