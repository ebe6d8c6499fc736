#include "exec/step_inputs.h"

#include <gtest/gtest.h>

#include <limits>

#include "exec/testing/plans.h"

namespace tandem::testing {
namespace {

// One packed row of a pass.
BatchRow RowOf(const Pass& pass, size_t group, int32_t row) {
  const size_t at = pass.rows[group] + static_cast<size_t>(row) * 4;
  return {pass.ints[at], pass.ints[at + 1], pass.ints[at + 2], pass.ints[at + 3]};
}

TEST(StepInputs, CutsRowsAtSlabBorders) {
  SlotTable table = NewTable();
  const auto groups = TwoGroups();
  table.Apply(JoinAndRun(0, 3, 1));
  StepPlan plan = JoinAndRun(1, 7, 2);
  plan.rows.insert(plan.rows.begin(), {SlotId(0), 3, 1, -1, StepId(1), 0, true, 0});
  ASSERT_TRUE(table.Validate(plan).ok());
  table.Apply(plan);
  const SlabLimits limits{.max_tokens = 5, .max_logits = 8, .max_pass_tokens = 20};
  StepInputs inputs(limits, groups);
  inputs.Build(plan, table);
  ASSERT_EQ(inputs.passes().size(), 1u);
  const Pass& pass = inputs.passes()[0];
  ASSERT_EQ(pass.slabs.size(), 2u);
  EXPECT_EQ(pass.num_tokens, 8);
  EXPECT_EQ(pass.slabs[0].tokens.count, 5);
  EXPECT_EQ(pass.slabs[0].rows.count, 2);
  EXPECT_EQ(pass.slabs[1].tokens.begin, 5);
  EXPECT_EQ(pass.slabs[1].tokens.count, 3);
  EXPECT_EQ(pass.slabs[1].rows.begin, 2);
  EXPECT_EQ(pass.slabs[1].rows.count, 1);
  // Slot 0's sampled token comes from the token table, known tokens follow the slots.
  EXPECT_EQ(pass.ints[pass.token_index], 0);
  EXPECT_EQ(pass.ints[pass.token_index + 1], kNumSlots);
  EXPECT_EQ(pass.ints[pass.token_index + 7], kNumSlots + 6);
  EXPECT_EQ(pass.known_tokens, (std::vector<int32_t>{100, 101, 102, 103, 104, 105, 106}));
  EXPECT_EQ(pass.ints[pass.positions + 5], 4);
  // Rows count from their slab.
  EXPECT_EQ(pass.ints[pass.row_of_token + 4], 1);
  EXPECT_EQ(pass.ints[pass.row_of_token + 5], 0);
  // The second slab's only row starts at position 4 and needs blocks for 7 tokens in both groups;
  // its table lies behind those of the first slab, for 4 tokens of each slot.
  const BatchRow cut = RowOf(pass, 0, 2);
  EXPECT_EQ(cut.first_token, 0);
  EXPECT_EQ(cut.num_tokens, 3);
  EXPECT_EQ(cut.position, 4);
  EXPECT_EQ(cut.table_begin, 1 + 1);
  EXPECT_EQ(pass.ints[pass.block_tables[0] + 2], 7);
  EXPECT_EQ(pass.ints[pass.block_tables[0] + 3], 6);
  EXPECT_EQ(RowOf(pass, 1, 2).table_begin, 2 + 2);
  EXPECT_EQ(pass.ints.size(), pass.block_tables[1] + 2 + 2 + 4);
  // Both sampled rows of logits are one chunk, though of two slabs.
  ASSERT_EQ(pass.chunks.size(), 1u);
  EXPECT_EQ(pass.logit_tokens, (std::vector<int32_t>{0, 7}));
  ASSERT_EQ(pass.samples.size(), 2u);
  EXPECT_EQ(pass.samples[0].out_index, 0);
  EXPECT_EQ(pass.samples[0].position, 4);
  EXPECT_EQ(pass.samples[1].out_index, 1);
  EXPECT_EQ(pass.samples[1].position, 7);
  EXPECT_EQ(pass.samples[1].logits_row, 1);
  EXPECT_LE(pass.ints.size(), MaxPassInts(limits, kNumSlots, kMaxContext, groups));
  EXPECT_EQ(MaxSlabs(limits), 4);
}

TEST(StepInputs, CutsLargeStepsIntoPasses) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 7, 1);
  plan.rows[0].return_logits = 3;
  table.Apply(plan);
  StepInputs inputs({.max_tokens = 3, .max_logits = 8, .max_pass_tokens = 5}, TwoGroups());
  inputs.Build(plan, table);
  ASSERT_EQ(inputs.passes().size(), 2u);
  const Pass& first = inputs.passes()[0];
  const Pass& second = inputs.passes()[1];
  ASSERT_EQ(first.slabs.size(), 2u);
  EXPECT_EQ(first.slabs[1].tokens.count, 2);
  EXPECT_EQ(first.num_tokens, 5);
  EXPECT_EQ(first.logit_tokens, (std::vector<int32_t>{4}));
  EXPECT_TRUE(first.samples.empty());
  ASSERT_EQ(second.slabs.size(), 1u);
  EXPECT_EQ(second.num_tokens, 2);
  EXPECT_EQ(second.slabs[0].tokens.begin, 0);
  EXPECT_EQ(second.ints[second.positions], 5);
  EXPECT_EQ(second.ints[second.token_index], kNumSlots) << "a pass has its own known tokens";
  EXPECT_EQ(second.known_tokens, (std::vector<int32_t>{105, 106}));
  EXPECT_EQ(second.return_rows, (std::vector<int32_t>{0, 1}));
  ASSERT_EQ(second.samples.size(), 1u);
  EXPECT_EQ(second.samples[0].position, 7);
}

