#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(Histogram, CountsByUpperBoundInclusive) {
  constexpr double kBounds[] = {1.0, 2.0};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 2.0, 9.0}) histogram.Observe(value);
  EXPECT_THAT(std::vector<int64_t>(histogram.counts().begin(), histogram.counts().end()),
              testing::ElementsAre(2, 2, 1));
  EXPECT_DOUBLE_EQ(histogram.sum(), 14.0);
}

TEST(Metrics, ExposesEngineAndServerNumbers) {
  ServerMetrics metrics;
  metrics.ObserveFirstToken(30 * kNsPerMs);
  metrics.ObserveInterToken(2 * kNsPerMs);
  metrics.ObserveEnd(AnswerEnd::kStop, 40 * kNsPerMs);
  metrics.ObserveEnd(AnswerEnd::kAbort, kNsPerMs);
  metrics.CountError("queue_full");
  metrics.CountError("queue_full");
  EngineStats engine;
  engine.requests_running = 3;
  engine.requests_waiting = 4;
  engine.blocks_total = 8;
  engine.blocks_in_use = 2;
  engine.preemptions = 5;
  const std::string text = metrics.Render(engine, "a\"b\\c\nd", 17);
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_waiting{model_name=\"a\\\"b\\\\c\\nd\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("vllm:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\\nd\"} 0.25\n"));
  const std::string plain = metrics.Render(engine, "m", 17);
  EXPECT_THAT(plain, HasSubstr("vllm:num_preemptions_total{model_name=\"m\"} 5\n"));
  EXPECT_THAT(plain, HasSubstr("tandem:http_connections{model_name=\"m\"} 17\n"));
  EXPECT_THAT(
      plain,
      HasSubstr("vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.025\"} 0\n"));
  EXPECT_THAT(
      plain,
      HasSubstr("vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.05\"} 1\n"));
  EXPECT_THAT(
      plain,
      HasSubstr("vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 1\n"));
  EXPECT_THAT(plain, HasSubstr("vllm:time_to_first_token_seconds_sum{model_name=\"m\"} 0.03\n"));
  EXPECT_THAT(plain, HasSubstr("vllm:e2e_request_latency_seconds_count{model_name=\"m\"} 1\n"));
  EXPECT_THAT(
      plain,
      HasSubstr("vllm:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 1\n"));
  EXPECT_THAT(
      plain,
      HasSubstr("vllm:request_success_total{model_name=\"m\",finished_reason=\"abort\"} 1\n"));
  EXPECT_THAT(plain,
              HasSubstr("tandem:api_errors_total{model_name=\"m\",code=\"queue_full\"} 2\n"));
}

TEST(Metrics, EverySampleFollowsItsTypeAndHelp) {
  ServerMetrics metrics;
  std::istringstream lines(metrics.Render({}, "m", 0));
  std::set<std::string> declared;
  std::string family;
  int samples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(declared.insert(family).second) << line;
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line.substr(7, line.find(' ', 7) - 7), family);
    } else {
      ++samples;
      EXPECT_TRUE(line.starts_with(family)) << line;
    }
  }
  EXPECT_GT(samples, 70);
}

}  // namespace
}  // namespace tandem
