// The prefix cache behind the engine: who computes, who waits, who takes over, and that nobody ever
// reads another's state (the executor checks every entry that a row reads).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/driver.h"
#include "engine/testing/prompts.h"

namespace tandem::testing {
namespace {

void ExpectAllAsAlone(EngineDriver& driver) {
  for (const auto& [id, record] : driver.records()) driver.CheckAnswer(record);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
}

TEST(EnginePrefix, ALaterRequestStartsBehindWhatAnEarlierOneComputed) {
  EngineDriver driver(CachingConfig());
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 100, 10)).ok());
  driver.Drain(100);
  const int64_t first = driver.executor().tokens_run();
  ASSERT_TRUE(driver.Arrive(Prompt(2, 0, 100, 10)).ok());
  driver.Drain(100);
  EXPECT_EQ(driver.executor().tokens_run() - first, first - 96) << "6 blocks of 16";
  EXPECT_EQ(driver.outputs().back().cached_tokens, 96);
  const EngineStats stats = driver.engine().stats(0);
  EXPECT_EQ(stats.prefix_hit_tokens, 96);
  EXPECT_EQ(stats.prefix_query_tokens, 220);
  EXPECT_EQ(stats.prefix_missed.tail, 4);
  // The first 96 tokens are in parts that have been reused once, the others in fresh ones.
  int64_t reused = 0;
  int64_t fresh_hits = 0;
  for (const PrefixClassFigures& c : stats.prefix_classes) {
    if (c.reuses == 1) reused += c.parts;
    if (c.reuses == 0 && c.first_token_from == 0 && !c.continues) fresh_hits = c.hits;
  }
  EXPECT_EQ(fresh_hits, 6);
  EXPECT_EQ(reused, 6);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, SixteenThatArriveTogetherComputeTheCommonPartOnce) {
  EngineDriver driver(CachingConfig(2000));
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 1024, 16)).ok());
  driver.Advance();
  EXPECT_EQ(driver.engine().stats(0).requests_awaiting_prefix, 15);
  driver.Drain(1000);
  // Of each prompt 16 own tokens, and 3 of the 4 outputs are run.
  EXPECT_EQ(driver.executor().tokens_run(), 1024 + 16 * (16 + 3));
  for (const RequestOutput& output : driver.outputs()) {
    EXPECT_EQ(output.cached_tokens, output.id == RequestId(1) ? 0 : 1024);
  }
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, WhoAwaitsDoesNotBlockThoseBehind) {
  EngineConfig config = CachingConfig();
  config.pipeline_depth = 0;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 512, 8)).ok());
  ASSERT_TRUE(driver.Arrive(Prompt(2, 0, 512, 8)).ok());
  ASSERT_TRUE(driver.Arrive(Prompt(3, 1, 8, 8)).ok());
  driver.Advance();
  const Scheduler& scheduler = driver.engine().scheduler();
  EXPECT_EQ(scheduler.sequence(*scheduler.Find(RequestId(2))).state, RequestState::kAwaitingPrefix);
  EXPECT_EQ(scheduler.sequence(*scheduler.Find(RequestId(3))).admission, 2u);
  driver.Drain(1000);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, AWaiterTakesOverWhenTheFirstIsCancelled) {
  for (int32_t steps : {0, 1, 2}) {
    EngineDriver driver(CachingConfig(2000));
    for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 1024, 16)).ok());
    driver.Advance();
    for (int32_t i = 0; i < steps; ++i) {
      driver.FinishStep();
      driver.Advance();
    }
    driver.Cancel(RequestId(1));
    driver.FinishStep();  // as many steps as may be were in flight
    driver.Advance();
    EXPECT_EQ(driver.engine().stats(0).requests_awaiting_prefix, 2) << "the second computes now";
    driver.Cancel(RequestId(3));
    driver.Drain(1000);
    EXPECT_EQ(driver.records().at(RequestId(2)).finish, FinishReason::kLength);
    EXPECT_EQ(driver.records().at(RequestId(3)).finish, FinishReason::kCancelled);
    EXPECT_EQ(driver.records().at(RequestId(4)).finish, FinishReason::kLength);
    EXPECT_LE(driver.executor().tokens_run(), 2 * 1024 + 4 * 20);
    ExpectAllAsAlone(driver);
  }
}

