#include "server/metrics.h"

#include <fmt/format.h>
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

TEST(Metrics, ExposesCacheCostModelAndCancels) {
  EngineStats engine;
  engine.requests_refused_for_deadline = 9;
  engine.requests_awaiting_prefix = 2;
  engine.prefix_query_tokens = 100;
  engine.prefix_hit_tokens = 60;
  engine.prefix_missed = {.never_stored = 1,
                          .evicted = 2,
                          .other_identity = 3,
                          .tail = 4,
                          .last_token = 5,
                          .pending = 6,
                          .window = 7};
  engine.prefix_spans_evicted = 8;
  engine.prefix_saved_s = 1.5;
  engine.prefix_classes[9] = {.reuses = 1,
                              .continues = false,
                              .first_token_from = 256,
                              .hits = 5,
                              .evictions = 6,
                              .parts = 7,
                              .hit_probability = 0.25};
  engine.cost_base_ns = 2e6;
  engine.cost_token_ns = 3e3;
  engine.cost_pair_ns = 4;
  engine.cost_error = 0.125;
  engine.itl_prefill_tokens = 256;
  engine.cancels_stopped = 3;
  engine.cancel_stop_time_total = 6 * kNsPerMs;
  engine.cancels_released = 2;
  engine.cancel_release_time_total = 9 * kNsPerMs;
  const std::string text = ServerMetrics().Render(engine, "m", 0);
  const auto has = [&](std::string_view name, std::string_view value,
                       std::string_view more_labels = "") {
    EXPECT_THAT(
        text, HasSubstr(fmt::format("\n{}{{model_name=\"m\"{}}} {}\n", name, more_labels, value)));
  };
  has("tandem:engine_requests_refused_for_deadline_total", "9");
  has("vllm:prefix_cache_queries_total", "100");
  has("vllm:prefix_cache_hits_total", "60");
  has("tandem:prefix_cache_awaiting", "2");
  has("tandem:prefix_cache_evictions_total", "8");
  has("tandem:prefix_cache_saved_seconds_total", "1.5");
  const char* const reasons[] = {"never_stored", "evicted", "other_identity", "tail",
                                 "last_token",   "pending", "window"};
  for (size_t i = 0; i < std::size(reasons); ++i) {
    has("tandem:prefix_cache_misses_total", std::to_string(i + 1),
        fmt::format(",reason=\"{}\"", reasons[i]));
  }
  const std::string of_class = ",reuses=\"1\",continues=\"no\",first_token_from=\"256\"";
  has("tandem:prefix_class_hits_total", "5", of_class);
  has("tandem:prefix_class_evictions_total", "6", of_class);
  has("tandem:prefix_class_parts", "7", of_class);
  has("tandem:prefix_class_hit_probability", "0.25", of_class);
  EXPECT_EQ(text.find("reuses=\"0\""), std::string::npos) << "no part of another class";
  has("tandem:cost_model_step_seconds", "0.002");
  has("tandem:cost_model_token_seconds", "3e-06");
  has("tandem:cost_model_pair_seconds", "4e-09");
  has("tandem:cost_model_error_ratio", "0.125");
  has("tandem:itl_chunk_tokens", "256");
  has("tandem:cancel_stop_seconds_sum", "0.006");
  has("tandem:cancel_stop_seconds_count", "3");
  has("tandem:cancel_release_seconds_sum", "0.009");
  has("tandem:cancel_release_seconds_count", "2");
}

TEST(Metrics, PromptTokensAreThoseComputedAndThoseFound) {
  ServerMetrics metrics;
  metrics.OnPrompt(100, 60);
  metrics.OnPrompt(7, 0);
  metrics.OnEnd(FinishReason::kStop);
  metrics.OnEnd(FinishReason::kLength);
  metrics.OnEnd(FinishReason::kCancelled);
  metrics.OnEnd(FinishReason::kFailed);
  EngineStats engine;
  engine.prompt_tokens = 53;       // with six run again
  engine.requests_cancelled = 20;  // whoever cancelled them
  const std::string text = metrics.Render(engine, "m", 0);
  EXPECT_THAT(text, HasSubstr("\nvllm:prompt_tokens_total{model_name=\"m\"} 107\n"));
  EXPECT_THAT(text, HasSubstr("\nvllm:prompt_tokens_cached_total{model_name=\"m\"} 60\n"));
  EXPECT_THAT(text, HasSubstr("\nvllm:prompt_tokens_by_source_total{model_name=\"m\","
                              "source=\"local_compute\"} 47\n"));
  EXPECT_THAT(text, HasSubstr("\nvllm:prompt_tokens_by_source_total{model_name=\"m\","
                              "source=\"local_cache_hit\"} 60\n"));
  EXPECT_THAT(text, HasSubstr("\ntandem:prefill_tokens_total{model_name=\"m\"} 53\n"));
  EXPECT_THAT(text, HasSubstr("\ntandem:engine_requests_finished_total{model_name=\"m\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\ntandem:engine_requests_cancelled_total{model_name=\"m\"} 1\n"));
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
