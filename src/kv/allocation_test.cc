// Counts calls of operator new in the pools and the prefix cache during steady decode steps, whose
// commits store spans and whose growth evicts others; prints the time of such a step.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/testing/counting_new.h"
#include "kv/testing/cache_harness.h"

namespace tandem::testing {
namespace {

TEST(KvAllocation, SteadyDecodeStepsAllocateNothing) {
  constexpr int32_t kRows = 64;
  constexpr int64_t kPrompt = 64;
  constexpr int64_t kSteps = 512;
  PrefixCache::Options options = TestOptions(RetentionKind::kValue);
  CacheHarness harness({Group(16, 100'000), Group(16, 1'000, 64)}, std::move(options), 2);
  // Old prefixes fill the pool, so that every block that a row takes has to be evicted.
  for (int32_t i = 0; harness.cache.stats().spans_evicted == 0; ++i) {
    std::unique_ptr<RunningSequence> old = harness.Start(Tenant("old"), Range(i * 2000, 2000), 0);
    for (int64_t end = 2; end <= 2000; end += 2) harness.Compute(old.get(), end);
    harness.Finish(std::move(old));
  }
  std::vector<SequenceBlocks> rows;
  std::vector<std::vector<TokenId>> tokens;
  StepPlan plan;
  plan.step = StepId(harness.step());
  for (int32_t r = 0; r < kRows; ++r) {
    tokens.push_back(Range(-1000 * (r + 1), kPrompt + kSteps + 1));
    rows.push_back(harness.pools.MakeSequence(kPrompt + kSteps + 1));
    const auto prompt = std::span(tokens.back()).first(kPrompt);
    ASSERT_TRUE(harness.cache.Admit(Tenant(""), {}, prompt, kPrompt + kSteps, 0, SlotId(r),
                                    &rows.back(), &plan));
  }
  const auto step = [&](int64_t end) {
    plan.Clear();
    plan.step = StepId(plan.step.value() + 1);
    harness.cache.Advance(static_cast<TimeNs>(end) * kNsPerMs);
    for (int32_t r = 0; r < kRows; ++r) {
      TANDEM_CHECK(harness.pools.Grow(&rows[static_cast<size_t>(r)], end, SlotId(r), &plan) ==
                   Growth::kDone);
    }
    harness.pools.CompleteSteps(plan.step);
    for (size_t r = 0; r < rows.size(); ++r) {
      harness.cache.Commit(&rows[r], tokens[r], end, plan.step);
    }
  };
  for (int64_t end = 2; end <= kPrompt; end += 2) step(end);
  const int64_t evicted = harness.cache.stats().spans_evicted;
  const auto begin = std::chrono::steady_clock::now();
  counting = true;
  for (int64_t end = kPrompt + 1; end <= kPrompt + kSteps; ++end) step(end);
  counting = false;
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(allocations, 0);
  EXPECT_GT(harness.cache.stats().spans_evicted, evicted + kRows * kSteps / 16 / 2);
  fmt::print(
      "{:.1f} us for a step of {} rows, {:.2f} us for each block evicted, taken and stored\n",
      time.count() / kSteps, kRows, time.count() / (kRows * kSteps / 16));
  for (size_t r = 0; r < rows.size(); ++r) {
    harness.cache.Release(&rows[r], tokens[r], plan.step);
  }
  EXPECT_EQ(harness.pools.busy_blocks(), 0);
}

}  // namespace
}  // namespace tandem::testing
