// Prompts that come from prefill nodes, and prompts that go to decode nodes, behind the engine:
// what is ordered when, who waits for whom, and that no block is used again while somebody outside
// may still touch it (the fake port writes over what has not drained).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/driver.h"
#include "engine/testing/prompts.h"

namespace tandem::testing {
namespace {

EngineConfig FetchingConfig(int32_t blocks = 400) {
  EngineConfig config = CachingConfig(blocks);
  config.fetch = {.max_fetches = 8, .min_tokens = 16, .max_attempts = 2};
  return config;
}

Request ForAnother(Request request) {
  request.send = SendId(request.id.value() + 1000);
  return request;
}

RequestState StateOf(const EngineDriver& driver, uint64_t id) {
  const Scheduler& scheduler = const_cast<EngineDriver&>(driver).engine().scheduler();
  return scheduler.sequence(*scheduler.Find(RequestId(id))).state;
}

void ExpectAllAsAlone(EngineDriver& driver) {
  for (const auto& [id, record] : driver.records()) driver.CheckAnswer(record);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
}

TEST(EngineHandoff, ADecodeNodeRunsTheLastPromptTokenAlone) {
  for (const int32_t depth : {0, 1, 2}) {
    for (const Policy policy : {Policy::kStatic, Policy::kContinuous, Policy::kChunked}) {
      EngineConfig config = FetchingConfig();
      config.pipeline_depth = depth;
      config.policy = policy;
      EngineDriver driver(config);
      driver.Handoff(FakeHandoffPort::Peers(1));
      ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 100, 10)).ok());
      driver.Advance();
      EXPECT_EQ(StateOf(driver, 1), RequestState::kAwaitingKv);
      EXPECT_EQ(driver.executor().tokens_run(), 0);
      EXPECT_EQ(driver.engine().stats(0).handoff.requests_awaiting_kv, 1);
      EXPECT_TRUE(driver.engine().HasWork());
      driver.Handoff(driver.port().Arrive(FetchId(1)));
      driver.Handoff(driver.port().Drain(FetchId(1)));
      driver.Drain(100);
      EXPECT_EQ(driver.executor().tokens_run(), 1 + 3) << "the last output is not run";
      const HandoffStats stats = driver.engine().stats(0).handoff;
      EXPECT_EQ(stats.fetched_requests, 1);
      EXPECT_EQ(stats.fetched_tokens, 109);
      EXPECT_EQ(stats.open, 0);
      ExpectAllAsAlone(driver);
    }
  }
}

TEST(EngineHandoff, SixteenThatShareAPromptFetchItOnce) {
  EngineDriver driver(FetchingConfig(2000));
  driver.Handoff(FakeHandoffPort::Peers(1));
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 1024, 2)).ok());
  driver.Advance();
  ASSERT_EQ(driver.port().fetches().size(), 1u);
  EXPECT_EQ(driver.engine().stats(0).requests_awaiting_prefix, 15);
  driver.Handoff(driver.port().Arrive(FetchId(1)));
  driver.Drain(1000);
  EXPECT_EQ(driver.port().fetches().size(), 1u) << "two tokens each are computed here";
  EXPECT_LE(driver.executor().tokens_run(), 16 * 5);
  driver.Handoff(driver.port().Drain(FetchId(1)));
  ExpectAllAsAlone(driver);
}

