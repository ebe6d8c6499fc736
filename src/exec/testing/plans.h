// What: a fake two-group model, its slot table, and plans for it by hand: for the tests of exec/.
// Not here: real models and devices (tests/).
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/step_plan.h"
#include "exec/slot_table.h"

namespace tandem::testing {

// A fake two-group model: paged blocks of 4 tokens and a window group with blocks of 2.
inline std::vector<StateGroup> TwoGroups() {
  StateGroup paged;
  paged.layers = {0, 2};
  paged.num_heads = 1;
  paged.planes = {{"k", DType::kF32, TileLayout::kDimMajor, 8}};
  paged.tokens_per_block = 4;
  StateGroup window = paged;
  window.kind = StateKind::kWindow;
  window.layers = {1};
  window.tokens_per_block = 2;
  window.window_tokens = 6;
  return {paged, window};
}

inline constexpr int32_t kNumSlots = 3;
inline constexpr int32_t kMaxContext = 32;

inline SlotTable NewTable() {
  const std::vector<int32_t> num_blocks = {8, 16};
  return SlotTable(kNumSlots, TwoGroups(), num_blocks, kMaxContext);
}

inline StepPlan JoinAndRun(int32_t slot, int32_t num_tokens, uint64_t step) {
  StepPlan plan;
  plan.step = StepId(step);
  plan.joins.push_back({SlotId(slot), RequestId(step), 0, {}});
  for (int32_t b = 0; b < (num_tokens + 3) / 4; ++b) {
    plan.appends.push_back({SlotId(slot), GroupId(0), BlockId(7 - b)});
  }
  for (int32_t b = 0; b < (num_tokens + 1) / 2; ++b) {
    plan.appends.push_back({SlotId(slot), GroupId(1), BlockId(b)});
  }
  for (int32_t i = 0; i < num_tokens; ++i) plan.tokens.push_back(TokenId(100 + i));
  plan.rows.push_back({SlotId(slot), 0, num_tokens, 0, StepId(), 0, /*sample=*/true, 0});
  return plan;
}

inline StepPlan Decode(int32_t slot, int32_t position, uint64_t step, uint64_t from_step,
                       int32_t from_row) {
  StepPlan plan;
  plan.step = StepId(step);
  plan.rows.push_back({SlotId(slot), position, 1, -1, StepId(from_step), from_row, true, 0});
  return plan;
}

}  // namespace tandem::testing
