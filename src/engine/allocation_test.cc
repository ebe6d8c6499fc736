// Counts calls of operator new inside the engine during steady decode steps.

#include <gtest/gtest.h>

#include <vector>

#include "base/testing/counting_new.h"
#include "engine/engine.h"
#include "engine/testing/verifying_executor.h"

namespace tandem::testing {
namespace {

// Answers every plan at once and allocates nothing itself once its buffers have grown.
class InstantExecutor final : public StepExecutor {
 public:
  ExecutorLimits limits() const override { return {8, 4}; }
  Status Submit(const StepPlan& plan) override {
    StepResult& result = results_[(first_ + count_++) % results_.size()];
    result.step = plan.step;
    result.rows.clear();
    for (const PlanRow& row : plan.rows) result.rows.push_back({row.slot, row.sample, TokenId(3)});
    return OkStatus();
  }
  bool Poll(StepResult* result) override {
    if (count_ == 0) return false;
    std::swap(*result, results_[first_]);
    first_ = (first_ + 1) % results_.size();
    --count_;
    return true;
  }
  void SetOnFinished(std::function<void()>) override {}

 private:
  std::vector<StepResult> results_ = std::vector<StepResult>(4);
  size_t first_ = 0;
  size_t count_ = 0;
};

class CountingSink final : public EngineOutputSink {
 public:
  void OnOutput(const RequestOutput& output) override { tokens += output.tokens.size(); }
  size_t tokens = 0;
};

TEST(EngineAllocation, ASteadyDecodeStepAllocatesNothing) {
  for (int32_t depth : {0, 1, 2}) {
    EngineConfig config;
    config.groups = {PagedGroup(16, 4000), WindowGroup(8, 400, 100)};
    config.context_length = 8192;
    config.vocab_size = 10;
    config.pipeline_depth = depth;
    config.max_running = 8;
    config.chunk_tokens = 64;
    config.reserve_tokens = 2000;
    InstantExecutor executor;
    CountingSink sink;
    auto engine = Engine::Create(config, &executor, &sink).value();
    for (uint64_t id = 1; id <= 8; ++id) {
      ArrivalEvent arrival;
      arrival.request.id = RequestId(id);
      arrival.request.prompt.assign(200, TokenId(1));
      if (id % 2 == 0) arrival.request.max_output_tokens = 2000;
      ASSERT_TRUE(engine->Handle({0, arrival}).ok());
    }
    EngineEvent event{0, ResultEvent{}};
    StepResult& result = std::get<ResultEvent>(event.body).result;
    engine->Advance(0);
    for (int step = 0; step < 1200; ++step) {
      counting = step >= 100;
      ASSERT_TRUE(executor.Poll(&result));
      ASSERT_TRUE(engine->Handle(event).ok());
      engine->Advance(step);
      counting = false;
    }
    EXPECT_EQ(allocations, 0) << "depth " << depth;
    EXPECT_GT(sink.tokens, 8u * 1100);
  }
}

TEST(EngineAllocation, TheCounterCounts) {
  allocations = 0;
  counting = true;
  std::vector<int> grown(1000);
  counting = false;
  EXPECT_EQ(allocations, 1) << grown.size();
  allocations = 0;
}

}  // namespace
}  // namespace tandem::testing
