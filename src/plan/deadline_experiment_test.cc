// Goodput under overload (spec S8): Poisson arrivals, prompts of 256 to 2,048 tokens, answers of 16
// to 256, each due within twice the time that it takes alone. At four times the rate where goodput
// peaks, admission by deadline keeps goodput within 5 % of its peak; first come, first served
// without admission loses at least 30 %.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/simulator.h"

namespace tandem {
namespace {

constexpr uint64_t kSeeds = 10;
constexpr double kSeconds = 120;  // of arrivals: ten times the longest deadline

Scenario MakeScenario(double rate, uint64_t seed) {
  Scenario s;
  s.max_sequences = 16;
  s.token_budget = 512;
  s.chunk_tokens = 512;
  s.step = {26'220'000, 30'400, 3};
  AddWorkload({.count = static_cast<int32_t>(rate * kSeconds),
               .rate_per_s = rate,
               .prompt_tokens_min = 256,
               .prompt_tokens_max = 2048,
               .output_tokens_min = 16,
               .output_tokens_max = 256,
               .deadline_factor = 2,
               .seed = seed},
              &s);
  return s;
}

struct Outcome {
  double goodput = 0;  // answers in time per second, mean over the seeds
  double late = 0;     // of the requests that were accepted
};

Outcome RunAt(double rate, bool heed_deadlines, bool learn_cost) {
  Outcome outcome;
  int64_t late = 0;
  int64_t accepted = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scenario scenario = MakeScenario(rate, seed);
    scenario.heed_deadlines = heed_deadlines;
    scenario.learn_cost = learn_cost;
    const Simulation s = Simulate(scenario, false).value();
    int64_t good = 0;
    for (size_t i = 0; i < s.requests.size(); ++i) {
      const bool in_time = s.requests[i].Good(scenario.requests[i]);
      good += in_time;
      accepted += s.requests[i].refused.ok();
      late += s.requests[i].refused.ok() && !in_time;
    }
    const TimeNs span = std::max(s.finish, scenario.requests.back().arrival);
    outcome.goodput += static_cast<double>(good) / (static_cast<double>(span) / kNsPerS) / kSeeds;
  }
  outcome.late = static_cast<double>(late) / static_cast<double>(std::max<int64_t>(1, accepted));
  return outcome;
}

TEST(DeadlineExperiment, AdmissionHoldsGoodputUnderFourTimesTheKnee) {
  double knee = 0;
  double fifo_peak = 0;
  double peak = 0;
  for (double rate : {2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 7.0, 10.0}) {
    const double fifo = RunAt(rate, false, false).goodput;
    if (fifo > fifo_peak) {
      fifo_peak = fifo;
      knee = rate;
    }
    peak = std::max(peak, RunAt(rate, true, false).goodput);
  }
  const double fifo = RunAt(4 * knee, false, false).goodput;
  const Outcome admission = RunAt(4 * knee, true, false);
  const Outcome learnt = RunAt(4 * knee, true, true);
  fmt::print(
      "the knee is at {:.1f} requests/s; good answers/s at the peak and at four times the "
      "knee: first come, first served {:.2f}, {:.2f}; with deadlines heeded {:.2f}, {:.2f}; "
      "with step times learnt {:.2f}\n",
      knee, fifo_peak, fifo, peak, admission.goodput, learnt.goodput);
  EXPECT_LE(fifo, 0.7 * fifo_peak);
  EXPECT_GE(admission.goodput, 0.95 * peak);
  EXPECT_LT(admission.late, 0.05);
  // Whether the cost of a step was told or learnt makes little difference.
  EXPECT_GE(learnt.goodput, 0.95 * peak);
  EXPECT_LT(learnt.late, 0.05);
}

// Below the knee nobody is refused for fear.
TEST(DeadlineExperiment, ALightLoadIsAccepted) {
  Scenario scenario = MakeScenario(1, 3);
  const Simulation s = Simulate(scenario, false).value();
  EXPECT_EQ(s.stats.requests_refused, 0);
  for (size_t i = 0; i < s.requests.size(); ++i) {
    EXPECT_TRUE(s.requests[i].Good(scenario.requests[i])) << i;
  }
}

}  // namespace
}  // namespace tandem
