// Random operations on pools and prefix cache against a model (testing/random_driver.h), and what a
// steady step allocates.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "kv/testing/random_driver.h"

namespace tandem {
namespace {

using testing::DriverReport;
using testing::RandomDriver;

// Every operation is followed by CheckIntegrity: pools of up to 46 blocks, trees of as many nodes.
TEST(KvRandom, MillionOperationsKeepEveryInvariant) {
  SplitMix64 random(20'26);
  DriverReport sum;
  int64_t duplicated = 0;
  int64_t windows = 0;
  while (sum.operations < 1'000'000) {
    std::vector<uint8_t> bytes(20'000);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.Next());
    const DriverReport report = RandomDriver(bytes).Run(/*check_every=*/1);
    sum.operations += report.operations;
    sum.admitted += report.admitted;
    sum.refused += report.refused;
    sum.forks += report.forks;
    sum.copies += report.copies;
    sum.waits += report.waits;
    sum.shorts += report.shorts;
    sum.cache.hit_tokens += report.cache.hit_tokens;
    sum.cache.spans_evicted += report.cache.spans_evicted;
    duplicated += report.cache.spans_duplicated;
    windows += report.cache.windows_evicted;
  }
  fmt::print(
      "{} operations: {} admitted, {} refused, {} forks, {} copies, {} waits, {} short, {} tokens "
      "hit, {} spans evicted, {} duplicated, {} windows evicted\n",
      sum.operations, sum.admitted, sum.refused, sum.forks, sum.copies, sum.waits, sum.shorts,
      sum.cache.hit_tokens, sum.cache.spans_evicted, duplicated, windows);
  // The operations reach what they are meant to reach.
  for (int64_t n : {sum.admitted, sum.refused, sum.forks, sum.copies, sum.waits, sum.shorts,
                    sum.cache.hit_tokens, sum.cache.spans_evicted, duplicated, windows}) {
    EXPECT_GT(n, 100);
  }
}

}  // namespace
}  // namespace tandem
