// What: StepInputs: a plan turned into what the device reads: slabs of bounded size, each with one
//   packed array of int32 (positions, rows, block tables, ...) that a rank copies to the device at
//   once.
// Not here: device pointers (rank.cc adds a slab's offsets to its own base).
// Threads: built on the engine's thread, then read-only until its step has finished.
// Invariants: a slab has at most max_tokens tokens and max_logits logit rows. Rows keep their
//   order; a row may be cut at slab borders (which changes no number: kernels/ops.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "exec/slot_table.h"
#include "kernels/ops.h"
#include "sampling/sampling.h"

namespace tandem {

struct SlabLimits {
  int32_t max_tokens = 256;
  int32_t max_logits = 32;
};

struct Slab {
  int32_t num_tokens = 0;
  int32_t num_rows = 0;
  // The slab's array: offsets in ints from its begin.
  std::vector<int32_t> ints;
  size_t positions = 0;      // [num_tokens]
  size_t row_of_token = 0;   // [num_tokens]
  size_t token_index = 0;    // [num_tokens], into the token table: slots first, then known tokens
  size_t logit_tokens = 0;   // [num_logits]
  std::vector<size_t> rows;  // per group: BatchRow[num_rows]
  std::vector<size_t> block_tables;  // per group
  std::vector<int32_t> known_tokens;
  std::vector<int32_t>
      logit_rows;  // the tokens of the slab that need logits (content of logit_tokens)
  std::vector<int32_t> return_rows;  // those of them that go to the result, ascending
  std::vector<SampleRow> samples;    // out_index is the slot
};

class StepInputs {
 public:
  StepInputs(const SlabLimits& limits, std::span<const StateGroup> groups);

  // `table` must already hold the plan's delta. Replaces what was built before; keeps its memory.
  void Build(const StepPlan& plan, const SlotTable& table);

  std::span<const Slab> slabs() const { return {slabs_.data(), num_slabs_}; }

  // Block copies of the plan for one group; they come before every row.
  struct Copies {
    std::vector<int32_t> from;
    std::vector<int32_t> to;
  };
  std::span<const Copies> copies() const { return copies_; }

 private:
  struct Piece {  // part of a plan's row inside one slab
    int32_t row = 0;
    int32_t offset = 0;  // of its first token within the row
    int32_t num_tokens = 0;
  };
  // Tokens of `row` from `offset` that still fit into a slab which holds `tokens` tokens and
  // `logits` logit rows.
  int32_t Fitting(const PlanRow& row, int32_t offset, int32_t tokens, int32_t logits) const;
  Slab& NewSlab();
  void AddPiece(const StepPlan& plan, const SlotTable& table, const Piece& piece, Slab& slab);
  void Pack(const StepPlan& plan, const SlotTable& table, Slab& slab);

  const SlabLimits limits_;
  const std::vector<StateGroup> groups_;
  std::vector<Slab> slabs_;
  size_t num_slabs_ = 0;
  std::vector<Piece> pieces_;  // of the slab that is being built
  std::vector<Copies> copies_;
};

// The most ints that one slab needs on the device.
size_t MaxSlabInts(const SlabLimits& limits, int32_t num_slots, int32_t max_context,
                   std::span<const StateGroup> groups);

}  // namespace tandem
