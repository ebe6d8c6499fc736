#include "cli/engine_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <span>

#include "base/bounded_queue.h"
#include "plan/replay.h"

namespace tandem {
namespace {

constexpr int32_t kSlots = 4;

// Finishes each step on a thread of its own after `delay`; every sampled token is 7.
class ThreadedExecutor final : public StepExecutor {
 public:
  explicit ThreadedExecutor(TimeNs delay) : delay_(delay), thread_([this] { Loop(); }) {}
  ~ThreadedExecutor() override {
    submitted_.Close();
    thread_.join();
  }

  ExecutorLimits limits() const override { return {kSlots, 2}; }
  Status Submit(const StepPlan& plan) override {
    StepResult result;
    result.step = plan.step;
    for (const PlanRow& row : plan.rows) result.rows.push_back({row.slot, row.sample, TokenId(7)});
    EXPECT_TRUE(submitted_.TryPush(std::move(result)));
    return OkStatus();
  }
  bool Poll(StepResult* result) override {
    std::optional<StepResult> next = finished_.TryPop();
    if (!next.has_value()) return false;
    *result = std::move(*next);
    return true;
  }
  void SetOnFinished(std::function<void()> callback) override {
    on_finished_ = std::move(callback);
  }

 private:
  void Loop() {
    while (!submitted_.closed() || submitted_.size() > 0) {
      std::optional<StepResult> result = submitted_.PopFor(kNsPerMs);
      if (!result.has_value()) continue;
      std::this_thread::sleep_for(std::chrono::nanoseconds(delay_));
      EXPECT_TRUE(finished_.TryPush(std::move(*result)));
      on_finished_();
    }
  }

  const TimeNs delay_;
  BoundedQueue<StepResult> submitted_{4};
  BoundedQueue<StepResult> finished_{4};
  std::function<void()> on_finished_;
  std::thread thread_;
};

struct Outcome {
  std::atomic<int> tokens{0};
  std::atomic<int> ends{0};
  std::atomic<int> finish{-1};
  std::atomic<StatusCode> status{StatusCode::kOk};

  void WaitForTokens(int n) const {
    while (tokens.load() < n) std::this_thread::yield();
  }
  void WaitForEnd() const {
    while (ends.load() == 0) std::this_thread::yield();
  }
};

class RecordingSink final : public RequestSink {
 public:
  explicit RecordingSink(Outcome* outcome) : outcome_(outcome) {}
  void OnOutput(const RequestOutput& output) override {
    outcome_->tokens += static_cast<int>(output.tokens.size());
    if (!output.finish.has_value()) return;
    outcome_->finish = static_cast<int>(*output.finish);
    outcome_->status = output.status.code();
    ++outcome_->ends;
  }

 private:
  Outcome* const outcome_;
};

// Holds the host's thread up in its first output until it is told to go on.
class BlockingSink final : public RequestSink {
 public:
  explicit BlockingSink(std::atomic<bool>* go_on, std::atomic<bool>* blocks)
      : go_on_(go_on), blocks_(blocks) {}
  void OnOutput(const RequestOutput&) override {
    *blocks_ = true;
    while (!go_on_->load()) std::this_thread::yield();
  }

 private:
  std::atomic<bool>* const go_on_;
  std::atomic<bool>* const blocks_;
};

class EngineHostTest : public testing::Test {
 protected:
  static EngineConfig NewConfig(int32_t max_queue) {
    StateGroup group;
    group.layers = {0};
    group.num_heads = 1;
    group.planes = {{"k", DType::kF32, TileLayout::kDimMajor, 4}};
    group.tokens_per_block = 4;
    EngineConfig config;
    config.groups = {{group, 1000}};
    config.context_length = 1000;
    config.vocab_size = 100;
    config.max_running = kSlots;
    config.max_queue = max_queue;
    return config;
  }
  std::unique_ptr<EngineHost> NewHost(int32_t max_queue = 100) {
    return std::move(EngineHost::Create(NewConfig(max_queue), &executor_, &clock_)).value();
  }
  static Request NewRequest(int32_t output_tokens) {
    Request request;
    request.prompt = {TokenId(1), TokenId(2), TokenId(3)};
    request.max_output_tokens = output_tokens;
    return request;
  }

