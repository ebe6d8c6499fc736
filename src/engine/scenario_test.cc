#include "engine/testing/scenario.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace tandem::testing {
namespace {

std::vector<uint8_t> RandomBytes(uint64_t seed, size_t size) {
  SplitMix64 random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

// Random pools, depths, chunks, arrivals, cancels and faults: RunScenario checks every promise
// after every call.
TEST(Scenario, RandomRunsKeepEveryPromise) {
  ScenarioReport total;
  for (uint64_t seed = 1; seed <= 1200; ++seed) {
    const ScenarioReport report = RunScenario(RandomBytes(seed, 40 + seed % 700));
    ASSERT_TRUE(report.fault.ok()) << "seed " << seed << ": " << report.fault.ToString();
    total.finished += report.finished;
    total.cancelled += report.cancelled;
    total.failed += report.failed;
    total.refused += report.refused;
    total.preemptions += report.preemptions;
    total.recomputed_tokens += report.recomputed_tokens;
    total.scored_tokens += report.scored_tokens;
    total.scored_after_preemption += report.scored_after_preemption;
  }
  // The runs reach everything that they are meant to test.
  EXPECT_GT(total.finished, 4000);
  EXPECT_GT(total.cancelled, 400);
  EXPECT_GT(total.failed, 400);
  EXPECT_GT(total.refused, 400);
  EXPECT_GT(total.preemptions, 400);
  EXPECT_GT(total.recomputed_tokens, 4000);
  EXPECT_GT(total.scored_tokens, 4000);
  EXPECT_GT(total.scored_after_preemption, 400);
}

TEST(Scenario, EqualInputsGiveEqualPlans) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const std::vector<uint8_t> bytes = RandomBytes(seed, 300);
    EXPECT_EQ(RunScenario(bytes).plans, RunScenario(bytes).plans) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tandem::testing
