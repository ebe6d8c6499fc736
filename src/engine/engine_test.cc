#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/testing/driver.h"

namespace tandem::testing {
namespace {

constexpr int32_t kVocab = 1000;

Request MakeRequest(uint64_t id, int32_t prompt, std::optional<int32_t> limit = std::nullopt) {
  Request request;
  request.id = RequestId(id);
  for (int32_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(TokenId((static_cast<int32_t>(id) * 100 + i) % kVocab));
  }
  request.max_output_tokens = limit;
  return request;
}

EngineConfig TwoGroupConfig() {
  EngineConfig config;
  config.groups = {PagedGroup(4, 200), WindowGroup(3, 100, 10)};
  config.context_length = 100;
  config.vocab_size = kVocab;
  config.pipeline_depth = 1;
  config.max_running = 4;
  config.token_budget = 32;
  config.chunk_tokens = 16;
  return config;
}

TEST(Engine, AnswersAreTheSameAtEveryDepthAndChunk) {
  for (int32_t depth : {0, 1, 2}) {
    for (int32_t chunk : {1, 7, 256}) {
      EngineConfig config = TwoGroupConfig();
      config.pipeline_depth = depth;
      config.chunk_tokens = chunk;
      EngineDriver driver(config);
      for (uint64_t id = 1; id <= 8; ++id) {
        ASSERT_TRUE(driver.Arrive(MakeRequest(id, static_cast<int32_t>(id * 5), 20)).ok());
      }
      driver.Drain(1000);
      for (const auto& [id, record] : driver.records()) {
        EXPECT_EQ(record.answer.size(), 20u);
        EXPECT_EQ(record.finish, FinishReason::kLength);
        driver.CheckAnswer(record);
      }
      EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
    }
  }
}

TEST(Engine, ALimitIsKnownAheadAndCostsNoDiscardedRow) {
  EngineConfig config = TwoGroupConfig();
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 10, 5)).ok());
  driver.Drain(100);
  EXPECT_EQ(driver.executor().tokens_run(), 10 + 5 - 1);
}

TEST(Engine, AStopCostsOneDiscardedRowPerStepThatRanAhead) {
  Request request = MakeRequest(1, 10);
  Request longer = request;
  longer.max_output_tokens = 6;
  request.stop_tokens = {ExpectedAnswer(longer, 100, kVocab).back()};
  for (int32_t depth : {0, 1, 2}) {
    EngineConfig config = TwoGroupConfig();
    config.pipeline_depth = depth;
    EngineDriver driver(config);
    ASSERT_TRUE(driver.Arrive(request).ok());
    driver.Drain(100);
    const EngineDriver::Record& record = driver.records().at(RequestId(1));
    EXPECT_EQ(record.finish, FinishReason::kStop);
    EXPECT_EQ(record.answer.size(), 5u) << "the stop token is not part of the answer";
    EXPECT_EQ(driver.executor().tokens_run(), 10 + 5 + depth);
    EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
  }
}

TEST(Engine, CancelEndsAtOnceAndFreesAfterTheLastUse) {
  EngineDriver driver(TwoGroupConfig());
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 10)).ok());
  driver.Advance();
  ASSERT_EQ(driver.engine().steps_in_flight(), 2);
  driver.Cancel(RequestId(1));
  EXPECT_EQ(driver.records().at(RequestId(1)).finish, FinishReason::kCancelled);
  EXPECT_FALSE(driver.engine().HasWork());
  const int64_t busy = driver.engine().stats(0).blocks_in_use;
  EXPECT_GT(busy, 0);
  EXPECT_TRUE(driver.FinishStep());
  EXPECT_EQ(driver.engine().stats(0).blocks_in_use, busy) << "the second step still reads them";
  EXPECT_TRUE(driver.FinishStep());
  EXPECT_EQ(driver.engine().stats(0).blocks_in_use, 0);
  EXPECT_TRUE(driver.records().at(RequestId(1)).answer.empty());
  driver.Cancel(RequestId(1));
  driver.Cancel(RequestId(77));
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
  EXPECT_EQ(driver.engine().stats(0).requests_cancelled, 1);
}

TEST(Engine, CancelTimesAreMeasuredInBothPhases) {
  EngineConfig config;
  config.groups = {PagedGroup(4, 16)};
  config.context_length = 40;
  config.vocab_size = kVocab;
  config.pipeline_depth = 1;
  config.max_running = 2;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 4, 8)).ok());
  ASSERT_TRUE(driver.Arrive(MakeRequest(2, 4, 8)).ok());
  driver.Advance();
  driver.SetNow(100);
  driver.Cancel(RequestId(2));
  driver.SetNow(103);
  driver.Advance();
  EXPECT_EQ(driver.engine().stats(103).cancels_stopped, 1);
  EXPECT_EQ(driver.engine().stats(103).cancel_stop_time_total, 3);
  EXPECT_EQ(driver.engine().stats(103).cancels_released, 0) << "two steps still touch its blocks";
  driver.SetNow(110);
  ASSERT_TRUE(driver.FinishStep());
  EXPECT_EQ(driver.engine().stats(110).cancels_released, 0);
  driver.SetNow(120);
  ASSERT_TRUE(driver.FinishStep());
  EXPECT_EQ(driver.engine().stats(120).cancels_released, 1);
  EXPECT_EQ(driver.engine().stats(120).cancel_release_time_total, 20);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
}