TEST(EnginePrefix, TenantsShareNothing) {
  EngineDriver driver(CachingConfig());
  for (uint64_t id = 1; id <= 3; ++id) {
    Request request = Prompt(id, 0, 100, 10);
    request.cache_salt = id == 2 ? "other" : "";
    ASSERT_TRUE(driver.Arrive(std::move(request)).ok());
    driver.Drain(100);
    EXPECT_EQ(driver.outputs().back().cached_tokens, id == 3 ? 96 : 0);
  }
  EXPECT_EQ(driver.engine().stats(0).prefix_missed.other_identity, 100);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, ScoringAPromptRunsAllOfIt) {
  EngineDriver driver(CachingConfig());
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 100, 10)).ok());
  driver.Drain(100);
  Request scored = Prompt(2, 0, 100, 10);
  scored.sampling.top_logprobs = 2;
  scored.prompt_logprobs = true;
  ASSERT_TRUE(driver.Arrive(std::move(scored)).ok());
  driver.Drain(100);
  EXPECT_EQ(driver.outputs().back().cached_tokens, 0);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, APreemptedRequestFindsWhatItHadComputed) {
  EngineConfig config = CachingConfig(40);
  config.pipeline_depth = 0;
  config.reservation = Reservation::kOnDemand;
  EngineDriver driver(config);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 0, 100, 120)).ok());
  driver.Drain(10000);
  const EngineStats stats = driver.engine().stats(0);
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.prefix_hit_tokens, 0) << "the prompts differ: only own state can be found";
  ExpectAllAsAlone(driver);
}

