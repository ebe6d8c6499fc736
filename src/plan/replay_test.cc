// A recorded run replays decision by decision, and under other settings.
#include "plan/replay.h"

#include <gtest/gtest.h>

#include <string>

#include "plan/replay_report.h"
#include "plan/testing/live_run.h"

namespace tandem {
namespace {

using testing::LiveRun;
using testing::SmallConfig;
using testing::SourceOf;

ReplayReport ReplayOf(const std::string& log) {
  auto reader = EventLogReader::Open(SourceOf(log));
  EXPECT_TRUE(reader.ok()) << reader.status().ToString();
  auto report = Replay(reader->get());
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return std::move(*report);
}

struct Totals {
  int64_t answered = 0, cancelled = 0, failed = 0, refused = 0, preemptions = 0, cached = 0;
};

void RecordAndReplay(const EngineConfig& config, uint64_t seed, Totals* totals) {
  LiveRun run(config);
  run.Random(seed, 600);
  const EngineStats stats = run.engine().stats(run.now());
  const ReplayReport report = ReplayOf(run.Finish());
  ASSERT_FALSE(report.difference) << ReplayText(report);
  EXPECT_FALSE(report.cut_off);
  EXPECT_GT(report.plans, 100);
  const RunSummary& s = report.summary;
  EXPECT_EQ(s.answered, stats.requests_finished);
  EXPECT_EQ(s.cancelled, stats.requests_cancelled);
  EXPECT_EQ(s.failed, stats.requests_failed);
  EXPECT_EQ(s.refused, stats.requests_refused);
  EXPECT_EQ(s.steps, stats.steps);
  EXPECT_EQ(s.preemptions, stats.preemptions);
  EXPECT_EQ(s.output_tokens, stats.generated_tokens);
  totals->answered += s.answered;
  totals->cancelled += s.cancelled;
  totals->failed += s.failed;
  totals->refused += s.refused;
  totals->preemptions += s.preemptions;
  totals->cached += s.cached_tokens;
}

TEST(Replay, MakesEveryDecisionOfRandomRunsAgain) {
  Totals totals;
  for (int32_t depth = 0; depth <= 2; ++depth) {
    for (const bool caching : {false, true}) {
      for (uint64_t seed = 1; seed <= 6; ++seed) {
        EngineConfig config = SmallConfig(depth, caching);
        config.groups[0].num_blocks = seed % 2 == 0 ? 60 : 30;
        if (seed % 3 == 0) config.groups.push_back(testing::WindowGroup(4, 60, 7));
        if (seed % 4 == 1) config.reservation = Reservation::kOnDemand;
        if (seed % 3 == 1) config.itl_target = 30;
        config.policy = static_cast<Policy>((seed + 2) % 3);
        if (caching && seed % 2 == 1) config.prefix_cache->retention = RetentionKind::kLru;
        RecordAndReplay(config, seed, &totals);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(totals.answered, 100);
  EXPECT_GT(totals.cancelled, 100);
  EXPECT_GT(totals.failed, 20);
  EXPECT_GT(totals.refused, 100);
  EXPECT_GT(totals.preemptions, 10);
  EXPECT_GT(totals.cached, 100);
}

TEST(Replay, MakesTheDecisionsOfHandoffsAgain) {
  Totals totals;
  int64_t fetched = 0, failed = 0, sent = 0;
  for (int32_t depth = 0; depth <= 2; ++depth) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      EngineConfig config = SmallConfig(depth, seed % 3 != 0);
      config.fetch = {.max_fetches = 2, .min_tokens = 4};
      LiveRun run(config);
      run.Random(seed, 600);
      const HandoffStats stats = run.engine().stats(run.now()).handoff;
      fetched += stats.fetched_requests;
      failed += stats.fetches_failed;
      sent += stats.sends;
      RecordAndReplay(config, seed, &totals);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(fetched, 50);
  EXPECT_GT(failed, 10);
  EXPECT_GT(sent, 50);
}

TEST(Replay, ShowsTheFirstPlanThatDiffersBothWays) {
  LiveRun run(SmallConfig(1, true));
  run.Random(3, 300);
  std::string log = run.Finish();
  // The same records under another configuration.
  SchedulerConfig other = run.config();
  other.chunk_tokens = 3;
  LogHeader header{.version = "test", .model = "fake", .numerics = "fast", .config = other};
  std::string records;
  AppendHeader(header, &records);
  std::string rest = log.substr(12);
  const auto first = static_cast<size_t>(static_cast<unsigned char>(rest[4]) |
                                         static_cast<unsigned char>(rest[5]) << 8);
  log = LogFileHead() + LogBatch(0, records) + rest.substr(24 + first + 8);

  const ReplayReport report = ReplayOf(log);
  ASSERT_TRUE(report.difference);
  EXPECT_NE(report.difference->recorded.find("row slot="), std::string::npos);
  EXPECT_NE(report.difference->replayed.find("n=3"), std::string::npos);
  const std::string text = ReplayText(report);
  EXPECT_NE(text.find("differs\nrecorded:\n  step "), std::string::npos) << text;
  EXPECT_NE(text.find("replayed:\n  step "), std::string::npos) << text;
}

TEST(Replay, FindsAPlanTooManyAndOneTooFew) {
  const auto log_with = [](bool too_many) {
    LiveRun run(SmallConfig(0, false));
    Request request;
    request.id = RequestId(1);
    request.prompt = {TokenId(1), TokenId(2)};
    request.max_output_tokens = 3;
    EXPECT_TRUE(run.Arrive(request));
    if (too_many) {
      run.recorder().OnAdvance(run.now());  // but the engine is not told
      run.FinishStep(1);
    } else {
      run.Advance();
    }
    run.recorder().OnAdvance(run.now());
    if (!too_many) {
      StepPlan more;
      more.step = StepId(2);
      run.recorder().OnPlan(more, StatusCode::kOk);
    }
    return run.Finish();
  };
  const ReplayReport more = ReplayOf(log_with(true));
  ASSERT_TRUE(more.difference);
  EXPECT_EQ(more.difference->recorded, "no plan\n");
  const ReplayReport fewer = ReplayOf(log_with(false));
  ASSERT_TRUE(fewer.difference);
  EXPECT_EQ(fewer.difference->replayed, "no plan\n");
}

TEST(Replay, StopsWhereRecordsAreMissing) {
  LiveRun run(SmallConfig(1, true), /*ring_bytes=*/4096);
  run.Random(4, 40);
  run.Flush();
  const int64_t before = ReplayOf(run.log()).events;
  SplitMix64 random(1);
  for (int i = 0; i < 300; ++i) (void)run.Arrive(run.RandomRequest(&random));  // nobody reads
  EXPECT_GT(run.recorder().lost(), 0u);
  run.Flush();
  run.Cancel(RequestId(1));
  const ReplayReport report = ReplayOf(run.Finish());
  EXPECT_FALSE(report.difference);
  EXPECT_GT(report.missing_records, 0u) << "of the first gap";
  EXPECT_LE(report.missing_records, run.recorder().lost());
  EXPECT_GT(report.events, before);
  EXPECT_NE(ReplayText(report).find("records are missing"), std::string::npos);
}

TEST(Replay, TokensAreRenamedUnlessAskedFor) {
  for (const bool true_tokens : {false, true}) {
    EngineConfig config = SmallConfig(1, true);
    LiveRun run(config, size_t{1} << 20, true_tokens);
    Request request;
    request.id = RequestId(1);
    for (int32_t i = 0; i < 20; ++i) request.prompt.push_back(TokenId(i));
    request.cache_salt = "tenant";
    request.max_output_tokens = 4;
    ASSERT_TRUE(run.Arrive(request));
    run.Advance();
    while (run.FinishStep(1)) run.Advance();
    const std::string log = run.Finish();
    EXPECT_EQ(log.find("tenant") != std::string::npos, true_tokens);
    const ReplayReport report = ReplayOf(log);
    EXPECT_FALSE(report.difference);
    EXPECT_EQ(report.requests[0].request.prompt == request.prompt, true_tokens);
    EXPECT_EQ(report.requests[0].answer.size(), 4u);
  }
}

// A run whose steps take what a law says, one request after the other in `arrivals`.
std::string TimedRun(EngineConfig config, int requests, TimeNs between, int32_t shared) {
  config.pipeline_depth = 0;
  LiveRun run(config);
  const TimeNs start = run.now();
  int next = 0;
  std::optional<TimeNs> finish;
  TimeNs took = 0;
  run.inner().SetOnPlan([&](const StepPlan& plan) {
    took = 1000 + 100 * plan.NumTokens();
    finish = run.now() + took;
  });
  while (next < requests || finish) {
    const TimeNs arrival = next < requests ? start + next * between : INT64_MAX;
    run.SetNow(std::min(arrival, finish.value_or(INT64_MAX)));
    if (finish == run.now()) {
      finish.reset();
      EXPECT_TRUE(run.FinishStep(took));
    }
    if (arrival == run.now()) {
      Request request;
      request.id = RequestId(static_cast<uint64_t>(++next));
      for (int32_t i = 0; i < 32; ++i) {
        request.prompt.push_back(TokenId(i < shared ? i % 29 : (i * next) % 29));
      }
      request.max_output_tokens = 4 + next % 5;
      EXPECT_TRUE(run.Arrive(request));
    }
    run.Advance();
  }
  return run.Finish();
}

TEST(SimulateRecorded, TheSameSettingsGiveTheRecordedRun) {
  for (const bool caching : {false, true}) {
    const std::string log = TimedRun(SmallConfig(0, caching), 60, 20'000, 24);
    const ReplayReport report = ReplayOf(log);
    ASSERT_FALSE(report.difference) << ReplayText(report);
    EXPECT_EQ(report.summary.answered, 60);
    SchedulerConfig config = SmallConfig(0, caching);
    const RunSummary again = SimulateRecorded(config, report.requests, report.cost).value();
    EXPECT_EQ(again.answered, 60);
    EXPECT_EQ(again.output_tokens, report.summary.output_tokens);
    EXPECT_EQ(again.cached_tokens, report.summary.cached_tokens);
    const auto near = [](TimeNs a, TimeNs b) {
      EXPECT_NEAR(static_cast<double>(a), static_cast<double>(b), 0.03 * static_cast<double>(b));
    };
    near(again.duration, report.summary.duration);
    near(again.answer.median, report.summary.answer.median);
    near(again.first_token.median, report.summary.first_token.median);
  }
}

TEST(SimulateRecorded, OtherSettingsHaveTheirEffect) {
  const ReplayReport report = ReplayOf(TimedRun(SmallConfig(0, true), 60, 7000, 24));
  EXPECT_GT(report.summary.cached_tokens, 60 * 15);
  const SchedulerConfig config = SmallConfig(0, true);
  SchedulerConfig uncached = config;
  uncached.prefix_cache.reset();
  const RunSummary without = SimulateRecorded(uncached, report.requests, report.cost).value();
  EXPECT_EQ(without.cached_tokens, 0);
  EXPECT_EQ(without.prompt_tokens, 60 * 32);
  EXPECT_EQ(without.output_tokens, report.summary.output_tokens);
  EXPECT_GT(without.first_token.median, report.summary.first_token.median);
  SchedulerConfig alone = config;
  alone.max_running = 1;
  const RunSummary one = SimulateRecorded(alone, report.requests, report.cost).value();
  EXPECT_GT(one.answer.median, report.summary.answer.median);
  EXPECT_EQ(one.answered, 60);
}

TEST(SimulateRecorded, RandomRunsEndUnderEveryPolicy) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    LiveRun run(SmallConfig(1, true));
    run.Random(seed, 400);
    const ReplayReport report = ReplayOf(run.Finish());
    for (const Policy policy : {Policy::kStatic, Policy::kContinuous, Policy::kChunked}) {
      SchedulerConfig config = run.config();
      config.policy = policy;
      config.max_queue = 1000;
      const Result<RunSummary> s = SimulateRecorded(config, report.requests, report.cost);
      ASSERT_TRUE(s.ok()) << s.status().ToString();
      EXPECT_EQ(s->requests, report.summary.requests);
      EXPECT_EQ(s->answered + s->cancelled + s->refused, s->requests);
      EXPECT_GE(s->answered, report.summary.answered / 2);
    }
  }
}

TEST(SimulateRecorded, NeedsAStepToLearnFrom) {
  LiveRun run(SmallConfig(1, false));
  const ReplayReport report = ReplayOf(run.Finish());
  EXPECT_EQ(SimulateRecorded(run.config(), report.requests, report.cost).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(ReplayReport, PutsRunsBesideOneAnother) {
  RunSummary one, two;
  one.requests = 12;
  two.requests = 12345;
  const NamedSummary runs[] = {{"recorded", one}, {"policy static", two}};
  const std::string text = SummariesText(runs);
  EXPECT_NE(text.find("recorded"), std::string::npos);
  EXPECT_NE(text.find("requests"), std::string::npos);
  EXPECT_NE(text.find("12345"), std::string::npos);
  ReplayReport report{.cost = CostModel(std::nullopt, {})};
  const std::string json = ReplayJson(report, runs);
  EXPECT_NE(json.find("\"policy static\""), std::string::npos);
}

}  // namespace
}  // namespace tandem
