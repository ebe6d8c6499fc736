#include "kv/state_pools.h"

#include <gtest/gtest.h>

#include "kv/block_table.h"

namespace tandem {
namespace {

StateGroupBlocks Group(int32_t tokens_per_block, int32_t num_blocks, int32_t window = 0) {
  StateGroup group;
  group.kind = window > 0 ? StateKind::kWindow : StateKind::kPaged;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"k", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = tokens_per_block;
  group.window_tokens = window;
  return {group, num_blocks};
}

constexpr GroupId kPaged{0};
constexpr GroupId kWindow{1};
constexpr SlotId kSlot{0};

TEST(BlockTable, WastesOnlyInTheTailBlock) {
  BlockPool pool(8, 1);
  BlockTable table(&pool, 16, 8);
  for (int64_t tokens : {1, 16, 17, 100}) {
    while (table.capacity_tokens() < tokens) table.Append(pool.Allocate().value());
    EXPECT_EQ(table.capacity_tokens() - tokens, 16 * ((tokens + 15) / 16) - tokens);
  }
}

TEST(BlockTable, ReleasedEntriesKeepTheirLogicalIndex) {
  BlockPool pool(4, 1);
  BlockTable table(&pool, 4, 8);
  for (int i = 0; i < 4; ++i) table.Append(pool.Allocate().value());
  EXPECT_EQ(table.ReleaseBelow(-3, StepId(0)), 0);
  EXPECT_EQ(table.ReleaseBelow(3, StepId(0)), 0) << "position 3 is in block 0";
  EXPECT_EQ(table.ReleaseBelow(11, StepId(0)), 2);
  EXPECT_EQ(table.first_held(), 2);
  EXPECT_EQ(table.num_held(), 2);
  EXPECT_EQ(table.num_blocks(), 4);
  EXPECT_EQ(table.at(2), BlockId(2));
  EXPECT_EQ(pool.free(), 2);
  EXPECT_DEATH((void)table.at(1), "first_held_");
  table.Clear(StepId(0));
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(table.num_blocks(), 0);
}

TEST(BlockTable, TruncateGivesBackWhatNoTokenNeeds) {
  BlockPool pool(4, 1);
  BlockTable table(&pool, 4, 4);
  for (int i = 0; i < 4; ++i) table.Append(pool.Allocate().value());
  EXPECT_EQ(table.Truncate(9, StepId(0)), 1);
  EXPECT_EQ(table.num_blocks(), 3);
  EXPECT_EQ(table.Truncate(8, StepId(1)), 0) << "step 1 still runs";
  EXPECT_EQ(pool.fenced(), 1);
  table.ReleaseBelow(4, StepId(0));
  EXPECT_DEATH(table.Truncate(0, StepId(0)), "first_held_");
  table.Clear(StepId(0));
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.free(), 4);
}

TEST(StatePools, PeakBlocksOfAWindowHoldAtEveryAlignment) {
  for (int32_t p : {1, 2, 3, 16}) {
    for (int32_t window : {1, 2, 5, 16}) {
      for (int32_t uncommitted : {1, 2, 7}) {
        const StateGroupBlocks groups[] = {Group(p, 1, window)};
        const StatePools pools(groups, uncommitted, 1);
        int64_t most = 0;
        for (int64_t committed = 0; committed < 100; ++committed) {
          const int64_t first = std::max<int64_t>(0, committed - window + 1) / p;
          const int64_t last = (committed + uncommitted - 1) / p;
          most = std::max(most, last - first + 1);
        }
        EXPECT_EQ(pools.PeakBlocks(GroupId(0), 1000), most)
            << "p " << p << " window " << window << " uncommitted " << uncommitted;
      }
    }
  }
}

TEST(StatePools, MaxTokensIsWhatTheTightestGroupHolds) {
  const StateGroupBlocks tight_paged[] = {Group(4, 5), Group(2, 100, 6)};
  EXPECT_EQ(StatePools(tight_paged, 4, 1).MaxTokens(1000), 20);
  EXPECT_EQ(StatePools(tight_paged, 4, 1).MaxTokens(7), 7);
  const StateGroupBlocks tight_window[] = {Group(4, 100), Group(2, 3, 6)};
  EXPECT_EQ(StatePools(tight_window, 4, 1).MaxTokens(1000), 6);
  const StateGroupBlocks wide_window[] = {Group(4, 100), Group(2, 6, 6)};
  EXPECT_EQ(StatePools(wide_window, 4, 1).MaxTokens(1000), 400) << "6 blocks hold any window";
}

TEST(StatePools, ReserveTakesFromAllGroupsOrFromNone) {
  const StateGroupBlocks groups[] = {Group(4, 10), Group(2, 3, 100)};
  StatePools pools(groups, 4, 1);
  SequenceBlocks a = pools.MakeSequence(100);
  EXPECT_FALSE(pools.Reserve(&a, 7)) << "4 blocks of the second group";
  EXPECT_EQ(pools.pool(kPaged).reserved(), 0);
  EXPECT_TRUE(pools.Reserve(&a, 6));
  EXPECT_EQ(pools.pool(kPaged).reserved(), 2);
  EXPECT_EQ(pools.pool(kWindow).reserved(), 3);
  const SequenceBlocks* all[] = {&a};
  EXPECT_TRUE(pools.CheckIntegrity(all).ok());
  EXPECT_FALSE(pools.CheckIntegrity({}).ok());
  pools.Release(&a, StepId(0));
  EXPECT_TRUE(pools.CheckIntegrity({}).ok());
}

TEST(StatePools, GrowthBeyondThePromiseTellsWaitingFromShort) {
  const StateGroupBlocks groups[] = {Group(4, 3)};
  StatePools pools(groups, 4, 1);
  SequenceBlocks a = pools.MakeSequence(100);
  SequenceBlocks b = pools.MakeSequence(100);
  StepPlan plan;
  ASSERT_TRUE(pools.Reserve(&a, 4));
  ASSERT_TRUE(pools.Reserve(&b, 8));
  EXPECT_EQ(pools.Grow(&a, 4, kSlot, &plan), Growth::kDone);
  EXPECT_EQ(pools.Grow(&a, 5, kSlot, &plan), Growth::kShort) << "free, but promised to b";
  EXPECT_EQ(plan.appends.size(), 1u);
  EXPECT_EQ(pools.Grow(&b, 1, SlotId(1), &plan), Growth::kDone);
  pools.Release(&b, StepId(1));
  EXPECT_EQ(pools.Grow(&a, 9, kSlot, &plan), Growth::kWait) << "step 1 still reads b's block";
  pools.CompleteSteps(StepId(1));
  EXPECT_EQ(pools.Grow(&a, 9, kSlot, &plan), Growth::kDone);
  EXPECT_EQ(pools.busy_blocks(), 3);
}

TEST(StatePools, GrowthWaitsForBlocksThatAPeerStillTouchesIfTheyAreEnough) {
  const StateGroupBlocks groups[] = {Group(4, 4)};
  StatePools pools(groups, 4, 1);
  SequenceBlocks a = pools.MakeSequence(100);
  SequenceBlocks b = pools.MakeSequence(100);
  StepPlan plan;
  ASSERT_TRUE(pools.Reserve(&a, 4));
  ASSERT_TRUE(pools.Reserve(&b, 8));
  ASSERT_EQ(pools.Grow(&a, 4, kSlot, &plan), Growth::kDone);
  ASSERT_EQ(pools.Grow(&b, 8, SlotId(1), &plan), Growth::kDone);
  pools.BeginUse(GroupId(0), BlockId(1), UseAgent::kInboundWrite);
  pools.BeginUse(GroupId(0), BlockId(2), UseAgent::kInboundWrite);
  pools.Release(&b, StepId(0));
  EXPECT_EQ(pools.Grow(&a, 8, kSlot, &plan), Growth::kDone) << "one is free";
  EXPECT_EQ(pools.Grow(&a, 16, kSlot, &plan), Growth::kWait) << "two lack, two come back";
  EXPECT_EQ(pools.Grow(&a, 20, kSlot, &plan), Growth::kShort) << "three lack";
  pools.EndUse(GroupId(0), BlockId(1), UseAgent::kInboundWrite);
  pools.EndUse(GroupId(0), BlockId(2), UseAgent::kInboundWrite);
  EXPECT_EQ(pools.Grow(&a, 16, kSlot, &plan), Growth::kDone);
}

// A long sequence passes through a window pool of exactly its peak, one row at a time.
TEST(StatePools, AWindowLivesForeverWithinItsPromise) {
  constexpr int32_t kWindowTokens = 5;
  constexpr int32_t kRow = 3;
  const StateGroupBlocks unlimited[] = {Group(2, 1000, kWindowTokens)};
  const auto peak =
      static_cast<int32_t>(StatePools(unlimited, 2 * kRow, 2).PeakBlocks(GroupId(0), 1000));
  const StateGroupBlocks groups[] = {Group(2, peak, kWindowTokens)};
  StatePools pools(groups, 2 * kRow, 2);
  SequenceBlocks s = pools.MakeSequence(1000);
  ASSERT_TRUE(pools.Reserve(&s, 1000));
  StepPlan plan;
  int64_t planned = 0;
  for (uint64_t step = 1; planned + kRow <= 1000; ++step) {
    planned += kRow;
    ASSERT_EQ(pools.Grow(&s, planned, kSlot, &plan), Growth::kDone) << "step " << step;
    if (step == 1) continue;  // one step runs ahead
    pools.CompleteSteps(StepId(step - 1));
    pools.ReleasePassed(&s, planned - kRow, StepId(step - 1));
    const SequenceBlocks* all[] = {&s};
    const Status status = pools.CheckIntegrity(all);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  pools.Release(&s, StepId(0));
  EXPECT_EQ(pools.busy_blocks(), 0);
}

}  // namespace
}  // namespace tandem
