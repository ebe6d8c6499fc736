// The chapter's schedules, iteration by iteration and to the nanosecond, through the engine itself:
// what `tandem simulate --json` prints is compared with the published timelines field by field.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/simulation_report.h"
#include "plan/simulator.h"
#include "plan/testing/chapter_data.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

constexpr char kSchedules[] = "schedule_vectors.json";
constexpr char kFacts[] = "schedule_facts.json";

json Simulated(const json& inputs) {
  const Result<Scenario> scenario = ParseScenario(inputs.dump());
  EXPECT_TRUE(scenario.ok()) << scenario.status().ToString();
  const Result<Simulation> simulation = Simulate(*scenario, true);
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  return json::parse(ToJson(*scenario, *simulation));
}

// Every field that `expected` has is in `actual` with the same value.
void ExpectFields(const json& expected, const json& actual, const std::string& path) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(actual.contains(key)) << path << "." << key;
      ExpectFields(value, actual[key], path + "." + key);
    }
  } else if (expected.is_array()) {
    ASSERT_EQ(expected.size(), actual.size()) << path;
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectFields(expected[i], actual[i], path + "[" + std::to_string(i) + "]");
    }
  } else {
    EXPECT_EQ(expected, actual) << path;
  }
}

std::vector<std::string> ScheduleIds() {
  std::vector<std::string> ids;
  for (const json& v : json::parse(ReadChapterFile(kSchedules))) ids.push_back(v["id"]);
  return ids;
}

class Schedule : public ::testing::TestWithParam<std::string> {};

TEST_P(Schedule, IsTheChaptersIterationByIteration) {
  const json vector = ChapterVector(kSchedules, GetParam());
  const json actual = Simulated(vector["inputs"]);
  for (const char* part : {"summary", "steps", "requests"}) {
    ExpectFields(vector["expected"][part], actual[part], part);
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Vectors, Schedule, ::testing::ValuesIn(ScheduleIds()), TestName);

TEST(ScheduleFacts, ThePoliciesCompareAsInTheChapter) {
  const json fact = ChapterVector(kFacts, "8.2.2-sched-compare");
  std::vector<json> summaries;
  for (const json& id : fact["inputs"]["ids"]) {
    summaries.push_back(Simulated(ChapterVector(kSchedules, id)["inputs"])["summary"]);
  }
  const auto finish = [&](size_t i) { return summaries[i]["finish_ns"].get<double>(); };
  const auto gap = [&](size_t i) { return summaries[i]["max_itl_ns"].get<double>(); };
  EXPECT_NEAR(1 - finish(1) / finish(0), fact["expected"]["total_saving"].get<double>(), 1e-12);
  EXPECT_NEAR(gap(1) / gap(0), fact["expected"]["gap_growth"].get<double>(), 1e-9);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(summaries[i]["iterations"], fact["expected"]["iterations"][i]);
  }
}

TEST(ScheduleFacts, AShortAnswersPlaceInAGroupIdles) {
  const json fact = ChapterVector(kFacts, "8.2.2-idle-slot");
  json inputs = ChapterVector(kSchedules, "8.2.2-sched-fixed")["inputs"];
  inputs["requests"].erase(2);
  inputs["requests"].erase(2);
  for (size_t i = 0; i < 2; ++i) {
    inputs["requests"][i]["output_tokens"] = fact["inputs"]["outputs"][i];
  }
  const json steps = Simulated(inputs)["steps"];
  const auto idle = std::count_if(steps.begin(), steps.end(),
                                  [](const json& s) { return s["plans"].size() == 1; });
  EXPECT_EQ(idle, fact["expected"]["idle_steps"].get<int64_t>());
}