TEST(StepInputs, BoundsLogitRowsPerChunk) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 7, 1);
  plan.rows[0].return_logits = 4;  // positions 3 .. 6
  table.Apply(plan);
  StepInputs inputs({.max_tokens = 100, .max_logits = 3, .max_pass_tokens = 100}, TwoGroups());
  inputs.Build(plan, table);
  const Pass& pass = inputs.passes()[0];
  EXPECT_EQ(pass.slabs.size(), 1u);
  ASSERT_EQ(pass.chunks.size(), 2u);
  EXPECT_EQ(pass.chunks[0].logits.count, 3);
  EXPECT_EQ(pass.chunks[0].returned.count, 3);
  EXPECT_EQ(pass.chunks[0].samples.count, 0);
  EXPECT_EQ(pass.chunks[1].logits.begin, 3);
  EXPECT_EQ(pass.chunks[1].logits.count, 1);
  EXPECT_EQ(pass.chunks[1].returned.begin, 3);
  EXPECT_EQ(pass.chunks[1].samples.count, 1);
  EXPECT_EQ(pass.samples[0].logits_row, 0) << "within its chunk";
}

TEST(StepInputs, ScoresKnownTokensAndThenTheSampledOne) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 6, 1);
  plan.joins[0].sampling.top_logprobs = 2;
  plan.rows[0].score = 4;  // positions 1 .. 4, then the sampled one behind 5
  table.Apply(plan);
  StepInputs inputs({.max_tokens = 4, .max_logits = 3, .max_pass_tokens = 100}, TwoGroups());
  inputs.Build(plan, table);
  const Pass& pass = inputs.passes()[0];
  EXPECT_EQ(pass.logit_tokens, (std::vector<int32_t>{1, 2, 3, 4, 5}));
  ASSERT_EQ(pass.logprobs.size(), 5u);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pass.logprobs[static_cast<size_t>(i)].token, 102 + i);
    EXPECT_EQ(pass.logprobs[static_cast<size_t>(i)].out_begin, i % 3 * 3);
  }
  EXPECT_EQ(pass.logprobs[4].token, -1);
  EXPECT_EQ(pass.logprobs[4].token_index, 0) << "where slot 0's choice will be";
  ASSERT_EQ(pass.chunks.size(), 2u);
  EXPECT_EQ(pass.chunks[0].logprob_entries, 9);
  EXPECT_EQ(pass.chunks[1].logprob_entries, 6);
  // Without a choice the row's last position scores the token behind it.
  plan.rows[0].sample = false;
  plan.rows[0].score = 1;
  plan.rows[0].next_token = TokenId(55);
  inputs.Build(plan, table);
  ASSERT_EQ(inputs.passes()[0].logprobs.size(), 1u);
  EXPECT_EQ(inputs.passes()[0].logprobs[0].token, 55);
}

