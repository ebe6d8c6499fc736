// Plans that the scheduler makes for shared prefixes: positions whose state is there already, and
// blocks that are copied before they are written to. By hand, on a real model, with each KV type.
#include <gtest/gtest.h>

#include "tests/support/model_under_test.h"
#include "tests/support/workload.h"

namespace tandem {
namespace {

constexpr int32_t kVocab = 320;
constexpr int32_t kBlock = 16;
constexpr int32_t kPromptTokens = 44;  // two full blocks and most of a third

// Depends on every token before it.
SamplingParams Sampling() {
  return {.temperature = 0.8,
          .repetition_penalty = 1.3,
          .frequency_penalty = 0.4,
          .top_logprobs = 2,
          .seed = 5};
}

class RestoreTest : public testing::TestWithParam<DType> {
 protected:
  RestoreTest() : model_(Config()), prompt_(RandomPrompt(1, kVocab, kPromptTokens)) {}

  static TestConfig Config() {
    TestConfig config;
    config.model_path = GoldenPath("tiny_b.gguf");
    config.numerics.kv = GetParam();
    config.block_tokens = kBlock;
    return config;
  }

  // A slot joins with these blocks; positions [restored, prompt) are run, and a token is chosen.
  StepPlan Join(int32_t slot, const std::vector<int32_t>& blocks, int32_t restored) {
    StepPlan plan;
    plan.step = StepId(++last_step_);
    SlotJoin join;
    join.slot = SlotId(slot);
    join.request = RequestId(last_step_);
    join.sampling = Sampling();
    join.prompt_tokens = kPromptTokens;
    join.num_restored = restored;
    plan.joins.push_back(join);
    for (const int32_t block : blocks) {
      plan.appends.push_back({SlotId(slot), GroupId(0), BlockId(block)});
    }
    plan.tokens = prompt_;
    PlanRow row;
    row.slot = SlotId(slot);
    row.position = restored;
    row.num_tokens = kPromptTokens - restored;
    row.tokens_begin = restored;
    row.sample = true;
    plan.rows.push_back(row);
    return plan;
  }

  // The first token and `count` more, with their log probabilities.
  std::vector<TokenLogprob> Run(const StepPlan& first, int32_t count) {
    StepResult result = model_.RunPlan(first);
    std::vector<TokenLogprob> entries = result.logprobs;
    for (int32_t i = 0; i < count; ++i) {
      StepPlan plan;
      plan.step = StepId(++last_step_);
      PlanRow row;
      row.slot = first.rows[0].slot;
      row.position = kPromptTokens + i;
      row.num_tokens = 1;
      row.tokens_begin = -1;
      row.from_step = StepId(last_step_ - 1);
      row.sample = true;
      plan.rows.push_back(row);
      result = model_.RunPlan(plan);
      entries.insert(entries.end(), result.logprobs.begin(), result.logprobs.end());
    }
    return entries;
  }

  ModelUnderTest model_;
  const std::vector<TokenId> prompt_;
  uint64_t last_step_ = 0;
};

TEST_P(RestoreTest, ARestoredPrefixChoosesAsOneThatWasRun) {
  const auto expected = Run(Join(0, {9, 4, 7, 1}, 0), 12);
  ASSERT_EQ(expected.size(), 13u * 3);
  // Two whole blocks are shared; the third has the row's own tokens.
  EXPECT_EQ(Run(Join(1, {9, 4, 20, 21}, 2 * kBlock), 12), expected);
  // The history counts, not only the state.
  StepPlan forgetful = Join(2, {9, 4, 22, 23}, 2 * kBlock);
  for (int32_t i = 0; i < 2 * kBlock; ++i) {
    forgetful.tokens[static_cast<size_t>(i)] = TokenId(0);
  }
  EXPECT_NE(Run(forgetful, 12), expected);
}

TEST_P(RestoreTest, ACopiedBlockIsWrittenWithoutHarmToTheOriginal) {
  const std::vector<int32_t> blocks = {9, 4, 7, 1};
  const auto expected = Run(Join(0, blocks, 0), 12);
  // Slot 1 begins in the middle of the third block: a copy of it.
  constexpr int32_t kShared = 2 * kBlock + 5;
  StepPlan fork = Join(1, {9, 4, 30, 31}, kShared);
  fork.copies.push_back({GroupId(0), BlockId(7), BlockId(30)});
  for (size_t i = kShared; i < prompt_.size(); ++i) fork.tokens[i] = TokenId(3);
  Run(fork, 12);
  // Slot 2 sees the original as it was, and what slot 1 wrote is not in it.
  StepPlan again = Join(2, {9, 4, 32, 33}, kShared);
  again.copies.push_back({GroupId(0), BlockId(7), BlockId(32)});
  EXPECT_EQ(Run(again, 12), expected);
  StepPlan from_fork = Join(3, {9, 4, 34, 35}, kPromptTokens - 1);
  from_fork.copies.push_back({GroupId(0), BlockId(30), BlockId(34)});
  EXPECT_NE(Run(from_fork, 12), expected);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, RestoreTest, testing::ValuesIn(kKvTypes),
                         [](const auto& type) { return std::string(NameOfKvType(type.param)); });

}  // namespace
}  // namespace tandem
