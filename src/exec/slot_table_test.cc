#include "exec/slot_table.h"

#include <gtest/gtest.h>

#include <functional>

#include "exec/step_inputs.h"

namespace tandem {
namespace {

// A fake two-group model: paged blocks of 4 tokens and a window group with blocks of 2.
std::vector<StateGroup> TwoGroups() {
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

constexpr int32_t kNumSlots = 3;
constexpr int32_t kMaxContext = 32;

SlotTable NewTable() {
  const std::vector<int32_t> num_blocks = {8, 16};
  return SlotTable(kNumSlots, TwoGroups(), num_blocks, kMaxContext);
}

StepPlan JoinAndRun(int32_t slot, int32_t num_tokens, uint64_t step) {
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

StepPlan Decode(int32_t slot, int32_t position, uint64_t step, uint64_t from_step,
                int32_t from_row) {
  StepPlan plan;
  plan.step = StepId(step);
  plan.rows.push_back({SlotId(slot), position, 1, -1, StepId(from_step), from_row, true, 0});
  return plan;
}

TEST(SlotTable, RefusesPlansThatContradictIt) {
  SlotTable table = NewTable();
  const StepPlan good = JoinAndRun(1, 5, 1);
  ASSERT_TRUE(table.Validate(good).ok());
  const std::vector<std::pair<const char*, std::function<void(StepPlan&)>>> kDamages = {
      {"leaves but is empty", [](StepPlan& p) { p.leaves.push_back(SlotId(0)); }},
      {"taken or does not exist", [](StepPlan& p) { p.joins[0].slot = SlotId(kNumSlots); }},
      {"taken or does not exist", [](StepPlan& p) { p.joins.push_back(p.joins[0]); }},
      {"cannot be appended", [](StepPlan& p) { p.appends[0].block = BlockId(8); }},
      {"cannot be appended", [](StepPlan& p) { p.appends[0].group = GroupId(2); }},
      {"cannot be appended", [](StepPlan& p) { p.appends[0].slot = SlotId(0); }},
      {"copy of block",
       [](StepPlan& p) {
         p.copies.push_back({GroupId(0), BlockId(-1), BlockId(0)});
       }},
      {"which is empty", [](StepPlan& p) { p.rows[0].slot = SlotId(2); }},
      {"two rows", [](StepPlan& p) { p.rows.push_back(p.rows[0]); }},
      {"cannot run", [](StepPlan& p) { p.rows[0].position = 1; }},
      {"cannot run", [](StepPlan& p) { p.rows[0].num_tokens = 0; }},
      {"blocks of group 0 end", [](StepPlan& p) { p.appends.erase(p.appends.begin()); }},
      {"blocks of group 1 end", [](StepPlan& p) { p.appends.pop_back(); }},
      {"logits of a row", [](StepPlan& p) { p.rows[0].return_logits = 6; }},
      {"outside the plan", [](StepPlan& p) { p.tokens.pop_back(); }},
      {"not its last",
       [](StepPlan& p) {
         p.rows[0].num_tokens = 1;
         p.rows[0].tokens_begin = -1;
       }},
  };
  for (const auto& [expected, damage] : kDamages) {
    StepPlan plan = good;
    damage(plan);
    const Status status = table.Validate(plan);
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.ToString();
  }
  EXPECT_TRUE(table.Validate(good).ok()) << "a refused plan changes nothing";
}

TEST(SlotTable, OutputsAreReadOnceInTheirOrder) {
  SlotTable table = NewTable();
  table.Apply(JoinAndRun(0, 5, 1));
  const StepPlan second = Decode(0, 5, 2, 1, 0);
  ASSERT_TRUE(table.Validate(second).ok());
  table.Apply(second);
  EXPECT_EQ(table.slot(SlotId(0)).length, 6);
  EXPECT_FALSE(table.Validate(Decode(0, 6, 3, 1, 0)).ok()) << "an older output";
  EXPECT_TRUE(table.Validate(Decode(0, 5, 3, 2, 0)).ok()) << "rollback by one";
  StepPlan rejoin = JoinAndRun(0, 2, 3);
  EXPECT_FALSE(table.Validate(rejoin).ok());
  rejoin.leaves.push_back(SlotId(0));
  EXPECT_TRUE(table.Validate(rejoin).ok()) << "leave and join in one plan";
}

TEST(StepInputs, CutsRowsAtSlabBorders) {
  SlotTable table = NewTable();
  const auto groups = TwoGroups();
  table.Apply(JoinAndRun(0, 3, 1));
  StepPlan plan = JoinAndRun(1, 7, 2);
  plan.rows.insert(plan.rows.begin(), {SlotId(0), 3, 1, -1, StepId(1), 0, true, 0});
  ASSERT_TRUE(table.Validate(plan).ok());
  table.Apply(plan);
  StepInputs inputs({.max_tokens = 5, .max_logits = 8}, groups);
  inputs.Build(plan, table);
  ASSERT_EQ(inputs.slabs().size(), 2u);
  const Slab& first = inputs.slabs()[0];
  const Slab& second = inputs.slabs()[1];
  EXPECT_EQ(first.num_tokens, 5);
  EXPECT_EQ(second.num_tokens, 3);
  // Slot 0's sampled token comes from the token table, known tokens follow the slots.
  EXPECT_EQ(first.ints[first.token_index], 0);
  EXPECT_EQ(first.ints[first.token_index + 1], kNumSlots);
  EXPECT_EQ(first.known_tokens, (std::vector<int32_t>{100, 101, 102, 103}));
  EXPECT_EQ(second.known_tokens, (std::vector<int32_t>{104, 105, 106}));
  EXPECT_EQ(second.ints[second.positions], 4);
  // The second slab's only row starts at position 4 and needs blocks for 7 tokens in both groups.
  EXPECT_EQ(second.ints[second.rows[0] + 2], 4);
  EXPECT_EQ(second.ints[second.block_tables[0]], 7);
  EXPECT_EQ(second.ints[second.block_tables[0] + 1], 6);
  EXPECT_EQ(second.ints.size(), second.block_tables[1] + 4);
  // One sample in each: of slot 0 in the first, of slot 1 at the end of the second.
  ASSERT_EQ(first.samples.size(), 1u);
  EXPECT_EQ(first.samples[0].out_index, 0);
  EXPECT_EQ(first.samples[0].position, 4);
  ASSERT_EQ(second.samples.size(), 1u);
  EXPECT_EQ(second.samples[0].out_index, 1);
  EXPECT_EQ(second.samples[0].position, 7);
  EXPECT_EQ(second.logit_rows, (std::vector<int32_t>{2}));
  EXPECT_LE(second.ints.size(),
            MaxSlabInts({.max_tokens = 5, .max_logits = 8}, kNumSlots, kMaxContext, groups));
}

TEST(StepInputs, BoundsLogitRowsPerSlab) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 7, 1);
  plan.rows[0].return_logits = 4;  // positions 3 .. 6
  table.Apply(plan);
  StepInputs inputs({.max_tokens = 100, .max_logits = 3}, TwoGroups());
  inputs.Build(plan, table);
  ASSERT_EQ(inputs.slabs().size(), 2u);
  EXPECT_EQ(inputs.slabs()[0].num_tokens, 6);
  EXPECT_EQ(inputs.slabs()[0].return_rows.size(), 3u);
  EXPECT_EQ(inputs.slabs()[1].num_tokens, 1);
  EXPECT_EQ(inputs.slabs()[1].return_rows.size(), 1u);
  EXPECT_EQ(inputs.slabs()[1].samples.size(), 1u);
}

TEST(StepInputs, SortsCopiesByGroup) {
  SlotTable table = NewTable();
  StepPlan plan;
  plan.copies = {{GroupId(1), BlockId(1), BlockId(2)}, {GroupId(0), BlockId(3), BlockId(4)}};
  StepInputs inputs({}, TwoGroups());
  inputs.Build(plan, table);
  EXPECT_TRUE(inputs.slabs().empty());
  EXPECT_EQ(inputs.copies()[0].from, (std::vector<int32_t>{3}));
  EXPECT_EQ(inputs.copies()[1].to, (std::vector<int32_t>{2}));
}

}  // namespace
}  // namespace tandem
