// One request's time line, Little's law and admission by deadline, through the simulator and the
// figures of a run, against the chapter's.
// Vectors: 8.1.1-lifecycle, 8.1.1-inserted-prefill, 8.1.3-metric-definitions, 8.2.4-chunk-for-gap,
// 8.2.4-graph-bucket, 8.6.1-little, 8.6.1-admission.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "plan/run_figures.h"
#include "plan/simulator.h"
#include "plan/testing/chapter_data.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

constexpr char kFacts[] = "schedule_facts.json";

ScenarioRequest Make(TimeNs arrival, int32_t prompt, int32_t outputs) {
  ScenarioRequest r;
  r.id = fmt::format("{}-{}", arrival, prompt);
  r.arrival = arrival;
  r.prompt_tokens = prompt;
  r.output_tokens = outputs;
  r.max_tokens = outputs;
  return r;
}

TimeNs Ns(const json& seconds) {
  return static_cast<TimeNs>(std::llround(seconds.get<double>() * 1e9));
}

// A prompt of 1,391 tokens takes the chapter's 96 ms, an output 26.5 ms, and one of 1,471 tokens
// 100 ms: what others take before it, or between two of its outputs.
constexpr int32_t kPrompt = 1391;
constexpr int32_t kTenthOfASecond = 1471;
Scenario OneRequest(int32_t places) {
  Scenario s;
  s.policy = Policy::kContinuous;
  s.max_sequences = places;
  s.token_budget = s.chunk_tokens = 4096;
  s.step = {26'450'000, 50'000, 0};
  return s;
}

TEST(ServiceVectors, ARequestIsQueuedThenItsPromptThenItsOutputs) {
  const json v = ChapterVector(kFacts, "8.1.1-lifecycle");
  Scenario s = OneRequest(1);
  s.requests = {Make(0, kTenthOfASecond, 1),
                Make(0, kPrompt, v["inputs"]["output_tokens"].get<int32_t>())};
  const Simulation result = Simulate(s, true).value();
  const SimulatedRequest& r = result.requests[1];
  EXPECT_EQ(r.admitted, Ns(v["inputs"]["queue_s"]));
  EXPECT_EQ(r.first_token, Ns(v["expected"]["ttft_s"]));
  EXPECT_EQ(r.finished - r.first_token, Ns(v["expected"]["decode_s"]));
  EXPECT_EQ(r.finished, Ns(v["expected"]["total_s"]));
  const TimeNs slack = Ns(v["inputs"]["deadline_s"]) - r.finished;
  EXPECT_EQ(slack, Ns(v["expected"]["slack_s"]));
}

// The prompt of another request runs in the step of one of its outputs and makes it longer.
TEST(ServiceVectors, APromptInBetweenDelaysOneOutput) {
  const json v = ChapterVector(kFacts, "8.1.1-inserted-prefill");
  Scenario s = OneRequest(2);
  // So many tokens take 96 ms beside the 26.5 ms that the step takes anyway.
  constexpr int32_t kInserted = 1920;
  s.requests = {Make(0, kTenthOfASecond, 1), Make(0, kPrompt, 256), Make(kNsPerS, kInserted, 1)};
  s.max_sequences = 2;
  s.requests[0].arrival = 0;
  Scenario alone = s;
  alone.requests.pop_back();
  const SimulatedRequest before = Simulate(alone, true)->requests[1];
  const SimulatedRequest after = Simulate(s, true)->requests[1];
  EXPECT_EQ(after.finished - before.finished, Ns(v["inputs"]["inserted_s"]));
  EXPECT_EQ(after.max_itl, Ns(v["expected"]["long_interval_ms"].get<double>() / 1e3));
}

TEST(ServiceVectors, MetricsAreTakenFromDeliveryTimes) {
  const json v = ChapterVector(kFacts, "8.1.3-metric-definitions");
  RunFigures figures;
  Request request;
  request.id = RequestId(1);
  request.arrival = Ns(v["inputs"]["arrival_s"]);
  figures.Arrived(request, true);
  RequestOutput output;
  output.id = RequestId(1);
  output.times.arrival = request.arrival;
  const json& delivery = v["inputs"]["delivery_s"];
  for (size_t i = 0; i < delivery.size(); ++i) {
    output.tokens = {TokenId(1)};
    if (i == 0) output.times.first_token = Ns(delivery[i]);
    if (i + 1 == delivery.size()) output.finish = FinishReason::kLength;
    figures.Note(output, Ns(delivery[i]));
  }
  const RunSummary summary = figures.Summary(EngineStats());
  EXPECT_EQ(summary.first_token.most, Ns(v["expected"]["ttft_s"]));
  EXPECT_EQ(summary.gap.most, Ns(v["expected"]["max_itl_s"]));
  EXPECT_EQ(summary.gap.median, Ns(v["expected"]["itl_s"][0]));
  EXPECT_EQ(summary.answer.most, Ns(v["expected"]["request_s"]));
  const TimeNs tpot =
      (summary.answer.most - summary.first_token.most) / (summary.output_tokens - 1);
  EXPECT_EQ(tpot, Ns(v["expected"]["mean_tpot_s"]));
}

// The scheduler itself, with a decode row at 2,048 beside a prompt that has so much behind it.
TEST(ServiceVectors, TheChunkBesideADecodeFillsTheGap) {
  const json v = ChapterVector(kFacts, "8.2.4-chunk-for-gap");
  const json& in = v["inputs"];
  for (size_t h = 0; h < in["history"].size(); ++h) {
    for (const json& target : in["targets_ms"]) {
      const int32_t history = in["history"][h];
      const int32_t context = in["decode_context"];
      Scenario s;
      s.max_sequences = 2;
      s.token_budget = std::max(2 * context, context + history);
      s.chunk_tokens = 1 << 20;
      s.step = {in["step_base_ns"], in["per_new_token_ns"], in["per_causal_pair_ns"]};
      s.itl_target = target.get<int64_t>() * kNsPerMs;
      // Both prompts share the first step, or the second one comes while it runs.
      s.requests = {Make(0, context, 3), Make(history > 0 ? 0 : 1, 20'000, 1)};
      const Simulation result = Simulate(s, true).value();
      const SimulatedStep& step = result.steps[1];
      ASSERT_EQ(step.rows.size(), 2u);
      EXPECT_EQ(step.rows[0].history_tokens, context);
      EXPECT_EQ(step.rows[1].history_tokens, history);
      EXPECT_EQ(step.rows[1].new_tokens,
                v["expected"]["max_chunk"][std::to_string(target.get<int64_t>())][h]);
      EXPECT_LE(step.end - step.start, s.itl_target);
    }
  }
}

TEST(ServiceVectors, AStepOfRowsTakesWhatItsPreparedShapeTakes) {
  const json v = ChapterVector(kFacts, "8.2.4-graph-bucket");
  for (bool extra : {false, true}) {
    std::vector<int32_t> prepared = v["inputs"]["captured"].get<std::vector<int32_t>>();
    if (extra) prepared.insert(prepared.begin() + 1, 17);
    const json& executed = v["expected"][extra ? "with_17_graph" : "executed"];
    for (size_t i = 0; i < v["inputs"]["rows"].size(); ++i) {
      const int32_t rows = v["inputs"]["rows"][i];
      Scenario s;
      s.max_sequences = rows;
      s.token_budget = s.chunk_tokens = 64;
      s.step = {0, 1000, 0};
      s.prepared_tokens = prepared;
      for (int32_t r = 0; r < rows; ++r) s.requests.push_back(Make(0, 1, 2));
      for (int32_t r = 0; r < rows; ++r)
        s.requests[static_cast<size_t>(r)].id = fmt::format("{}", r);
      const Simulation result = Simulate(s, true).value();
      ASSERT_EQ(result.steps.size(), 2u);
      EXPECT_EQ(result.steps[1].new_tokens, rows);
      EXPECT_EQ(result.steps[1].end - result.steps[1].start, executed[i].get<int64_t>() * 1000);
    }
  }
}

TEST(ServiceVectors, RequestsInTheSystemAreRateTimesTime) {
  const json v = ChapterVector(kFacts, "8.6.1-little");
  for (size_t i = 0; i < v["inputs"]["rows"].size(); ++i) {
    const double rate = v["inputs"]["rows"][i][0];
    const double time_s = v["inputs"]["rows"][i][1];
    constexpr TimeNs kStep = 10 * kNsPerMs;
    Scenario s;
    s.max_sequences = 64;
    s.token_budget = s.chunk_tokens = 64;
    s.step = {kStep, 0, 0};
    const auto outputs = static_cast<int32_t>(time_s * kNsPerS / kStep);
    const auto between = static_cast<TimeNs>(kNsPerS / rate);
    for (int32_t r = 0; r < 200; ++r) {
      s.requests.push_back(Make(r * between, 1, outputs));
    }
    const Simulation result = Simulate(s, true).value();
    // From the first end to the last arrival as many are there as there always are.
    const TimeNs begin = result.requests.front().finished;
    const TimeNs end = s.requests.back().arrival;
    double rows_ns = 0;
    for (const SimulatedStep& step : result.steps) {
      if (step.start < begin || step.end > end) continue;
      rows_ns += static_cast<double>(step.rows.size()) * static_cast<double>(step.end - step.start);
    }
    EXPECT_NEAR(rows_ns / static_cast<double>(end - begin), v["expected"]["n"][i].get<double>(),
                1e-9);
  }
}

TEST(ServiceVectors, AdmissionPredictsTheAnswersEnd) {
  const json v = ChapterVector(kFacts, "8.6.1-admission");
  const double extra_s = v["inputs"]["extra_queue_s"];
  for (bool extra : {false, true}) {
    Scenario s = OneRequest(1);
    // What runs when the request comes, 1 ns later: a tenth of a second, or two.
    constexpr int32_t kTwoTenths = 3471;
    s.requests = {Make(0, extra ? kTwoTenths : kTenthOfASecond, 1), Make(1, kPrompt, 256)};
    s.requests[1].deadline = Ns(v["inputs"]["deadline_s"]);
    ASSERT_EQ(Ns(extra_s), 100 * kNsPerMs);
    const Simulation result = Simulate(s, true).value();
    const SimulatedRequest& r = result.requests[1];
    EXPECT_EQ(r.refused.ok(), v["expected"]["admit"][extra ? 1 : 0].get<bool>());
    if (extra) {
      ASSERT_TRUE(r.refusal.has_value());
      EXPECT_NEAR(static_cast<double>(r.refusal->predicted),
                  v["expected"]["with_extra"].get<double>() * 1e9, 10);
      EXPECT_EQ(r.refusal->allowed, Ns(v["inputs"]["deadline_s"]));
    } else {
      EXPECT_EQ(r.finished, Ns(v["expected"]["without_extra"]));
      EXPECT_TRUE(r.Good(s.requests[1]));
    }
  }
}

}  // namespace
}  // namespace tandem::testing