// One step's time under the constants of the chapter's measurement.
TEST(ScheduleFacts, StepTimesAreThoseOfTheMeasuredLaw) {
  const json fact = ChapterVector(kFacts, "8.2.2-cost-model");
  json inputs = ChapterVector(kSchedules, "8.2.2-sched-continuous")["inputs"];
  inputs["requests"] = json::parse(
      R"([{"arrival_ns":0,"prompt_tokens":2048,"output_tokens":3},
          {"arrival_ns":100000000,"prompt_tokens":8192,"output_tokens":1}])");
  const json steps = Simulated(inputs)["steps"];
  EXPECT_EQ(steps[0]["duration_ns"], fact["expected"]["prefill_2k_ns"]);
  EXPECT_EQ(steps[1]["duration_ns"], fact["expected"]["decode_2k_ns"]);
  for (const json& check : fact["expected"]["check_against_8_1"]) {
    json round = inputs;
    round["max_sequences"] = check["batch"];
    round["requests"] = json::array();
    for (int i = 0; i < check["batch"]; ++i) {
      round["requests"].push_back(
          {{"arrival_ns", 0}, {"prompt_tokens", check["context"]}, {"output_tokens", 2}});
    }
    const json decode = Simulated(round)["steps"][1];
    EXPECT_DOUBLE_EQ(decode["duration_ns"].get<double>() / 1e6, check["model_ms"].get<double>());
    // The law is fitted to a batch of one; the chapter gives how far off it is for others.
    EXPECT_NEAR(decode["duration_ns"].get<double>() / 1e6 / check["measured_ms"].get<double>(),
                check["model_over_measured"].get<double>(), 1e-9);
  }
}

TEST(ScheduleFacts, TheHandComputedStepsOfTheExercise) {
  const json fact = ChapterVector(kFacts, "ex-8-2-hand");
  const json steps =
      Simulated(ChapterVector(kSchedules, "8.2.2-sched-continuous")["inputs"])["steps"];
  const auto ms = [&](size_t i) { return steps[i]["duration_ns"].get<double>() / 1e6; };
  EXPECT_DOUBLE_EQ(ms(0), fact["expected"]["joint_prefill_ms"].get<double>());
  EXPECT_DOUBLE_EQ(ms(1), fact["expected"]["next_decode_ms"].get<double>());
  EXPECT_DOUBLE_EQ(ms(2), fact["expected"]["admit_r2_ms"].get<double>());
  json inputs = ChapterVector(kSchedules, "8.2.2-sched-chunked-512")["inputs"];
  inputs["requests"] = json::parse(R"([{"arrival_ns":0,"prompt_tokens":8192,"output_tokens":1}])");
  const json chunks = Simulated(inputs)["steps"];
  EXPECT_EQ(chunks.front()["causal_pairs"], fact["expected"]["pairs_first_chunk"]);
  EXPECT_EQ(chunks.back()["causal_pairs"], fact["expected"]["pairs_last_chunk"]);
}