  SteadyClock clock_;
  ThreadedExecutor executor_{kNsPerMs / 10};
};

TEST_F(EngineHostTest, RequestsFromManyThreadsGetTheirTokensAndOneEnd) {
  const auto host = NewHost();
  constexpr int kThreads = 4, kEach = 10;
  std::deque<Outcome> outcomes(kThreads * kEach);
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Outcome* outcome = &outcomes[static_cast<size_t>(t * kEach + i)];
        EXPECT_TRUE(host->Submit(NewRequest(1 + i), std::make_unique<RecordingSink>(outcome)).ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < kThreads * kEach; ++i) {
    const Outcome& outcome = outcomes[static_cast<size_t>(i)];
    outcome.WaitForEnd();
    EXPECT_EQ(outcome.tokens.load(), 1 + i % kEach);
    EXPECT_EQ(outcome.finish.load(), static_cast<int>(FinishReason::kLength));
    EXPECT_EQ(outcome.ends.load(), 1);
  }
  while (host->stats().requests_finished < kThreads * kEach) std::this_thread::yield();
  EXPECT_EQ(host->stats().requests_waiting, 0);
}

TEST_F(EngineHostTest, CancelEndsARunningRequestOnce) {
  const auto host = NewHost();
  Outcome outcome;
  const auto id = host->Submit(NewRequest(900), std::make_unique<RecordingSink>(&outcome));
  ASSERT_TRUE(id.ok());
  outcome.WaitForTokens(3);
  host->Cancel(*id);
  host->Cancel(*id);
  host->Cancel(RequestId(12345));
  outcome.WaitForEnd();
  EXPECT_EQ(outcome.finish.load(), static_cast<int>(FinishReason::kCancelled));
  EXPECT_LT(outcome.tokens.load(), 900);
  EXPECT_EQ(outcome.ends.load(), 1);
}

TEST_F(EngineHostTest, DestructionEndsWhatRunsAndWhatWaits) {
  for (int round = 0; round < 20; ++round) {
    std::deque<Outcome> outcomes(10);
    {
      const auto host = NewHost();
      for (Outcome& outcome : outcomes) {
        ASSERT_TRUE(host->Submit(NewRequest(900), std::make_unique<RecordingSink>(&outcome)).ok());
      }
      if (round % 2 == 1) outcomes[0].WaitForTokens(round);
    }
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.ends.load(), 1);
  }
}

TEST_F(EngineHostTest, RefusesBeyondTheQueueAndAfterStopAdmission) {
  const auto host = NewHost(/*max_queue=*/2);
  std::deque<Outcome> outcomes(50);
  int refused = 0;  // by the host: its thread had not taken the last ones yet
  for (Outcome& outcome : outcomes) {
    const auto id = host->Submit(NewRequest(900), std::make_unique<RecordingSink>(&outcome));
    if (id.ok()) continue;
    ++refused;
    EXPECT_EQ(id.status().code(), StatusCode::kResourceExhausted);
  }
  while (host->stats().requests_running + host->stats().requests_waiting +
             host->stats().requests_refused !=
         50) {
    std::this_thread::yield();
  }
  for (const Outcome& outcome : outcomes) {
    refused += outcome.ends > 0;
    if (outcome.ends > 0) {
      EXPECT_EQ(outcome.status, StatusCode::kResourceExhausted);
    }
  }
  EXPECT_GE(refused, 50 - kSlots - 2);
  EXPECT_LE(refused, 48);
  EXPECT_EQ(host->stats().requests_refused, refused);
  host->StopAdmission();
  Outcome late;
  const auto id = host->Submit(NewRequest(1), std::make_unique<RecordingSink>(&late));
  EXPECT_EQ(id.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(late.ends.load(), 0);
}

TEST_F(EngineHostTest, CancelsThatAreToBeHandledTakeNoPlaceInTheQueue) {
  const auto host = NewHost(/*max_queue=*/2);
  std::atomic<bool> go_on = false, blocks = false;
  ASSERT_TRUE(host->Submit(NewRequest(1), std::make_unique<BlockingSink>(&go_on, &blocks)).ok());
  while (!blocks) std::this_thread::yield();
  for (uint64_t id = 100; id < 110; ++id) host->Cancel(RequestId(id));
  EXPECT_EQ(host->stats().requests_waiting, 0);
  std::deque<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) {
    const bool fits = &outcome != &outcomes[2];
    EXPECT_EQ(host->Submit(NewRequest(1), std::make_unique<RecordingSink>(&outcome)).ok(), fits);
  }
  EXPECT_EQ(host->stats().requests_waiting, 2);
  go_on = true;
  outcomes[0].WaitForEnd();
  outcomes[1].WaitForEnd();
}

TEST_F(EngineHostTest, AFullQueueIsADecisionThatTheRecordShows) {
  const TokenCoder as_they_are;
  EventRecorder recorder(&as_they_are, size_t{1} << 22);
  RecordingExecutor recording(&executor_, &recorder);
  const EngineConfig config = NewConfig(/*max_queue=*/2);
  std::deque<Outcome> outcomes(kSlots + 2 + 3);
  {
    auto host = EngineHost::Create(config, &recording, &clock_, &recorder).value();
    for (Outcome& outcome : outcomes) {
      const bool refused = &outcome >= &outcomes[kSlots + 2];
      // The host refuses what comes before its thread has taken the two before: not meant here.
      while (!host->Submit(NewRequest(900), std::make_unique<RecordingSink>(&outcome)).ok()) {
        std::this_thread::yield();
      }
      if (refused) {
        outcome.WaitForEnd();
        EXPECT_EQ(outcome.status, StatusCode::kResourceExhausted);
      } else if (&outcome < &outcomes[kSlots]) {
        outcome.WaitForTokens(1);
      } else {
        while (host->stats().requests_waiting != &outcome - &outcomes[kSlots] + 1 ||
               host->stats().requests_running != kSlots) {
          std::this_thread::yield();
        }
      }
    }
  }
  std::string records;
  AppendHeader({.version = "test", .model = "none", .numerics = "fast", .config = config},
               &records);
  recorder.Take(&records);
  const std::string log = LogFileHead() + LogBatch(0, records);
  const auto reader = EventLogReader::Open([&log](int64_t offset, std::span<std::byte> out) {
    const size_t at = std::min(static_cast<size_t>(offset), log.size());
    const size_t size = std::min(out.size(), log.size() - at);
    std::copy_n(std::as_bytes(std::span(log)).begin() + static_cast<std::ptrdiff_t>(at), size,
                out.begin());
    return Result<size_t>(size);
  });
  const ReplayReport report = Replay(reader->get()).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.summary.requests, kSlots + 2 + 3);
  EXPECT_EQ(report.summary.refused, 3);
}

TEST_F(EngineHostTest, WhatCanNeverFitIsRefusedAtOnce) {
  const auto host = NewHost();
  Outcome outcome;
  EXPECT_EQ(
      host->Submit(NewRequest(5000), std::make_unique<RecordingSink>(&outcome)).status().code(),
      StatusCode::kOutOfRange);
  EXPECT_EQ(outcome.ends.load(), 0);
}

}  // namespace
}  // namespace tandem