TEST(StepInputs, BansStopTokensUntilEnoughAreOut) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 5, 1);
  plan.joins[0].prompt_tokens = 4;  // it comes back after a preemption, with one output
  plan.joins[0].sampling.min_tokens = 2;
  plan.joins[0].stop_tokens = {TokenId(9), TokenId(2)};
  plan.joins[0].logit_bias = {{TokenId(3), 0.5f}};
  table.Apply(plan);
  StepInputs inputs({}, TwoGroups());
  inputs.Build(plan, table);
  constexpr float kBan = -std::numeric_limits<float>::infinity();
  const std::vector<LogitBias> expected = {
      {TokenId(3), 0.5f}, {TokenId(9), kBan}, {TokenId(2), kBan}};
  EXPECT_EQ(inputs.passes()[0].biases, expected);
  EXPECT_EQ(inputs.passes()[0].samples[0].num_biases, 3);
  StepPlan second = Decode(0, 5, 2, 1, 0);  // chooses the third output
  table.Apply(second);
  inputs.Build(second, table);
  EXPECT_EQ(inputs.passes()[0].biases, (std::vector<LogitBias>{{TokenId(3), 0.5f}}));
}

TEST(StepInputs, OnlyPenalisedSlotsWriteTheirHistory) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 6, 1);
  table.Apply(plan);
  StepInputs inputs({.max_tokens = 3, .max_logits = 8, .max_pass_tokens = 4}, TwoGroups());
  inputs.Build(plan, table);
  EXPECT_TRUE(inputs.passes()[0].history.empty());

  StepPlan penalised = JoinAndRun(1, 8, 2);
  penalised.joins[0].sampling.presence_penalty = 1;
  penalised.joins[0].num_restored = 2;
  penalised.rows[0] = {SlotId(1), 2, 6, 2, StepId(), 0, true, 0};
  table.Apply(penalised);
  inputs.Build(penalised, table);
  ASSERT_EQ(inputs.restored().size(), 1u);
  EXPECT_EQ(inputs.restored()[0].slot, 1);
  EXPECT_EQ(inputs.restored()[0].position, 0);
  EXPECT_EQ(inputs.restored()[0].num_tokens, 2);
  EXPECT_EQ(inputs.restored_tokens()[1], 101);
  ASSERT_EQ(inputs.passes().size(), 2u);
  const std::vector<HistoryWrite>& history = inputs.passes()[0].history;
  ASSERT_EQ(history.size(), 2u) << "the row is cut by a slab";
  EXPECT_EQ(history[1].position, 5);
  EXPECT_EQ(history[1].token_index, kNumSlots + 3);
  EXPECT_EQ(history[1].num_tokens, 1);
  EXPECT_EQ(inputs.passes()[1].history[0].token_index, kNumSlots);
  const StepPlan next = Decode(1, 8, 3, 2, 0);
  table.Apply(next);
  inputs.Build(next, table);
  EXPECT_TRUE(inputs.restored().empty());
  EXPECT_EQ(inputs.passes()[0].history[0].token_index, 1) << "the slot's last choice";
  EXPECT_EQ(inputs.passes()[0].history[0].position, 8);
}

TEST(StepInputs, SortsCopiesByGroup) {
  SlotTable table = NewTable();
  StepPlan plan;
  plan.copies = {{GroupId(1), BlockId(1), BlockId(2)}, {GroupId(0), BlockId(3), BlockId(4)}};
  StepInputs inputs({}, TwoGroups());
  inputs.Build(plan, table);
  EXPECT_TRUE(inputs.passes().empty());
  EXPECT_EQ(inputs.copies()[0].from, (std::vector<int32_t>{3}));
  EXPECT_EQ(inputs.copies()[1].to, (std::vector<int32_t>{2}));
}

}  // namespace
}  // namespace tandem::testing