// Exercise 8-2: the six requests of the replay, 80 ms apart, under the law fitted to that card. A
// small budget keeps the gaps small; under a large one a late request's first tokens run sooner.
TEST(ScheduleFacts, EachBudgetServesTheGoalThatTheExerciseNames) {
  const json fact = ChapterVector(kFacts, "ex-8-2-budget-choice");
  std::vector<double> gap_ms, late_ms;
  for (const json& budget : fact["inputs"]["budgets"]) {
    json inputs = {{"max_sequences", 8},         {"token_budget", budget},
                   {"chunk_tokens", budget},     {"step_base_ns", 11'600'000},
                   {"per_new_token_ns", 34'000}, {"per_causal_pair_ns", 7},
                   {"requests", json::array()}};
    const int prompts[] = {128, 2048, 256, 4096, 512, 1024};
    for (int i = 0; i < 6; ++i) {
      inputs["requests"].push_back({{"arrival_ns", i * 80 * kNsPerMs},
                                    {"prompt_tokens", prompts[i]},
                                    {"output_tokens", i % 2 == 0 ? 96 : 128}});
    }
    const json result = Simulated(inputs);
    gap_ms.push_back(result["summary"]["max_itl_ns"].get<double>() / kNsPerMs);
    const auto first =
        std::find_if(result["steps"].begin(), result["steps"].end(), [](const json& step) {
          return std::any_of(step["plans"].begin(), step["plans"].end(),
                             [](const json& row) { return row["request"] == "r4"; });
        });
    late_ms.push_back(((*first)["start_ns"].get<double>() - 320e6) / kNsPerMs);
  }
  const json& choice = fact["expected"]["choice"];
  EXPECT_EQ(fact["inputs"]["budgets"][gap_ms[0] < gap_ms[1] ? 0 : 1], choice[0]);
  EXPECT_LT(gap_ms[0], 50);
  EXPECT_GT(gap_ms[1], 50);
  EXPECT_EQ(fact["inputs"]["budgets"][late_ms[0] < late_ms[1] ? 0 : 1], choice[1]);
}

TEST(ScheduleFacts, ChunksHaveTheChaptersWork) {
  const json fact = ChapterVector(kFacts, "8.2.3-chunk-work");
  const ModelFigures qwen3;
  const auto work = [&](int32_t history) {
    return static_cast<double>(FlopsOf(qwen3, {0, history, fact["inputs"]["chunk"], true, false}));
  };
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(work(fact["inputs"]["h"][i]), fact["expected"]["flops"][i].get<double>());
  }
  const auto rows = ChapterTable("schedule_chunk_history.csv");
  ASSERT_EQ(rows.size(), 17u);
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(work(std::stoi(rows[i][0])), std::stod(rows[i][3])) << "row " << i;
  }
}

TEST(ScheduleFacts, KvBytesAndReservationsAreTheChapters) {
  const json per_token = ChapterVector(kFacts, "8.1.2-kv-per-token");
  EXPECT_EQ(ModelFigures().kv_bytes_per_token, per_token["expected"]["kv_bytes_per_token"]);
  const json cached = ChapterVector(kFacts, "8.1.2-cached-tokens");
  const json capacity = ChapterVector(kFacts, "8.1.2-admission-capacity");
  for (size_t i = 0; i < 2; ++i) {
    json inputs = ChapterVector(kSchedules, "8.2.2-sched-continuous")["inputs"];
    inputs["block_tokens"] = cached["inputs"]["block"];
    inputs["max_sequences"] = 64;
    inputs["kv_capacity_bytes"] = capacity["inputs"]["pool_bytes"];
    inputs["requests"] = json::array();
    for (int n = 0; n < 64; ++n) {
      inputs["requests"].push_back({{"arrival_ns", 0},
                                    {"prompt_tokens", cached["inputs"]["prompts"][i]},
                                    {"output_tokens", cached["inputs"]["output"]}});
    }
    const json result = Simulated(inputs);
    EXPECT_EQ(result["requests"][0]["computed"], cached["expected"]["computed"][i]);
    EXPECT_EQ(result["requests"][0]["reserved_bytes"].get<double>() / (1 << 20),
              cached["expected"]["reserved_mib"][i].get<double>());
    const auto together = std::count_if(result["requests"].begin(), result["requests"].end(),
                                        [](const json& r) { return r["admitted_ns"] == 0; });
    EXPECT_EQ(together, capacity["expected"][i == 0 ? "short" : "long"].get<int64_t>());
  }
}