TEST(EngineHandoff, WhoeverAwaitedAFetchThatFailsAwaitsTheNextAttempt) {
  EngineDriver driver(FetchingConfig(2000));
  driver.Handoff(FakeHandoffPort::Peers(1));
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 512, 2)).ok());
  driver.Advance();
  for (const uint64_t attempt : {1, 2}) {
    ASSERT_EQ(driver.port().fetches().count(FetchId(attempt)), 1u);
    EXPECT_EQ(StateOf(driver, 1), RequestState::kAwaitingKv);
    EXPECT_EQ(driver.engine().stats(0).requests_awaiting_prefix, 3);
    driver.Handoff(driver.port().Fail(FetchId(attempt)));
    driver.Advance();
  }
  EXPECT_EQ(StateOf(driver, 1), RequestState::kPrefill) << "computed here";
  EXPECT_EQ(driver.engine().stats(0).handoff.fallbacks, 1);
  driver.port().Scribble(7);
  for (const uint64_t attempt : {2, 1}) driver.Handoff(driver.port().Drain(FetchId(attempt)));
  driver.Drain(1000);
  EXPECT_LE(driver.executor().tokens_run(), 512 + 4 * 5);
  EXPECT_EQ(driver.engine().stats(0).handoff.fetches, 2);
  ExpectAllAsAlone(driver);
}

TEST(EngineHandoff, RunningRequestsKeepTheirPlaces) {
  EngineConfig config = FetchingConfig();
  config.max_running = 2;
  config.fetch.max_fetches = 3;
  EngineDriver driver(config);
  driver.Handoff(FakeHandoffPort::Peers(1));
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(driver.Arrive(Prompt(id, 0, 0, 100)).ok());
  driver.Advance();
  EXPECT_EQ(driver.port().fetches().size(), 3u) << "and the fourth waits in the queue";
  ASSERT_TRUE(driver.Arrive(Prompt(5, 0, 0, 4)).ok());
  for (uint64_t id = 1; id <= 3; ++id) driver.Handoff(driver.port().Arrive(FetchId(id)));
  driver.Advance();
  EXPECT_EQ(driver.engine().stats(0).requests_running, 2);
  EXPECT_EQ(StateOf(driver, 3), RequestState::kAwaitingKv) << "has all, and no place";
  EXPECT_EQ(StateOf(driver, 4), RequestState::kAwaitingKv);
  driver.Handoff(driver.port().Arrive(FetchId(4)));
  driver.Drain(1000);
  for (uint64_t id = 1; id <= 4; ++id) driver.Handoff(driver.port().Drain(FetchId(id)));
  EXPECT_EQ(driver.engine().stats(0).blocks_in_use, 0);
  ExpectAllAsAlone(driver);
}

TEST(EngineHandoff, ScoringAPromptRunsAllOfIt) {
  EngineDriver driver(FetchingConfig());
  driver.Handoff(FakeHandoffPort::Peers(1));
  Request scored = Prompt(1, 0, 100, 10);
  scored.sampling.top_logprobs = 2;
  scored.prompt_logprobs = true;
  ASSERT_TRUE(driver.Arrive(std::move(scored)).ok());
  driver.Drain(100);
  EXPECT_EQ(driver.engine().stats(0).handoff.fetches, 0);
  ExpectAllAsAlone(driver);
}

TEST(EngineHandoff, ASendIsPromisedInFullAndNeverGivesWay) {
  EngineConfig config = FetchingConfig(20);
  config.reservation = Reservation::kOnDemand;
  config.preemption = PreemptionRule::kLastAdmitted;
  config.pipeline_depth = 0;
  config.context_length = 300;
  config.token_budget = config.chunk_tokens = 32;
  config.max_running = 4;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 0, 20, 250)).ok());
  ASSERT_TRUE(driver.Arrive(ForAnother(Prompt(2, 0, 0, 200))).ok());
  Request late = ForAnother(Prompt(3, 0, 0, 20));
  late.deadline = 1;
  late.max_output_tokens = -4;
  late.prompt_logprobs = true;
  late.sampling.top_logprobs = 1;
  ASSERT_TRUE(driver.Arrive(std::move(late)).ok()) << "neither deadline nor limit count";
  driver.Advance();
  while (driver.FinishStep()) {
    for (const uint64_t send : {1002, 1003}) {
      if (driver.port().sends().contains(SendId(send)) &&
          driver.port().AllHandedOver(SendId(send))) {
        driver.Handoff(driver.port().DrainSend(SendId(send), true));
      }
    }
    driver.SetNow(driver.now() + 1);
    driver.Advance();
  }
  EXPECT_FALSE(driver.engine().HasWork());
  for (const uint64_t id : {2, 3}) {
    EXPECT_EQ(driver.records().at(RequestId(id)).finish, FinishReason::kLength);
    EXPECT_EQ(driver.records().at(RequestId(id)).preemptions, 0);
  }
  EXPECT_EQ(driver.engine().stats(0).handoff.sends, 2);
  ExpectAllAsAlone(driver);
}

