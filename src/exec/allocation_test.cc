// Counts calls of operator new while steady decode steps are checked and turned into device inputs.

#include <gtest/gtest.h>

#include <vector>

#include "base/testing/counting_new.h"
#include "exec/step_inputs.h"
#include "exec/testing/plans.h"

namespace tandem::testing {
namespace {

TEST(ExecAllocation, ASteadyDecodeStepAllocatesNothing) {
  SlotTable table = NewTable();
  StepInputs inputs({}, TwoGroups());
  StepPlan plan = JoinAndRun(0, 4, 1);
  SamplingParams& sampling = plan.joins[0].sampling;
  sampling.presence_penalty = 1;
  sampling.min_tokens = 100;
  sampling.top_logprobs = 20;
  plan.joins[0].logit_bias = {{TokenId(1), 2.0f}};
  plan.joins[0].stop_tokens = {TokenId(2)};
  // Blocks for the steps to come.
  for (int32_t b = 0; b < 7; ++b) plan.appends.push_back({SlotId(0), GroupId(0), BlockId(b)});
  for (int32_t b = 0; b < 14; ++b) plan.appends.push_back({SlotId(0), GroupId(1), BlockId(b)});
  ASSERT_TRUE(table.Validate(plan).ok());
  table.Apply(plan);
  inputs.Build(plan, table);
  // Twice over the same positions: the first time the arrays grow.
  for (int32_t i = 0; i < 40; ++i) {
    const auto step = static_cast<uint64_t>(i) + 2;
    const StepPlan decode = Decode(0, 4 + i % 20, step, step - 1, 0);
    counting = i >= 20;
    ASSERT_TRUE(table.Validate(decode).ok());
    table.Apply(decode);
    inputs.Build(decode, table);
    counting = false;
    ASSERT_EQ(inputs.passes()[0].biases.size(), 2u);
    ASSERT_EQ(inputs.passes()[0].logprobs.size(), 1u);
  }
  EXPECT_EQ(allocations, 0);
}

}  // namespace
}  // namespace tandem::testing