json PressureInputs(double gib) {
  const json fact = ChapterVector(kFacts, "8.3.2-preemption")["inputs"];
  json inputs = {{"policy", "chunked"},
                 {"max_sequences", fact["max_sequences"]},
                 {"token_budget", fact["token_budget"]},
                 {"chunk_tokens", fact["token_budget"]},
                 {"step_base_ns", 26'220'000},
                 {"per_new_token_ns", 30'400},
                 {"per_causal_pair_ns", 3},
                 {"kv_capacity_bytes", static_cast<int64_t>(gib * (1 << 30))},
                 {"block_tokens", fact["block"]},
                 {"reserved_blocks", 1},
                 {"reservation", "on-demand"},
                 {"preemption", "last-admitted"},
                 {"requests", json::array()}};
  for (int i = 0; i < fact["requests"]; ++i) {
    inputs["requests"].push_back(
        {{"arrival_ns", 0}, {"prompt_tokens", fact["prompt"]}, {"output_tokens", fact["output"]}});
  }
  return inputs;
}

void ExpectPressureRun(const json& expected, const json& actual) {
  EXPECT_EQ(actual["summary"]["iterations"], expected["steps"]);
  EXPECT_EQ(actual["summary"]["total_scheduled_tokens"], expected["scheduled_positions"]);
  EXPECT_EQ(actual["summary"]["peak_blocks"], expected["peak_blocks"]);
  json preemptions = json::array();
  json ends = json::array();
  for (size_t i = 0; i < actual["steps"].size(); ++i) {
    const json& step = actual["steps"][i];
    for (const json& id : step["preempted"]) preemptions.push_back({i + 1, id});
    for (size_t r = 0; r < actual["requests"].size(); ++r) {
      const json& request = actual["requests"][r];
      if (request["finish_ns"] != step["end_ns"]) continue;
      ends.push_back(request["finish"] == "cancelled" ? json({i + 1, "cancel"}) : json({i + 1, r}));
    }
  }
  json expected_preemptions = json::array();
  for (const json& p : expected["preemptions"]) {
    expected_preemptions.push_back({p["step"], "r" + std::to_string(p["request"].get<int>())});
  }
  EXPECT_EQ(preemptions, expected_preemptions);
  json expected_ends = json::array();
  for (const json& e : expected["finish"]) expected_ends.push_back({e[0], e[1]});
  EXPECT_EQ(ends, expected_ends);
}

TEST(PreemptionRun, OneGibIsTheMeasuredRunStepByStep) {
  const json fact = ChapterVector(kFacts, "8.3.2-preemption")["expected"];
  const json actual = Simulated(PressureInputs(1));
  ExpectPressureRun(fact["small"], actual);
  EXPECT_EQ(actual["summary"]["recomputed_tokens"], fact["recomputed_positions"]);
  EXPECT_EQ(actual["summary"]["preemptions"], 1);
  const auto rows = ChapterTable("schedule_preemption_steps.csv");
  ASSERT_EQ(rows.size(), actual["steps"].size() + 1);
  for (size_t i = 1; i < rows.size(); ++i) {
    const json& step = actual["steps"][i - 1];
    std::string plan;
    for (const json& row : step["plans"]) {
      plan += (plan.empty() ? "" : " ") + row["request"].get<std::string>() + ":" +
              std::to_string(row["new_tokens"].get<int>());
    }
    ASSERT_EQ(plan, rows[i][1]) << "step " << i;
    ASSERT_EQ(step["new_tokens"], std::stoi(rows[i][2])) << "step " << i;
    ASSERT_EQ(step["blocks_in_use"], std::stoi(rows[i][3])) << "step " << i;
  }
}

TEST(PreemptionRun, TwoGibPreemptNobody) {
  const json fact = ChapterVector(kFacts, "8.3.2-preemption")["expected"];
  ExpectPressureRun(fact["large"], Simulated(PressureInputs(2)));
}

TEST(PreemptionRun, ACancelGivesItsBlocksBack) {
  const json fact = ChapterVector(kFacts, "8.3.2-preemption");
  json inputs = PressureInputs(1);
  const json& cancel = fact["inputs"]["cancel"];
  inputs["requests"][cancel["request"].get<size_t>()]["cancel_after_outputs"] =
      cancel["at_outputs"];
  const json actual = Simulated(inputs);
  ExpectPressureRun(fact["expected"]["cancel_run"], actual);
  const json end = fact["expected"]["cancel_run"]["finish"][0];
  const auto step = end[0].get<size_t>();
  const int before = actual["steps"][step - 1]["blocks_in_use"];
  EXPECT_EQ(454 - before + end[2].get<int>(), end[3].get<int>());
  EXPECT_EQ(actual["steps"][step]["blocks_in_use"].get<int>() - (before - end[2].get<int>()), 0);
}

}  // namespace
}  // namespace tandem::testing