TEST(EngineHandoff, SendsThatShareAPromptComputeItOnce) {
  EngineDriver driver(FetchingConfig(2000));
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(driver.Arrive(ForAnother(Prompt(id, 0, 512, 3))).ok());
  }
  driver.Advance();
  while (driver.FinishStep()) driver.Advance();
  EXPECT_EQ(driver.engine().stats(0).handoff.requests_sending, 3);
  EXPECT_EQ(driver.executor().tokens_run(), 512 + 3 * 3);
  EXPECT_TRUE(driver.engine().HasWork()) << "until they are delivered";
  for (uint64_t id = 1; id <= 3; ++id) {
    driver.Handoff(driver.port().DrainSend(SendId(id + 1000), true));
  }
  EXPECT_FALSE(driver.engine().HasWork());
  EXPECT_EQ(driver.engine().stats(0).blocks_in_use, 0);
  ExpectAllAsAlone(driver);
}

TEST(EngineHandoff, RefusesWhatItCannotDo) {
  EngineConfig config = FetchingConfig();
  VerifyingExecutor executor(config.groups, {16, 2}, kFamilyVocab);
  EngineDriver driver(config);
  EXPECT_EQ(Engine::Create(config, &executor, &driver).status().code(),
            StatusCode::kInvalidArgument)
      << "no slots for those that await their state";
  config.fetch.max_fetches = 0;
  auto alone = Engine::Create(config, &executor, &driver).value();
  EXPECT_EQ(alone->Handle({0, FakeHandoffPort::Peers(1)}).code(), StatusCode::kInvalidArgument);
  const Request send = ForAnother(Prompt(1, 0, 20, 0));
  EXPECT_EQ(alone->Handle({0, ArrivalEvent{send}}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(driver.Arrive(send).ok());
  Request again = send;
  again.id = RequestId(2);
  EXPECT_EQ(driver.Arrive(again).code(), StatusCode::kInvalidArgument) << "the send exists";

  config.groups.push_back(WindowGroup(16, 100, 20));
  VerifyingExecutor two_groups(config.groups, {16, 2}, kFamilyVocab);
  FakeHandoffPort port(&two_groups);
  auto window = Engine::Create(config, &two_groups, &driver, &port).value();
  EXPECT_EQ(window->Handle({0, ArrivalEvent{send}}).code(), StatusCode::kUnimplemented);
  config.fetch.max_fetches = 1;
  EXPECT_EQ(Engine::Create(config, &two_groups, &driver, &port).status().code(),
            StatusCode::kUnimplemented);
}

TEST(EngineHandoff, EventsOfHandoffsThatNobodyKnowsChangeNothing) {
  EngineDriver driver(FetchingConfig());
  for (int32_t kind = 0; kind < 4; ++kind) {
    driver.Handoff(
        {.kind = static_cast<HandoffEvent::Kind>(kind), .fetch = FetchId(7), .send = SendId(7)});
  }
  driver.Handoff(FakeHandoffPort::Peers(1));
  ASSERT_TRUE(driver.Arrive(Prompt(1, 0, 100, 10)).ok());
  driver.Advance();
  const HandoffEvent arrived = driver.port().Arrive(FetchId(1));
  driver.Handoff(arrived);
  driver.Handoff(arrived);
  driver.Handoff({.kind = HandoffEvent::Kind::kFetchFailed, .fetch = FetchId(1)});
  driver.Drain(100);
  driver.Handoff(driver.port().Drain(FetchId(1)));
  driver.Handoff({.kind = HandoffEvent::Kind::kFetchDrained, .fetch = FetchId(1)});
  EXPECT_EQ(driver.engine().stats(0).handoff.fetched_requests, 1);
  EXPECT_EQ(driver.engine().stats(0).handoff.fetches_failed, 0);
  ExpectAllAsAlone(driver);
}

// ---------------------------------------------------------------- random runs

struct Totals {
  int64_t arrived = 0, failed = 0, given_up = 0, fallbacks = 0, sends = 0, sends_failed = 0;
  int64_t cancelled_awaiting = 0, cancelled_sending = 0, preemptions = 0, hits = 0;
};

class RandomHandoffs {
 public:
  explicit RandomHandoffs(uint32_t seed) : random_(seed), driver_(Config()) {
    driver_.Handoff(FakeHandoffPort::Peers(1));
  }

  void Run(Totals* totals) {
    for (int32_t i = 0; i < 500 && driver_.fault().ok(); ++i) Step(totals);
    // All that was ordered comes to an end, in any order.
    for (int32_t i = 0; i < 100'000 && Busy() && driver_.fault().ok(); ++i) {
      if (Draw(0, 2) == 0) Network();
      driver_.Advance();
      driver_.FinishStep();
      driver_.SetNow(driver_.now() + 1);
    }
    EXPECT_FALSE(Busy());
    EXPECT_EQ(driver_.engine().stats(0).blocks_in_use, 0);
    EXPECT_EQ(driver_.engine().open_handoffs(), 0);
    for (const auto& [id, record] : driver_.records()) {
      driver_.CheckAnswer(record);
      EXPECT_TRUE(record.finish || !record.status.ok() || refused_.contains(id)) << id.value();
    }
    EXPECT_TRUE(driver_.fault().ok()) << driver_.fault().ToString();
    Count(totals);
  }

 private:
  int32_t Draw(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  EngineConfig Config() {
    EngineConfig config = FetchingConfig();
    config.groups = {PagedGroup(4, Draw(12, 40))};
    if (Draw(0, 2) == 0) config.groups.push_back(PagedGroup(2, Draw(24, 80)));
    config.context_length = 120;
    config.pipeline_depth = Draw(0, 2);
    config.max_running = Draw(1, 5);
    config.token_budget = Draw(config.max_running, 48);
    config.chunk_tokens = Draw(1, 40);
    config.reserve_tokens = Draw(0, 20);
    config.policy = static_cast<Policy>(Draw(0, 2));
    config.reservation = static_cast<Reservation>(Draw(0, 2));
    config.preemption = static_cast<PreemptionRule>(Draw(0, 1));
    config.max_queue = Draw(4, 40);
    config.fetch = {
        .max_fetches = Draw(1, 4), .min_tokens = Draw(1, 10), .max_attempts = Draw(1, 3)};
    if (Draw(0, 3) == 0) config.prefix_cache.reset();
    return config;
  }

  bool Busy() {
    return driver_.engine().HasWork() || driver_.engine().steps_in_flight() > 0 ||
           driver_.engine().open_handoffs() > 0;
  }

  void Arrive() {
    Request request = Prompt(++last_id_, Draw(0, 2), Draw(0, 40), Draw(1, 12), Draw(1, 40));
    request.cache_salt = Draw(0, 4) == 0 ? "salt" : "";
    if (Draw(0, 1) == 0) {
      request.max_output_tokens.reset();
      for (int32_t t = 0; t < 60; ++t) request.stop_tokens.push_back(TokenId(t * 16));
    }
    if (Draw(0, 8) == 0) request.deadline = Draw(1, 100'000);
    if (Draw(0, 2) == 0) request = ForAnother(std::move(request));
    const RequestId id = request.id;
    if (!driver_.Arrive(std::move(request)).ok()) refused_.insert(id);
  }

  void Cancel(Totals* totals) {
    const RequestId id(static_cast<uint64_t>(Draw(1, static_cast<int32_t>(last_id_) + 1)));
    const Scheduler& scheduler = driver_.engine().scheduler();
    if (const std::optional<SequenceIndex> index = scheduler.Find(id)) {
      const RequestState state = scheduler.sequence(*index).state;
      totals->cancelled_awaiting += state == RequestState::kAwaitingKv;
      totals->cancelled_sending += state == RequestState::kSending;
    }
    driver_.Cancel(id);
  }

  // Something happens on another node.
  void Network() {
    FakeHandoffPort& port = driver_.port();
    port.Scribble(static_cast<uint64_t>(Draw(0, 1 << 30)));
    if (!port.fetches().empty() && Draw(0, 1) == 0) {
      auto at = port.fetches().begin();
      std::advance(at, Draw(0, static_cast<int32_t>(port.fetches().size()) - 1));
      const FetchId id = at->first;
      if (at->second.settled) {
        if (Draw(0, 2) == 0) driver_.Handoff(port.Drain(id));
      } else {
        driver_.Handoff(Draw(0, 2) > 0 ? port.Arrive(id) : port.Fail(id));
      }
    } else if (!port.sends().empty()) {
      auto at = port.sends().begin();
      std::advance(at, Draw(0, static_cast<int32_t>(port.sends().size()) - 1));
      const SendId id = at->first;
      if (at->second.failed) {
        driver_.Handoff(port.DrainSend(id, false));
      } else if (port.AllHandedOver(id)) {
        driver_.Handoff(port.DrainSend(id, Draw(0, 4) > 0));
      } else if (Draw(0, 20) == 0) {
        driver_.Handoff(port.DrainSend(id, false));
      }
    }
  }

  void Step(Totals* totals) {
    const int32_t what = Draw(0, 99);
    if (what < 22) {
      Arrive();
    } else if (what < 29) {
      Cancel(totals);
    } else if (what < 31) {
      driver_.executor().FailNext();
    } else if (what < 32) {
      driver_.executor().RefuseNext();
    } else if (what < 34) {
      driver_.Handoff(FakeHandoffPort::Peers(Draw(0, 2)));
    } else if (what < 60) {
      Network();
    } else {
      driver_.SetNow(driver_.now() + Draw(1, 1000));
      driver_.Advance();
      driver_.FinishStep();
    }
  }

  void Count(Totals* totals) {
    const EngineStats stats = driver_.engine().stats(0);
    totals->arrived += stats.handoff.fetched_requests;
    totals->failed += stats.handoff.fetches_failed;
    totals->given_up += stats.handoff.fetches_given_up;
    totals->fallbacks += stats.handoff.fallbacks;
    totals->sends += stats.handoff.sends;
    totals->sends_failed += stats.handoff.sends_failed;
    totals->preemptions += stats.preemptions;
    totals->hits += stats.prefix_hit_tokens;
  }

  std::mt19937 random_;
  EngineDriver driver_;
  uint64_t last_id_ = 0;
  std::set<RequestId> refused_;
};

TEST(EngineHandoff, RandomRunsAnswerAsAloneAndLeaveNothing) {
  Totals totals;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomHandoffs(seed).Run(&totals);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(totals.arrived, 1000);
  EXPECT_GT(totals.failed, 500);
  EXPECT_GT(totals.given_up, 50);
  EXPECT_GT(totals.fallbacks, 200);
  EXPECT_GT(totals.sends, 1000);
  EXPECT_GT(totals.sends_failed, 500);
  EXPECT_GT(totals.cancelled_awaiting, 100);
  EXPECT_GT(totals.cancelled_sending, 50);
  EXPECT_GT(totals.preemptions, 100);
  EXPECT_GT(totals.hits, 10'000);
}

}  // namespace
}  // namespace tandem::testing
