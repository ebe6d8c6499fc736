#include "plan/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/rng.h"
#include "plan/simulation_report.h"

namespace tandem {
namespace {

Scenario Basic() {
  Scenario s;
  s.max_sequences = 4;
  s.token_budget = 64;
  s.chunk_tokens = 64;
  s.step = {1'000'000, 10'000, 1};
  return s;
}

ScenarioRequest Make(std::string id, TimeNs arrival, int32_t prompt, int32_t output) {
  ScenarioRequest r;
  r.id = std::move(id);
  r.arrival = arrival;
  r.prompt_tokens = prompt;
  r.output_tokens = output;
  r.max_tokens = output;
  return r;
}

TEST(Simulator, ARequestAloneTakesItsUnloadedTime) {
  for (Policy policy : {Policy::kStatic, Policy::kContinuous, Policy::kChunked}) {
    for (const std::vector<int32_t>& prepared : {std::vector<int32_t>{}, {1, 16, 64}}) {
      Scenario s = Basic();
      s.policy = policy;
      s.prepared_tokens = prepared;
      s.requests = {Make("a", 5'000, 1000, 20)};
      const Simulation result = Simulate(s, false).value();
      EXPECT_EQ(result.requests[0].finished - 5'000, UnloadedTime(s, s.requests[0]));
    }
  }
}

TEST(Simulator, EqualScenariosGiveEqualReports) {
  Scenario s = Basic();
  AddWorkload({.count = 200,
               .rate_per_s = 100,
               .prompt_tokens_min = 1,
               .prompt_tokens_max = 300,
               .output_tokens_min = 1,
               .output_tokens_max = 40,
               .deadline_factor = 3,
               .seed = 5},
              &s);
  s.learn_cost = true;
  s.itl_target = 2 * kNsPerMs;
  const std::string first = ToJson(s, Simulate(s, true).value());
  EXPECT_EQ(first, ToJson(s, Simulate(s, true).value()));
}

TEST(Simulator, AnAnswerWithoutALimitEndsByItsStopToken) {
  Scenario s = Basic();
  s.requests = {Make("a", 0, 10, 7)};
  s.requests[0].max_tokens.reset();
  const Simulation result = Simulate(s, true).value();
  EXPECT_EQ(result.requests[0].finish, FinishReason::kStop);
  EXPECT_EQ(result.requests[0].outputs, 7);
  EXPECT_EQ(result.iterations, 8) << "the stop token takes a step and is no output";
}

TEST(Simulator, DeeperPipelinesGiveTheSameAnswers) {
  for (int32_t depth : {0, 1, 2}) {
    Scenario s = Basic();
    s.pipeline_depth = depth;
    AddWorkload({.count = 50,
                 .rate_per_s = 200,
                 .prompt_tokens_min = 1,
                 .prompt_tokens_max = 200,
                 .output_tokens_min = 1,
                 .output_tokens_max = 30,
                 .seed = 9},
                &s);
    const Simulation result = Simulate(s, false).value();
    for (size_t i = 0; i < s.requests.size(); ++i) {
      EXPECT_EQ(result.requests[i].outputs, s.requests[i].output_tokens) << depth;
    }
  }
}

TEST(Simulator, WhatCanNeverFitIsRefusedAndTheRestRuns) {
  Scenario s = Basic();
  s.kv_capacity_bytes = 100 * s.model.kv_bytes_per_token;
  s.requests = {Make("big", 0, 150, 2), Make("small", 0, 10, 2)};
  const Simulation result = Simulate(s, true).value();
  EXPECT_EQ(result.requests[0].refused.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(result.requests[1].outputs, 2);
  EXPECT_NE(ToText(s, result).find("refused"), std::string::npos);
}

// Spec S3: under a target the gaps stay below it while a feasible budget exists, whether the cost
// is told or learnt, and chunks shrink as the context grows.
TEST(Simulator, AnItlTargetBoundsTheGapsAndShrinksTheChunks) {
  for (bool learn : {false, true}) {
    Scenario s = Basic();
    s.step = {26'220'000, 30'400, 3};
    s.token_budget = s.chunk_tokens = 2048;
    s.itl_target = 60 * kNsPerMs;
    s.learn_cost = learn;
    s.requests = {Make("decode", 0, 64, 1500)};
    for (int i = 0; i < 3; ++i) {
      s.requests.push_back(Make("long" + std::to_string(i), (i + 1) * kNsPerS, 16'000, 4));
    }
    const Simulation result = Simulate(s, true).value();
    EXPECT_LE(result.requests[0].max_itl, learn ? s.itl_target * 103 / 100 : s.itl_target);
    int32_t early = 0;
    int32_t late = 0;
    for (const SimulatedStep& step : result.steps) {
      for (const SimulatedRow& row : step.rows) {
        if (row.request != 3 || !row.prefill) continue;
        if (row.history_tokens < 2000) early = std::max(early, row.new_tokens);
        if (row.history_tokens > 12'000 && row.history_tokens < 15'000) {
          late = std::max(late, row.new_tokens);
        }
      }
    }
    EXPECT_GT(early, 500) << "the target is used";
    EXPECT_GT(late, 100);
    EXPECT_LT(late, early * 3 / 4) << "a chunk behind a long context is shorter";
  }
}

TEST(Simulator, AnInfeasibleItlTargetStillLetsPromptsThrough) {
  Scenario s = Basic();
  s.itl_target = 1;
  s.requests = {Make("decode", 0, 8, 400), Make("prompt", 10 * kNsPerMs, 320, 1)};
  const Simulation result = Simulate(s, true).value();
  EXPECT_EQ(result.requests[1].outputs, 1);
  EXPECT_LT(result.requests[1].finished, result.requests[0].finished);
}

TEST(Simulator, DeadlinesOrderTheQueueBySlack) {
  Scenario s = Basic();
  s.max_sequences = 1;
  s.requests = {Make("first", 0, 10, 50), Make("patient", 1, 10, 5), Make("urgent", 2, 10, 5)};
  s.requests[1].deadline = kNsPerS;
  s.requests[2].deadline = 200 * kNsPerMs;
  const Simulation result = Simulate(s, false).value();
  EXPECT_LT(result.requests[2].finished, result.requests[1].finished);
  s.heed_deadlines = false;
  const Simulation fifo = Simulate(s, false).value();
  EXPECT_GT(fifo.requests[2].finished, fifo.requests[1].finished);
}

TEST(Simulator, WhatCannotMeetItsDeadlineIsRefusedWithTheNumbers) {
  Scenario s = Basic();
  s.requests = {Make("hopeless", 0, 1000, 50), Make("fine", 0, 10, 5), Make("slow", 0, 640, 5)};
  s.requests[0].deadline = 30 * kNsPerMs;
  s.requests[1].deadline = 30 * kNsPerMs;
  s.requests[2].ttft_target = 5 * kNsPerMs;
  const Simulation result = Simulate(s, false).value();
  EXPECT_EQ(result.requests[0].refused.code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(result.requests[0].refusal.has_value());
  EXPECT_FALSE(result.requests[0].refusal->first_token);
  EXPECT_EQ(result.requests[0].refusal->allowed, 30 * kNsPerMs);
  EXPECT_NEAR(static_cast<double>(result.requests[0].refusal->predicted),
              static_cast<double>(UnloadedTime(s, s.requests[0])), 3e6);
  EXPECT_TRUE(result.requests[1].Good(s.requests[1]));
  ASSERT_TRUE(result.requests[2].refusal.has_value());
  EXPECT_TRUE(result.requests[2].refusal->first_token);
  EXPECT_EQ(result.stats.requests_refused_for_deadline, 2);
}

TEST(Simulator, TenThousandRandomCancelsLeaveNothingBehind) {
  SplitMix64 random(1);
  for (int round = 0; round < 10; ++round) {
    Scenario s = Basic();
    s.max_sequences = 1 + static_cast<int32_t>(random.Below(12));
    s.pipeline_depth = static_cast<int32_t>(random.Below(3));
    s.block_tokens = 1 + static_cast<int32_t>(random.Below(16));
    s.reservation = static_cast<Reservation>(random.Below(3));
    s.preemption = static_cast<PreemptionRule>(random.Below(2));
    s.policy = static_cast<Policy>(random.Below(3));
    s.reserve_tokens = 8;
    AddWorkload({.count = 1000,
                 .rate_per_s = 300,
                 .prompt_tokens_min = 1,
                 .prompt_tokens_max = 200,
                 .output_tokens_min = 1,
                 .output_tokens_max = 60,
                 .seed = random.Next()},
                &s);
    s.kv_capacity_bytes =
        (300 + static_cast<int64_t>(random.Below(1000))) * s.model.kv_bytes_per_token;
    for (ScenarioRequest& r : s.requests) {
      if (random.Below(2) == 0) r.max_tokens.reset();
      r.cancel_at = r.arrival + static_cast<TimeNs>(random.Below(2'000'000'000));
    }
    // Simulate checks integrity and that no work is left.
    const Result<Simulation> result = Simulate(s, false);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->stats.blocks_in_use, 0);
    EXPECT_EQ(result->stats.requests_running + result->stats.requests_waiting, 0);
    EXPECT_GT(result->stats.requests_cancelled, 100);
    EXPECT_EQ(result->stats.requests_cancelled + result->stats.requests_finished +
                  result->stats.requests_refused,
              1000);
    EXPECT_EQ(result->stats.cancels_stopped, result->stats.cancels_released);
  }
}

// Spec S7: no livelock, the first to enter is never preempted, and what is computed again is
// bounded: a request gives way at most once per token that those before it grow by.
TEST(Simulator, UnderPressureEveryRequestFinishesAndRecomputationIsBounded) {
  SplitMix64 random(2);
  int64_t preemptions = 0;
  for (int round = 0; round < 150; ++round) {
    Scenario s = Basic();
    s.max_sequences = 2 + static_cast<int32_t>(random.Below(10));
    s.block_tokens = 1 + static_cast<int32_t>(random.Below(16));
    s.reservation = random.Below(2) == 0 ? Reservation::kOnDemand : Reservation::kReserveTokens;
    s.preemption = static_cast<PreemptionRule>(random.Below(2));
    s.policy = static_cast<Policy>(random.Below(3));
    s.pipeline_depth = static_cast<int32_t>(random.Below(3));
    s.reserve_tokens = static_cast<int32_t>(random.Below(10));
    AddWorkload({.count = 40,
                 .rate_per_s = 500,
                 .prompt_tokens_min = 1,
                 .prompt_tokens_max = 60,
                 .output_tokens_min = 1,
                 .output_tokens_max = 80,
                 .seed = random.Next()},
                &s);
    for (ScenarioRequest& r : s.requests)
      if (random.Below(3) > 0) r.max_tokens.reset();
    const auto tokens =
        static_cast<int64_t>(160 + s.block_tokens) + static_cast<int64_t>(random.Below(200));
    s.kv_capacity_bytes = tokens * s.model.kv_bytes_per_token;
    const Result<Simulation> result = Simulate(s, true);
    ASSERT_TRUE(result.ok()) << round << ": " << result.status().ToString();
    int64_t outputs_before = 0;
    for (size_t i = 0; i < s.requests.size(); ++i) {
      const SimulatedRequest& r = result->requests[i];
      ASSERT_TRUE(r.finish == FinishReason::kLength || r.finish == FinishReason::kStop) << round;
      EXPECT_EQ(r.outputs, s.requests[i].output_tokens);
      EXPECT_LE(r.preemptions, outputs_before) << round;
      EXPECT_LE(r.recomputed, int64_t{r.preemptions} * (r.computed + 1)) << round;
      outputs_before += r.outputs + 1;
    }
    EXPECT_EQ(result->requests[0].preemptions, 0);
    preemptions += result->stats.preemptions;
  }
  EXPECT_GT(preemptions, 500) << "there was pressure";
}

// The two rules on one load: the default computes less again.
TEST(Simulator, TheDefaultRuleRecomputesLessThanLastAdmitted) {
  int64_t recomputed[2] = {0, 0};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (PreemptionRule rule : {PreemptionRule::kLeastRecompute, PreemptionRule::kLastAdmitted}) {
      Scenario s = Basic();
      s.max_sequences = 8;
      s.block_tokens = 16;
      s.reservation = Reservation::kOnDemand;
      s.preemption = rule;
      AddWorkload({.count = 60,
                   .rate_per_s = 100,
                   .prompt_tokens_min = 16,
                   .prompt_tokens_max = 400,
                   .output_tokens_min = 50,
                   .output_tokens_max = 300,
                   .seed = seed},
                  &s);
      s.kv_capacity_bytes = 2000 * s.model.kv_bytes_per_token;
      recomputed[static_cast<int>(rule)] += Simulate(s, false)->stats.recomputed_tokens;
    }
  }
  EXPECT_LT(recomputed[0], recomputed[1]);
}

TEST(SimulationReport, ShowsManyRequestsInPart) {
  Scenario s = Basic();
  AddWorkload({.count = 100,
               .rate_per_s = 100,
               .prompt_tokens_min = 1,
               .prompt_tokens_max = 9,
               .output_tokens_min = 1,
               .output_tokens_max = 9,
               .seed = 1},
              &s);
  const std::string text = ToText(s, Simulate(s, true).value());
  EXPECT_NE(text.find("and 60 more"), std::string::npos);
}

TEST(SimulationReport, ThePictureEscapesNames) {
  Scenario s = Basic();
  s.requests = {Make("<a&b>", 0, 4, 2)};
  const std::string svg = ToSvg(s, Simulate(s, true).value());
  EXPECT_NE(svg.find("&lt;a&amp;b&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("<a&b>"), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace tandem
