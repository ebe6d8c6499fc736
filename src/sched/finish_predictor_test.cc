#include "sched/finish_predictor.h"

#include <gtest/gtest.h>

#include "core/cost.h"
#include "sched/scheduler_config.h"

namespace tandem {
namespace {

SchedulerConfig Config(int32_t max_running) {
  StateGroup group;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"k", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = 16;
  SchedulerConfig config;
  config.groups = {{group, 4096}};
  config.max_running = max_running;
  config.token_budget = 512;
  config.chunk_tokens = 512;
  return config;
}

constexpr int64_t kRoom = 65'536;

const CostModel kCost(LinearCost{10'000, 100, 0}, {});

Load Waiting(int32_t prompt, int32_t outputs) {
  Load load;
  load.prefill_tokens = prompt;
  load.outputs = outputs;
  load.reserved_tokens = prompt + outputs;
  return load;
}

TEST(OutputLengths, TakesTheLimitUntilAnswersAreMeasured) {
  OutputLengths lengths;
  EXPECT_EQ(lengths.Remaining(100, 100, 0), 100);
  EXPECT_EQ(lengths.Remaining(std::nullopt, 4000, 10), 3990);
}

TEST(OutputLengths, MeasuresTheShareOfTheLimitThatIsUsed) {
  OutputLengths lengths;
  for (int i = 0; i < 1000; ++i) lengths.Observe(1 + i % 100, 400);  // up to a quarter
  EXPECT_NEAR(lengths.Remaining(400, 400, 0), 90, 10);
  EXPECT_NEAR(lengths.Remaining(4000, 4000, 0), 900, 100);
  EXPECT_EQ(lengths.Remaining(std::nullopt, 4000, 0), 4000) << "none without a limit was seen";
  // Who has got that far is one of the longer ones.
  EXPECT_GT(lengths.Remaining(400, 400, 90) + 90, lengths.Remaining(400, 400, 0));
  EXPECT_EQ(lengths.Remaining(400, 400, 400), 1);
}

TEST(OutputLengths, WhoeverUsesTheLimitUpIsPredictedToDoSo) {
  OutputLengths lengths;
  for (int i = 0; i < 100; ++i) lengths.Observe(16 + i, 16 + i);
  EXPECT_EQ(lengths.Remaining(200, 200, 0), 200);
}

TEST(FinishPredictor, AloneItIsTheSumOfTheSteps) {
  FinishPredictor predictor(Config(4));
  const auto alone = predictor.Alone(kCost, Waiting(1024, 11));
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->first_token, 2 * 10'000 + 1024 * 100);
  EXPECT_EQ(alone->finish, alone->first_token + 10 * 10'100);
}

TEST(FinishPredictor, WaitsForAPlaceAndForWhoeverIsAhead) {
  FinishPredictor predictor(Config(1));
  Load running;
  running.history = 100;
  running.outputs = 50;
  predictor.Begin(0, 0, kRoom);
  predictor.Add(running, true);
  predictor.Add(Waiting(512, 11), false);
  const auto predicted = predictor.Run(kCost, Waiting(512, 1), 1);
  ASSERT_TRUE(predicted.has_value());
  const TimeNs prompt = 10'000 + 51'200;
  EXPECT_NEAR(static_cast<double>(predicted->finish), 50 * 10'100 + prompt + 10 * 10'100 + prompt,
              10);
  EXPECT_EQ(predicted->first_token, predicted->finish);
}

TEST(FinishPredictor, StartsWhenTheStepsInFlightAreOver) {
  FinishPredictor predictor(Config(1));
  Load last;  // its last output is being chosen
  last.history = 100;
  last.due = 400;
  predictor.Begin(0, 500, kRoom);
  predictor.Add(last, true);
  const auto predicted = predictor.Run(kCost, Waiting(512, 1), 0);
  ASSERT_TRUE(predicted.has_value());
  EXPECT_EQ(predicted->finish, 500 + 10'000 + 51'200);
  EXPECT_EQ(predicted->others_late, 1);
}

TEST(FinishPredictor, WaitsForMemory) {
  FinishPredictor predictor(Config(4));
  Load running;
  running.history = 100;
  running.outputs = 50;
  running.reserved_tokens = 1000;
  predictor.Begin(0, 0, 24);
  predictor.Add(running, true);
  const auto predicted = predictor.Run(kCost, Waiting(512, 1), 0);
  ASSERT_TRUE(predicted.has_value());
  EXPECT_GT(predicted->finish, 50 * 10'100);
  Load sharing = Waiting(512, 1);  // most of its prompt is in blocks that the other one holds
  sharing.history = 500;
  sharing.prefill_tokens = 12;
  sharing.reserved_tokens = 13;
  EXPECT_LT(predictor.Run(kCost, sharing, 0)->finish, 2 * 10'100);
}

TEST(FinishPredictor, PromptsThatCameWillComeAgain) {
  FinishPredictor predictor(Config(8));
  predictor.Begin(0, 0, kRoom);
  const auto quiet = predictor.Run(kCost, Waiting(16, 1000), 0);
  // Prompts that take half of the time, for long.
  const Load load = Waiting(5000, 1);  // 0.5 ms
  TimeNs now = 0;
  for (int i = 0; i < 60'000; ++i) predictor.Accepted(kCost, load, now += kNsPerMs);
  predictor.Begin(now, 0, kRoom);
  const auto busy = predictor.Run(kCost, Waiting(16, 1000), 0);
  EXPECT_NEAR(static_cast<double>(busy->finish) / static_cast<double>(quiet->finish), 2, 0.1);
  predictor.Begin(now + 100 * kNsPerS, 0, kRoom);
  const auto later = predictor.Run(kCost, Waiting(16, 1000), 0);
  EXPECT_NEAR(static_cast<double>(later->finish) / static_cast<double>(quiet->finish), 1, 0.01);
}

TEST(FinishPredictor, PromptsThatWillComeDoNotSlowWhomTheyFindNoPlaceBeside) {
  FinishPredictor predictor(Config(1));
  const auto quiet = predictor.Alone(kCost, Waiting(16, 1000));
  TimeNs now = 0;
  for (int i = 0; i < 60'000; ++i) predictor.Accepted(kCost, Waiting(5000, 1), now += kNsPerMs);
  predictor.Begin(now, 0, kRoom);
  EXPECT_EQ(predictor.Run(kCost, Waiting(16, 1000), 0)->finish, quiet->finish);
}

TEST(FinishPredictor, KnowsNothingBeforeStepsAreMeasured) {
  FinishPredictor predictor(Config(4));
  predictor.Begin(0, 0, kRoom);
  EXPECT_FALSE(predictor.Run(CostModel(std::nullopt, {}), Waiting(16, 4), 0).has_value());
}

}  // namespace
}  // namespace tandem
