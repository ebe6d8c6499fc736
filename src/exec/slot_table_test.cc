#include "exec/slot_table.h"

#include <gtest/gtest.h>

#include <functional>

#include "exec/testing/plans.h"

namespace tandem::testing {
namespace {

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

TEST(SlotTable, KeepsWhatAChoiceDependsOn) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(1, 5, 1);
  SlotJoin& join = plan.joins[0];
  join.sampling.top_logprobs = 3;
  join.logit_bias = {{TokenId(7), -1.5f}};
  join.stop_tokens = {TokenId(2)};
  join.prompt_tokens = 4;
  ASSERT_TRUE(table.Validate(plan).ok());
  table.Apply(plan);
  const SlotTable::Slot& slot = table.slot(SlotId(1));
  EXPECT_EQ(slot.sampling.top_logprobs, 3);
  EXPECT_EQ(slot.logit_bias, join.logit_bias);
  EXPECT_EQ(slot.stop_tokens, join.stop_tokens);
  EXPECT_EQ(slot.prompt_tokens, 4);
  StepPlan again = JoinAndRun(1, 2, 2);
  again.leaves.push_back(SlotId(1));
  ASSERT_TRUE(table.Validate(again).ok());
  table.Apply(again);
  EXPECT_TRUE(slot.logit_bias.empty());
  EXPECT_TRUE(slot.stop_tokens.empty());
}

TEST(SlotTable, RestoredPositionsAreRunByNoRow) {
  SlotTable table = NewTable();
  StepPlan plan = JoinAndRun(0, 8, 1);
  plan.joins[0].restored_begin = 0;
  plan.joins[0].num_restored = 6;
  plan.rows[0].position = 6;
  plan.rows[0].num_tokens = 2;
  plan.rows[0].tokens_begin = 6;
  ASSERT_TRUE(table.Validate(plan).ok());
  const std::vector<std::pair<const char*, std::function<void(StepPlan&)>>> kDamages = {
      {"lie outside the plan", [](StepPlan& p) { p.joins[0].restored_begin = 3; }},
      {"lie outside the plan", [](StepPlan& p) { p.joins[0].restored_begin = -1; }},
      {"lie outside the plan", [](StepPlan& p) { p.joins[0].num_restored = -1; }},
      {"blocks of group 0 end before the 6 restored",
       [](StepPlan& p) { p.appends.erase(p.appends.begin(), p.appends.begin() + 1); }},
      {"cannot run", [](StepPlan& p) { p.joins[0].num_restored = 5; }},
  };
  for (const auto& [expected, damage] : kDamages) {
    StepPlan damaged = plan;
    damage(damaged);
    const Status status = table.Validate(damaged);
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.ToString();
  }
  table.Apply(plan);
  EXPECT_EQ(table.slot(SlotId(0)).length, 8);
  // A restore alone is a plan too.
  StepPlan joined = JoinAndRun(1, 8, 2);
  joined.joins[0].num_restored = 7;
  joined.rows.clear();
  ASSERT_TRUE(table.Validate(joined).ok());
  table.Apply(joined);
  EXPECT_EQ(table.slot(SlotId(1)).length, 7);
}

TEST(SlotTable, ScoresOnlyWhatARowCanScore) {
  SlotTable table = NewTable();
  StepPlan good = JoinAndRun(0, 5, 1);
  good.joins[0].sampling.top_logprobs = 0;
  good.rows[0].score = 4;
  ASSERT_TRUE(table.Validate(good).ok());
  const std::vector<std::function<void(StepPlan&)>> kDamages = {
      [](StepPlan& p) { p.rows[0].score = 5; },  // the last position is sampled
      [](StepPlan& p) { p.rows[0].score = -1; },
      [](StepPlan& p) { p.rows[0].return_logits = 1; },
      [](StepPlan& p) { p.joins[0].sampling.top_logprobs = -1; },
  };
  for (const auto& damage : kDamages) {
    StepPlan plan = good;
    damage(plan);
    EXPECT_NE(table.Validate(plan).message().find("log probabilities"), std::string::npos);
  }
  good.rows[0].sample = false;
  good.rows[0].score = 5;
  EXPECT_TRUE(table.Validate(good).ok());
}

TEST(SlotTable, BoundsWhatAJoinBrings) {
  SlotTable table = NewTable();
  const std::vector<std::function<void(SlotJoin&)>> kDamages = {
      [](SlotJoin& j) { j.logit_bias.resize(static_cast<size_t>(kMaxLogitBias) + 1); },
      [](SlotJoin& j) { j.stop_tokens.resize(static_cast<size_t>(kMaxStopTokens) + 1); },
      [](SlotJoin& j) { j.sampling.top_logprobs = kMaxTopLogprobs + 1; },
      [](SlotJoin& j) { j.prompt_tokens = -1; },
  };
  for (const auto& damage : kDamages) {
    StepPlan plan = JoinAndRun(0, 5, 1);
    damage(plan.joins[0]);
    EXPECT_NE(table.Validate(plan).message().find("is joined with"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::testing