TEST(Engine, AFailedStepFailsItsRequestsAndNoOthers) {
  EngineConfig config = TwoGroupConfig();
  config.max_running = 1;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 10, 5)).ok());
  ASSERT_TRUE(driver.Arrive(MakeRequest(2, 10, 5)).ok());
  driver.Advance();
  driver.executor().FailNext();
  driver.Drain(100);
  EXPECT_EQ(driver.records().at(RequestId(1)).finish, FinishReason::kFailed);
  EXPECT_EQ(driver.records().at(RequestId(1)).status.code(), StatusCode::kInternal);
  EXPECT_EQ(driver.records().at(RequestId(2)).finish, FinishReason::kLength);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
}

TEST(Engine, ARefusedPlanFailsItsRequestsAndItsLeavesComeAgain) {
  EngineConfig config = TwoGroupConfig();
  config.pipeline_depth = 0;
  config.max_running = 1;
  EngineDriver driver(config);
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 10, 1)).ok());
  ASSERT_TRUE(driver.Arrive(MakeRequest(2, 10, 2)).ok());
  ASSERT_TRUE(driver.Arrive(MakeRequest(3, 10, 2)).ok());
  driver.Advance();
  driver.FinishStep();
  driver.executor().RefuseNext();  // the plan in which 1 leaves and 2 joins
  driver.Drain(100);
  EXPECT_EQ(driver.records().at(RequestId(1)).finish, FinishReason::kLength);
  EXPECT_EQ(driver.records().at(RequestId(2)).finish, FinishReason::kFailed);
  EXPECT_EQ(driver.records().at(RequestId(2)).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(driver.records().at(RequestId(3)).finish, FinishReason::kLength);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
}

TEST(Engine, DrainsAfterAdmissionHasStopped) {
  EngineDriver driver(TwoGroupConfig());
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 10, 5)).ok());
  driver.engine().StopAdmission();
  EXPECT_EQ(driver.Arrive(MakeRequest(2, 10, 5)).code(), StatusCode::kUnavailable);
  driver.Drain(100);
  EXPECT_EQ(driver.records().at(RequestId(1)).finish, FinishReason::kLength);
  EXPECT_FALSE(driver.engine().HasWork());
  EXPECT_EQ(driver.engine().stats(0).requests_refused, 1);
}

TEST(Engine, TimesAndCountersFollowTheEvents) {
  EngineConfig config = TwoGroupConfig();
  config.pipeline_depth = 0;
  EngineDriver driver(config);
  driver.SetNow(10);
  ASSERT_TRUE(driver.Arrive(MakeRequest(1, 20, 3)).ok());
  driver.SetNow(12);
  driver.Drain(100);  // steps end at 12, 13, 14, 15: chunks of 16 and 4, then two decodes
  const RequestTimes times = driver.records().at(RequestId(1)).times;
  EXPECT_EQ(times.arrival, 10);
  EXPECT_EQ(times.admitted, 12);
  EXPECT_EQ(times.first_token, 13);
  EXPECT_EQ(times.finished, 15);
  const EngineStats stats = driver.engine().stats(20);
  EXPECT_EQ(stats.now, 20);
  EXPECT_EQ(stats.steps, 4);
  EXPECT_EQ(stats.last_step_finished, 15);
  EXPECT_EQ(stats.prompt_tokens, 20);
  EXPECT_EQ(stats.generated_tokens, 3);
  EXPECT_EQ(stats.requests_finished, 1);
  EXPECT_EQ(stats.blocks_total, 300);
}

TEST(Engine, RefusesAResultThatBelongsToNoStep) {
  EngineDriver driver(TwoGroupConfig());
  EXPECT_EQ(driver.engine().Handle({0, ResultEvent{}}).code(), StatusCode::kInternal);
}

TEST(Engine, CreateComparesTheExecutorsLimits) {
  EngineConfig config = TwoGroupConfig();
  class NoSink final : public EngineOutputSink {
    void OnOutput(const RequestOutput&) override {}
  } sink;
  VerifyingExecutor few_slots(config.groups, {3, 2}, kVocab);
  EXPECT_EQ(Engine::Create(config, &few_slots, &sink).status().code(),
            StatusCode::kInvalidArgument);
  VerifyingExecutor shallow(config.groups, {4, 1}, kVocab);
  EXPECT_EQ(Engine::Create(config, &shallow, &sink).status().code(), StatusCode::kInvalidArgument);
  VerifyingExecutor fits(config.groups, {4, 2}, kVocab);
  EXPECT_TRUE(Engine::Create(config, &fits, &sink).ok());
}

