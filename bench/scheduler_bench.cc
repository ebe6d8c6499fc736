// Host overhead of the scheduler (issue-sized numbers: a 64-row step with 10,000 requests queued
// and a pool of 100,000 blocks) and the simulator's speed. Prints microseconds per step (commit +
// emit + plan, without any executor's work) and seconds for a million requests of 128 / 16 tokens.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "plan/event_recorder.h"
#include "plan/simulator.h"

namespace tandem {
namespace {

using WallClock = std::chrono::steady_clock;

double Microseconds(WallClock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

// Answers every plan at once.
class InstantExecutor final : public StepExecutor {
 public:
  explicit InstantExecutor(int32_t slots) : slots_(slots) {}
  ExecutorLimits limits() const override { return {slots_, 2}; }
  Status Submit(const StepPlan& plan) override {
    StepResult& result = results_[(first_ + count_++) % 2];
    result.step = plan.step;
    result.started = result.finished;
    result.finished += 1'000'000;
    result.rows.clear();
    for (const PlanRow& row : plan.rows) result.rows.push_back({row.slot, row.sample, TokenId(3)});
    return OkStatus();
  }
  bool Poll(StepResult* result) override {
    if (count_ == 0) return false;
    std::swap(*result, results_[first_]);
    first_ = (first_ + 1) % 2;
    --count_;
    return true;
  }
  void SetOnFinished(std::function<void()>) override {}

 private:
  const int32_t slots_;
  std::vector<StepResult> results_ = std::vector<StepResult>(2);
  size_t first_ = 0;
  size_t count_ = 0;
};

class CountingSink final : public EngineOutputSink {
 public:
  void OnOutput(const RequestOutput& output) override { tokens += output.tokens.size(); }
  size_t tokens = 0;
};

StateGroupBlocks Pool(int32_t blocks) {
  StateGroup group;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"kv", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = 16;
  return {group, blocks};
}

// With `record`, events and plans are taken down as under --record.
void StepOverhead(int32_t pipeline_depth, bool record) {
  constexpr int32_t kRows = 64;
  EngineConfig config;
  config.groups = {Pool(100'000)};
  config.context_length = 16'384;
  config.vocab_size = 1000;
  config.pipeline_depth = pipeline_depth;
  config.max_running = kRows;
  config.token_budget = 2048;
  config.chunk_tokens = 512;
  config.reserve_tokens = 8192;
  config.max_queue = 10'000;
  InstantExecutor executor(kRows);
  CountingSink sink;
  const TokenRenaming renaming(config.vocab_size, {1, 2});
  EventRecorder recorder(&renaming, size_t{8} << 20);
  RecordingExecutor recording(&executor, &recorder);
  StepExecutor* const used = record ? static_cast<StepExecutor*>(&recording) : &executor;
  auto engine = Engine::Create(config, used, &sink).value();
  std::string taken;
  ArrivalEvent arrival;
  arrival.request.prompt.assign(512, TokenId(1));
  for (uint64_t id = 1; id <= 10'000 + kRows; ++id) {
    if (id == kRows + 1) engine->Advance(0);
    arrival.request.id = RequestId(id);
    if (!engine->Handle({0, arrival}).ok()) return;
  }
  EngineEvent event{0, ResultEvent{}};
  std::vector<double> steps;
  for (int step = 0; step < 6000; ++step) {
    if (!executor.Poll(&std::get<ResultEvent>(event.body).result)) return;
    const auto begin = WallClock::now();
    if (!engine->Handle(event).ok()) return;
    if (record) {
      recorder.OnEvent(event, StatusCode::kOk);
      recorder.OnAdvance(step);
    }
    engine->Advance(step);
    if (step >= 500) steps.push_back(Microseconds(WallClock::now() - begin));
    if (step % 1000 == 0) {
      taken.clear();
      recorder.Take(&taken);
    }
  }
  std::sort(steps.begin(), steps.end());
  std::printf("%d rows, %d waiting, depth %d%s: median %.1f us, p99 %.1f us (limit 50 us)\n", kRows,
              engine->scheduler().waiting(), pipeline_depth, record ? ", recorded" : "",
              steps[steps.size() / 2], steps[steps.size() * 99 / 100]);
}

void MillionRequests(int32_t max_sequences, double rate_per_s) {
  Scenario s;
  s.max_sequences = max_sequences;
  s.token_budget = 2048;
  s.chunk_tokens = 512;
  s.block_tokens = 16;
  s.step = {1'000'000, 1'000, 0};
  AddWorkload({.count = 1'000'000,
               .rate_per_s = rate_per_s,
               .prompt_tokens_min = 128,
               .prompt_tokens_max = 128,
               .output_tokens_min = 16,
               .output_tokens_max = 16},
              &s);
  const auto begin = WallClock::now();
  const Result<Simulation> result = Simulate(s, false);
  const double seconds = Microseconds(WallClock::now() - begin) * 1e-6;
  if (!result.ok()) return;
  std::printf(
      "1,000,000 requests of 128/16 tokens, %d places: %.1f s (limit 60 s), %ld steps, "
      "largest wait %.1f s\n",
      max_sequences, seconds, static_cast<long>(result->iterations),
      static_cast<double>(result->max_waiting) / kNsPerS);
}

}  // namespace
}  // namespace tandem

int main() {
  for (int depth : {0, 1}) {
    for (bool record : {false, true}) tandem::StepOverhead(depth, record);
  }
  tandem::MillionRequests(64, 2000);
  tandem::MillionRequests(256, 1e6);
  return 0;
}
