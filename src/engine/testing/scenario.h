// What: RunScenario: bytes -> a small configuration and a sequence of arrivals, cancels, results
//   and faults, run on an EngineDriver; the same for random tests and for the fuzzer.
// Not here: fixed cases (engine_test.cc, tests/trace).
// Threads: one.
// Invariants: any bytes are a scenario; it ends by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/testing/driver.h"

namespace tandem::testing {

class ByteSource {
 public:
  explicit ByteSource(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  // In [0, bound); 0 when nothing is left.
  int32_t Next(int32_t bound) {
    if (bytes_.empty()) return 0;
    const int32_t value = bytes_.front() % bound;
    bytes_ = bytes_.subspan(1);
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct ScenarioReport {
  Status fault;  // OK: every promise was kept
  std::string plans;
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t refused = 0;
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;
  int64_t scored_tokens = 0;            // entries that were delivered, of prompts
  int64_t scored_after_preemption = 0;  // of these, of requests that were preempted
};

inline EngineConfig ScenarioConfig(ByteSource* bytes) {
  EngineConfig config;
  config.pipeline_depth = bytes->Next(3);
  config.groups = {PagedGroup(1 + bytes->Next(4), 4 + bytes->Next(40))};
  if (bytes->Next(2) == 1) {
    config.groups.push_back(
        WindowGroup(1 + bytes->Next(3), 3 + bytes->Next(24), 1 + bytes->Next(9)));
  }
  config.max_running = 1 + bytes->Next(5);
  config.token_budget = config.max_running + bytes->Next(16);
  config.chunk_tokens = 1 + bytes->Next(12);
  config.reserve_tokens = bytes->Next(12);
  config.max_queue = 1 + bytes->Next(8);
  config.context_length = 8 + bytes->Next(64);
  config.policy = static_cast<Policy>(bytes->Next(3));
  config.reservation = static_cast<Reservation>(bytes->Next(3));
  config.preemption = static_cast<PreemptionRule>(bytes->Next(2));
  if (bytes->Next(2) == 1) config.cost = LinearCost{5, 1, 0.1};
  config.itl_target = bytes->Next(3) * 8;
  if (bytes->Next(4) == 0) config.prepared_tokens = {1, 4, 16};
  config.vocab_size = 32;
  return config;
}

inline Request ScenarioRequest(ByteSource* bytes, uint64_t id, int32_t vocab) {
  Request request;
  request.id = RequestId(id);
  const int32_t prompt = bytes->Next(24);  // an empty one is refused
  for (int32_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(TokenId(
        static_cast<int32_t>((id * 7 + static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab))));
  }
  request.sampling.seed = static_cast<uint64_t>(bytes->Next(4));
  if (bytes->Next(3) == 0) request.max_output_tokens = bytes->Next(20);  // 0 is refused
  if (bytes->Next(4) == 0) request.deadline = 1 + bytes->Next(250) * 8;
  if (bytes->Next(8) == 0) request.ttft_target = 1 + bytes->Next(250);
  if (bytes->Next(2) == 0) request.stop_tokens = {TokenId(bytes->Next(vocab))};
  if (bytes->Next(3) == 0) {
    request.sampling.top_logprobs = bytes->Next(3);
    request.prompt_logprobs = bytes->Next(4) != 0;
  }
  return request;
}

inline void ScenarioStep(ByteSource* bytes, uint64_t* last_id, int32_t vocab, EngineDriver* driver,
                         ScenarioReport* report) {
  switch (bytes->Next(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
      report->refused += !driver->Arrive(ScenarioRequest(bytes, ++*last_id, vocab)).ok();
      break;
    case 4: driver->Cancel(RequestId(*last_id - static_cast<uint64_t>(bytes->Next(6)))); break;
    case 5:
      if (bytes->Next(4) == 0) driver->executor().FailNext();
      break;
    case 6:
      if (bytes->Next(4) == 0) driver->executor().RefuseNext();
      break;
    case 7: driver->Advance(); break;
    default:
      driver->FinishStep();
      driver->SetNow(driver->now() + 1);
      if (bytes->Next(4) != 0) driver->Advance();
  }
}

inline ScenarioReport RunScenario(std::span<const uint8_t> input) {
  ByteSource bytes(input);
  ScenarioReport report;
  const EngineConfig config = ScenarioConfig(&bytes);
  if (!Scheduler::Create(config).ok()) return report;
  EngineDriver driver(config);
  driver.executor().SetOnPlan([&](const StepPlan& plan) { report.plans += plan.ToText(); });
  uint64_t last_id = 0;
  while (!bytes.empty() && driver.fault().ok()) {
    ScenarioStep(&bytes, &last_id, config.vocab_size, &driver, &report);
  }
  // Each request runs at most 72 tokens and each is recomputed at most once per token of an older
  // one.
  driver.Drain(static_cast<int64_t>(last_id + 1) * 72 * 72);
  report.fault = driver.fault();
  for (const auto& [id, record] : driver.records()) {
    driver.CheckAnswer(record);
    report.finished +=
        record.finish == FinishReason::kStop || record.finish == FinishReason::kLength;
    report.cancelled += record.finish == FinishReason::kCancelled;
    report.failed += record.finish == FinishReason::kFailed;
    report.preemptions += record.preemptions;
    const auto scored = static_cast<int64_t>(record.prompt_logprobs.size());
    report.scored_tokens += scored;
    if (record.preemptions > 0) report.scored_after_preemption += scored;
    if (!record.finish) report.fault = InternalError("request {} has no end", id);
  }
  if (report.fault.ok()) report.fault = driver.fault();
  report.recomputed_tokens = driver.engine().stats(driver.now()).recomputed_tokens;
  return report;
}

}  // namespace tandem::testing