// Section 8.3.2 of the chapter: four prompts of 1536 tokens, 512 outputs each, blocks of 16 tokens.
struct PressureRun {
  int64_t steps = 0;
  int64_t positions = 0;
  int64_t peak_blocks = 0;
  std::vector<std::pair<int64_t, uint64_t>> ends;  // step, request
  std::vector<std::pair<int64_t, uint64_t>> preemptions;
  int64_t outputs_at_preemption = 0;
  int64_t recomputed = 0;
  int64_t free_before_cancel = 0;
  int64_t free_after_cancel = 0;
};

PressureRun RunUnderPressure(int32_t blocks, std::optional<size_t> cancel_last_at_outputs) {
  EngineConfig config;
  config.groups = {PagedGroup(16, blocks)};
  config.context_length = 1536 + 512;
  config.vocab_size = kVocab;
  config.pipeline_depth = 0;
  config.max_running = 4;
  config.token_budget = 512;
  config.reserve_tokens = 0;
  EngineDriver driver(config);
  PressureRun run;
  for (uint64_t id = 0; id < 4; ++id) EXPECT_TRUE(driver.Arrive(MakeRequest(id, 1536)).ok());
  std::vector<int32_t> preempted(4, 0);
  const BlockPool& pool = driver.engine().scheduler().pools().pool(GroupId(0));
  while (driver.engine().HasWork() && run.steps < 2000) {
    driver.Advance();
    ++run.steps;
    for (const auto& [id, record] : driver.records()) {
      if (record.preemptions == preempted[id.value()]) continue;
      preempted[id.value()] = record.preemptions;
      run.preemptions.emplace_back(run.steps, id.value());
      run.outputs_at_preemption = static_cast<int64_t>(record.answer.size());
    }
    run.peak_blocks = std::max<int64_t>(run.peak_blocks, pool.in_use());
    driver.FinishStep();
    for (const RequestOutput& output : driver.outputs()) {
      if (output.finish) run.ends.emplace_back(run.steps, output.id.value());
    }
    driver.outputs().clear();
    if (cancel_last_at_outputs &&
        driver.records().at(RequestId(3)).answer.size() == *cancel_last_at_outputs) {
      run.free_before_cancel = pool.free();
      driver.Cancel(RequestId(3));
      run.free_after_cancel = pool.free();
      run.ends.emplace_back(run.steps, 3);
      driver.outputs().clear();
      cancel_last_at_outputs.reset();
    }
  }
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
  run.positions = driver.executor().tokens_run();
  run.recomputed = driver.engine().stats(0).recomputed_tokens;
  for (const auto& [id, record] : driver.records()) driver.CheckAnswer(record);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
  return run;
}

using Ends = std::vector<std::pair<int64_t, uint64_t>>;

TEST(Engine, PreemptionRunOfTheChapterWithFewBlocks) {
  const PressureRun run = RunUnderPressure(454, std::nullopt);
  EXPECT_EQ(run.steps, 759);
  EXPECT_EQ(run.positions, 9993);
  EXPECT_EQ(run.peak_blocks, 454);
  EXPECT_EQ(run.preemptions, (Ends{{283, 3}}));
  EXPECT_EQ(run.outputs_at_preemption, 270);
  EXPECT_EQ(run.recomputed, 1805);
  EXPECT_EQ(run.ends, (Ends{{514, 0}, {518, 1}, {521, 2}, {759, 3}}));
}

TEST(Engine, PreemptionRunOfTheChapterWithManyBlocks) {
  const PressureRun run = RunUnderPressure(909, std::nullopt);
  EXPECT_EQ(run.steps, 524);
  EXPECT_EQ(run.positions, 8188);
  EXPECT_EQ(run.peak_blocks, 512);
  EXPECT_TRUE(run.preemptions.empty());
  EXPECT_EQ(run.recomputed, 0);
  EXPECT_EQ(run.ends, (Ends{{514, 0}, {518, 1}, {521, 2}, {524, 3}}));
}

TEST(Engine, CancelRunOfTheChapter) {
  const PressureRun run = RunUnderPressure(454, 128);
  EXPECT_EQ(run.steps, 521);
  EXPECT_EQ(run.positions, 7804);
  EXPECT_EQ(run.peak_blocks, 419);
  EXPECT_EQ(run.free_before_cancel, 35);
  EXPECT_EQ(run.free_after_cancel, 139) << "104 blocks come back";
  EXPECT_EQ(run.ends, (Ends{{140, 3}, {514, 0}, {518, 1}, {521, 2}}));
}

}  // namespace
}  // namespace tandem::testing