// Steps of known cost, one at a time, so that deadlines are predicted from the first request on.
EngineConfig PredictingConfig(int32_t max_running) {
  EngineConfig config = CachingConfig();
  config.pipeline_depth = 0;
  config.max_running = max_running;
  config.cost = LinearCost{10'000, 100, 0};
  return config;
}

Request Due(Request request, TimeNs deadline) {
  request.deadline = deadline;
  return request;
}

TEST(EnginePrefix, WhoeverWaitsIsPredictedToStartBehindWhatIsStored) {
  EngineDriver driver(PredictingConfig(1));
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 1600, 10)).ok());
  driver.Drain(1000);
  ASSERT_TRUE(driver.Arrive(Prompt(2, 1, 0, 10, 10)).ok());
  driver.Advance();
  // Waits for the second; computes 10 of its 1,610 tokens: 41 us instead of 231.
  ASSERT_TRUE(driver.Arrive(Due(Prompt(3, 0, 1600, 10), 200'000)).ok());
  EXPECT_TRUE(driver.Arrive(Due(Prompt(4, 2, 0, 10), 300'000)).ok())
      << driver.engine().refusal()->predicted << " ns are predicted";
  ASSERT_TRUE(driver.Arrive(Prompt(5, 2, 0, 10)).ok());
  EXPECT_FALSE(driver.Arrive(Due(Prompt(6, 3, 0, 10), 120'000)).ok()) << "two run before it";
  driver.Drain(1000);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, WhoAwaitsAPrefixIsPartOfThePrediction) {
  EngineDriver driver(PredictingConfig(2));
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 1024, 16, 900)).ok());
  driver.Advance();
  ASSERT_TRUE(driver.Arrive(Due(Prompt(2, 0, 1024, 16, 300), 3'600'000)).ok());
  driver.FinishStep();
  driver.Advance();
  ASSERT_EQ(driver.engine().stats(0).requests_awaiting_prefix, 1);
  // The place that is free belongs to the second: this one would start after its 300 outputs.
  EXPECT_FALSE(driver.Arrive(Due(Prompt(3, 1, 0, 16, 300), 4'200'000)).ok());
  EXPECT_TRUE(driver.Arrive(Due(Prompt(4, 1, 0, 16, 300), 7'500'000)).ok());
  driver.Drain(10'000);
  ExpectAllAsAlone(driver);
}

// Five requests of 1,040 tokens each are in a pool of 1,600, because 1,024 of them are the same.
TEST(EnginePrefix, SharedBlocksAreNoReasonToPredictAWait) {
  EngineConfig config = PredictingConfig(8);
  config.groups = {PagedGroup(16, 100)};
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 1024, 16, 50)).ok());
  driver.Advance();
  for (uint64_t id = 2; id <= 4; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 1024, 16, 50)).ok());
  while (driver.engine().stats(0).requests_running < 4) {
    ASSERT_TRUE(driver.FinishStep());
    driver.Advance();
  }
  // 16 tokens and 20 outputs beside the others; behind them it would be more than 500 us later.
  EXPECT_TRUE(driver.Arrive(Due(Prompt(5, 0, 1024, 16, 20), 300'000)).ok());
  driver.Advance();
  EXPECT_FALSE(driver.Arrive(Due(Prompt(6, 1, 1024, 16, 20), 600'000)).ok())
      << "what is not shared has to wait";
  driver.Drain(10'000);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, APreemptedRequestIsPredictedToReturnToWhatIsStored) {
  EngineConfig config = PredictingConfig(3);
  config.groups = {PagedGroup(16, 48)};
  config.context_length = 760;
  config.reservation = Reservation::kOnDemand;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(Prompt(1, 1, 0, 32, 100)).ok());
  ASSERT_TRUE(driver.Arrive(Prompt(2, 2, 0, 640, 100)).ok());
  driver.Advance();
  while (driver.engine().stats(0).preemptions == 0) {
    ASSERT_TRUE(driver.FinishStep());
    driver.Advance();
  }
  const Scheduler& scheduler = driver.engine().scheduler();
  const Sequence& victim = scheduler.sequence(*scheduler.Find(RequestId(2)));
  ASSERT_EQ(victim.state, RequestState::kPreempted);
  const Sequence& first = scheduler.sequence(*scheduler.Find(RequestId(1)));
  // It goes on beside the first one, behind what is stored; the newcomer enters when that one ends.
  const double until_then = 10'100.0 * (100 - first.outputs());
  ASSERT_FALSE(driver.Arrive(Due(Prompt(3, 3, 0, 32, 20), 1)).ok());
  const auto predicted = static_cast<double>(driver.engine().refusal()->predicted);
  EXPECT_GT(predicted, until_then + 20 * 10'100);
  EXPECT_LT(predicted, until_then + 20 * 10'100 + 60'000) << "640 tokens again would take 64 us";
  driver.Drain(10'000);
  ExpectAllAsAlone(driver);
}

// Two share a long beginning: who of them gives way finds it again, because the other holds it.
TEST(EnginePrefix, TheVictimIsTheOneWhoseStateOthersKeep) {
  EngineConfig config = CachingConfig(48);
  config.pipeline_depth = 0;
  config.reservation = Reservation::kOnDemand;
  config.context_length = 760;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(Prompt(1, 1, 0, 32, 80)).ok());
  ASSERT_TRUE(driver.Arrive(Prompt(2, 0, 512, 16, 80)).ok());
  ASSERT_TRUE(driver.Arrive(Prompt(3, 0, 512, 16, 80)).ok());
  ASSERT_TRUE(driver.Arrive(Prompt(4, 2, 0, 100, 80)).ok());
  driver.Advance();
  while (driver.engine().stats(0).preemptions == 0) {
    ASSERT_TRUE(driver.FinishStep());
    driver.Advance();
  }
  const auto preempted = [&](uint64_t id) {
    const Scheduler& scheduler = driver.engine().scheduler();
    return scheduler.sequence(*scheduler.Find(RequestId(id))).preemptions;
  };
  // The third has run 545 positions, of which 512 stay; the fourth 117 that may all go.
  EXPECT_EQ(preempted(3), 1);
  EXPECT_EQ(preempted(4), 0);
  driver.Drain(10'000);
  ExpectAllAsAlone(driver);
}

// Random arrivals of a few families, cancels, failures and refused plans over pools that are too
// small for all of it, with and without a window group.
void RunRandom(uint32_t seed, bool window) {
  std::mt19937 random(seed);
  const auto draw = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  EngineConfig config = CachingConfig(draw(30, 80));
  config.groups = {PagedGroup(4, draw(60, 160))};
  if (window) config.groups.push_back(WindowGroup(8, draw(40, 90), 20));
  config.context_length = 200;
  config.pipeline_depth = draw(0, 2);
  config.max_running = draw(1, 6);
  config.token_budget = draw(config.max_running, 64);
  config.chunk_tokens = draw(1, 40);
  config.reserve_tokens = draw(0, 20);
  config.reservation = static_cast<Reservation>(draw(0, 2));
  config.preemption = static_cast<PreemptionRule>(draw(0, 1));
  config.prefix_cache->retention = static_cast<RetentionKind>(draw(0, 1));
  EngineDriver driver(config);
  uint64_t id = 0;
  for (int32_t i = 0; i < 400; ++i) {
    const int32_t what = draw(0, 99);
    if (what < 30) {
      Request request = Prompt(++id, draw(0, 2), draw(0, 40), draw(1, 12), draw(1, 20));
      request.cache_salt = draw(0, 4) == 0 ? "salt" : "";
      if (draw(0, 3) == 0) request.max_output_tokens.reset();
      if (!request.max_output_tokens) {
        request.stop_tokens = {TokenId(draw(0, 9)), TokenId(draw(0, kFamilyVocab - 1))};
        for (int32_t t = 0; t < 60; ++t) request.stop_tokens.push_back(TokenId(t * 16));
      }
      (void)driver.Arrive(std::move(request));
    } else if (what < 36 && id > 0) {
      driver.Cancel(RequestId(static_cast<uint64_t>(draw(1, static_cast<int32_t>(id)))));
    } else if (what < 38) {
      driver.executor().FailNext();
    } else if (what < 39) {
      driver.executor().RefuseNext();
    } else {
      driver.SetNow(driver.now() + draw(1, 1000));
      driver.Advance();
      driver.FinishStep();
    }
    ASSERT_TRUE(driver.fault().ok()) << "seed " << seed << ": " << driver.fault().ToString();
  }
  driver.Drain(100000);
  ExpectAllAsAlone(driver);
}

TEST(EnginePrefix, RandomRunsAnswerAsAlone) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    RunRandom(seed, seed % 2 == 1);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace tandem::testing
