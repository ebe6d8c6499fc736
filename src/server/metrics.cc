#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem {
namespace {

// Seconds; from a small model's step on a CPU to a queue under overload.
constexpr double kFirstTokenBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                        0.75,  1.0,    2.5,   5.0,  7.5,   10.0, 20.0, 40.0, 80.0};
constexpr double kInterTokenBounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                        0.15,   0.2,   0.3,    0.4,   0.5,  0.75,  1.0,  2.5};
constexpr double kEndToEndBounds[] = {0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,  1.5,   2.0,  2.5,
                                      5.0,  10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 240.0};

constexpr double kTokenBounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                   500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

constexpr std::string_view kEndNames[] = {"stop", "length", "abort", "error"};

double Seconds(TimeNs ns) { return static_cast<double>(ns) / static_cast<double>(kNsPerS); }

// Appends metrics that all carry the model's name.
class Exposition {
 public:
  explicit Exposition(std::string_view model_name)
      : label_(fmt::format("model_name=\"{}\"", EscapeLabel(model_name))) {}

  void Begin(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(Out(), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Number>
  void Sample(std::string_view name, Number value, std::string_view more_labels = {}) {
    fmt::format_to(Out(), "{}{{{}{}}} {}\n", name, label_, more_labels, value);
  }
  template <typename Number>
  void Gauge(std::string_view name, Number value, std::string_view help) {
    Begin(name, "gauge", help);
    Sample(name, value);
  }
  template <typename Number>
  void Counter(std::string_view name, Number value, std::string_view help) {
    Begin(name, "counter", help);
    Sample(name, value);
  }
  // Without quantiles.
  void Summary(std::string_view name, double sum, int64_t count, std::string_view help) {
    Begin(name, "summary", help);
    Sample(fmt::format("{}_sum", name), sum);
    Sample(fmt::format("{}_count", name), count);
  }
  void Buckets(std::string_view name, const Histogram& histogram, std::string_view help) {
    Begin(name, "histogram", help);
    const std::string bucket = fmt::format("{}_bucket", name);
    int64_t below = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      below += histogram.counts()[i];
      const std::string bound =
          i < histogram.bounds().size() ? fmt::format("{}", histogram.bounds()[i]) : "+Inf";
      Sample(bucket, below, fmt::format(",le=\"{}\"", bound));
    }
    Sample(fmt::format("{}_sum", name), histogram.sum());
    Sample(fmt::format("{}_count", name), below);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::back_insert_iterator<std::string> Out() { return std::back_inserter(text_); }

  const std::string label_;
  std::string text_;
};

void AppendEngine(const EngineStats& engine, Exposition& out) {
  out.Gauge("vllm:num_requests_running", engine.requests_running, "Requests in the batch.");
  out.Gauge("vllm:num_requests_waiting", engine.requests_waiting, "Requests in the queue.");
  const double usage = engine.blocks_total > 0 ? static_cast<double>(engine.blocks_in_use) /
                                                     static_cast<double>(engine.blocks_total)
                                               : 0.0;
  out.Gauge("vllm:kv_cache_usage_perc", usage, "KV blocks in use, 1 is all of them.");
  out.Counter("vllm:num_preemptions_total", engine.preemptions, "Requests preempted.");
  out.Counter("tandem:prefill_tokens_total", engine.prompt_tokens,
              "Tokens that steps have run as parts of prompts, recomputed ones included.");
  out.Counter("vllm:generation_tokens_total", engine.generated_tokens, "Tokens generated.");
  out.Counter("tandem:recomputed_tokens_total", engine.recomputed_tokens,
              "Tokens computed again after a preemption.");
  out.Counter("tandem:steps_total", engine.steps, "Scheduling iterations.");
  out.Counter("tandem:step_seconds_total", Seconds(engine.step_time_total),
              "Device time of all steps.");
  out.Counter("tandem:engine_requests_failed_total", engine.requests_failed, "Requests failed.");
  out.Counter("tandem:engine_requests_refused_total", engine.requests_refused,
              "Requests refused on arrival.");
  out.Counter("tandem:engine_requests_refused_for_deadline_total",
              engine.requests_refused_for_deadline,
              "Of these: refused because they were predicted to be late.");
  out.Summary("tandem:cancel_stop_seconds", Seconds(engine.cancel_stop_time_total),
              engine.cancels_stopped,
              "From a running request's cancel to the first plan without it.");
  out.Summary("tandem:cancel_release_seconds", Seconds(engine.cancel_release_time_total),
              engine.cancels_released,
              "From a running request's cancel to the end of the last step that used its blocks.");
}

// Prompts count when they have been processed, each once.
void AppendPrompts(int64_t computed, int64_t cached, Exposition& out) {
  out.Counter("vllm:prompt_tokens_total", computed + cached,
              "Tokens of prompts, computed or found in the prefix cache.");
  out.Counter("vllm:prompt_tokens_cached_total", cached, "Of these: found in the prefix cache.");
  constexpr std::string_view kBySource = "vllm:prompt_tokens_by_source_total";
  out.Begin(kBySource, "counter", "The same tokens, by where their keys and values came from.");
  out.Sample(kBySource, computed, ",source=\"local_compute\"");
  out.Sample(kBySource, cached, ",source=\"local_cache_hit\"");
}

// Only of classes that there has been a part of.
void AppendPrefixClasses(const EngineStats& engine, Exposition& out) {
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help,
                        const auto& value) {
    out.Begin(name, type, help);
    for (const PrefixClassFigures& c : engine.prefix_classes) {
      if (c.hits + c.evictions + c.parts == 0) continue;
      out.Sample(name, value(c),
                 fmt::format(",reuses=\"{}\",continues=\"{}\",first_token_from=\"{}\"", c.reuses,
                             c.continues ? "yes" : "no", c.first_token_from));
    }
  };
  each("tandem:prefix_class_hits_total", "counter", "Parts of the prefix cache reused, by class.",
       [](const PrefixClassFigures& c) { return c.hits; });
  each("tandem:prefix_class_evictions_total", "counter", "Parts given up, by class.",
       [](const PrefixClassFigures& c) { return c.evictions; });
  each("tandem:prefix_class_parts", "gauge", "Parts kept, by class.",
       [](const PrefixClassFigures& c) { return c.parts; });
  each("tandem:prefix_class_hit_probability", "gauge",
       "Measured: a part of the class is reused before it is given up.",
       [](const PrefixClassFigures& c) { return c.hit_probability; });
}

void AppendPrefixCache(const EngineStats& engine, Exposition& out) {
  out.Counter("vllm:prefix_cache_queries_total", engine.prefix_query_tokens,
              "Prompt tokens looked up in the prefix cache.");
  out.Counter("vllm:prefix_cache_hits_total", engine.prefix_hit_tokens,
              "Of these: found, not computed.");
  constexpr std::string_view kMisses = "tandem:prefix_cache_misses_total";
  out.Begin(kMisses, "counter", "Prompt tokens not found in the prefix cache, by reason.");
  const PrefixMisses& missed = engine.prefix_missed;
  const std::pair<std::string_view, int64_t> reasons[] = {{"never_stored", missed.never_stored},
                                                          {"evicted", missed.evicted},
                                                          {"other_identity", missed.other_identity},
                                                          {"tail", missed.tail},
                                                          {"last_token", missed.last_token},
                                                          {"pending", missed.pending},
                                                          {"window", missed.window}};
  for (const auto& [reason, tokens] : reasons) {
    out.Sample(kMisses, tokens, fmt::format(",reason=\"{}\"", reason));
  }
  AppendPrefixClasses(engine, out);
  out.Gauge("tandem:prefix_cache_awaiting", engine.requests_awaiting_prefix,
            "Requests in the queue that wait for a prefix another one computes.");
  out.Counter("tandem:prefix_cache_evictions_total", engine.prefix_spans_evicted,
              "Spans of blocks given up.");
  out.Counter("tandem:prefix_cache_saved_seconds_total", engine.prefix_saved_s,
              "Prompt processing saved, as predicted.");
}

void AppendCostModel(const EngineStats& engine, Exposition& out) {
  out.Gauge("tandem:cost_model_step_seconds", engine.cost_base_ns / kNsPerS,
            "Learnt cost of a step with prompt tokens, whatever is in it.");
  out.Gauge("tandem:cost_model_token_seconds", engine.cost_token_ns / kNsPerS,
            "Learnt cost of each token in it.");
  out.Gauge("tandem:cost_model_pair_seconds", engine.cost_pair_ns / kNsPerS,
            "Learnt cost of each pair of a token and one that it attends to.");
  out.Gauge("tandem:cost_model_error_ratio", engine.cost_error,
            "Mean of |predicted - measured| / measured over recent steps.");
  out.Gauge("tandem:itl_chunk_tokens", engine.itl_prefill_tokens,
            "Prompt tokens of the last step that an ITL target bounded.");
}

void AppendExtra(std::span<const ExtraMetric> metrics, Exposition& out) {
  std::string_view last;
  for (const ExtraMetric& metric : metrics) {
    if (metric.name != last) {
      out.Begin(metric.name, metric.is_counter ? "counter" : "gauge", metric.help);
    }
    last = metric.name;
    out.Sample(metric.name, metric.value, metric.labels);
  }
}

}  // namespace

void Histogram::Observe(double value) {
  const auto it = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(it - bounds_.begin())];
  sum_ += value;
}

ServerMetrics::ServerMetrics()
    : first_token_s_(kFirstTokenBounds),
      inter_token_s_(kInterTokenBounds),
      end_to_end_s_(kEndToEndBounds),
      queue_s_(kEndToEndBounds),
      prefill_s_(kEndToEndBounds),
      decode_s_(kEndToEndBounds),
      prompt_tokens_(kTokenBounds),
      completion_tokens_(kTokenBounds) {}

void ServerMetrics::OnPrompt(int32_t prompt_tokens, int32_t cached_tokens) {
  prompt_computed_.fetch_add(prompt_tokens - cached_tokens);
  prompt_cached_.fetch_add(cached_tokens);
}

void ServerMetrics::OnEnd(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kLength: finished_.fetch_add(1); break;
    case FinishReason::kCancelled: cancelled_.fetch_add(1); break;
    case FinishReason::kFailed: break;  // the engine counts these
  }
}

void ServerMetrics::ObserveFirstToken(TimeNs after_arrival) {
  MutexLock lock(mutex_);
  first_token_s_.Observe(Seconds(after_arrival));
}

void ServerMetrics::ObserveInterToken(TimeNs gap) {
  MutexLock lock(mutex_);
  inter_token_s_.Observe(Seconds(gap));
}

void ServerMetrics::ObserveEnd(AnswerEnd end, TimeNs after_arrival) {
  MutexLock lock(mutex_);
  ++ends_[static_cast<size_t>(end)];
  if (end == AnswerEnd::kStop || end == AnswerEnd::kLength) {
    end_to_end_s_.Observe(Seconds(after_arrival));
  }
}

void ServerMetrics::ObserveTimes(const RequestTimes& times, int32_t prompt_tokens,
                                 int32_t completion_tokens) {
  MutexLock lock(mutex_);
  const auto observe = [](Histogram& histogram, TimeNs from, TimeNs to) {
    if (to > 0 && to >= from) histogram.Observe(Seconds(to - from));
  };
  observe(queue_s_, times.arrival, times.admitted);
  observe(prefill_s_, times.admitted, times.first_token);
  observe(decode_s_, times.first_token, times.finished);
  prompt_tokens_.Observe(prompt_tokens);
  completion_tokens_.Observe(completion_tokens);
}

void ServerMetrics::CountError(std::string_view code) {
  MutexLock lock(mutex_);
  const auto it = errors_.find(code);
  if (it != errors_.end()) {
    ++it->second;
  } else {
    errors_.emplace(code, 1);
  }
}

std::string ServerMetrics::Render(const EngineStats& engine, std::string_view model_name,
                                  int32_t connections, std::span<const ExtraMetric> extra) const {
  Exposition out(model_name);
  AppendEngine(engine, out);
  AppendPrompts(prompt_computed_.load(), prompt_cached_.load(), out);
  out.Counter("tandem:engine_requests_finished_total", finished_.load(),
              "Requests that ended by themselves, by a stop string or behind their only call.");
  out.Counter("tandem:engine_requests_cancelled_total", cancelled_.load(),
              "Requests given up by their clients, or cancelled by the server.");
  AppendPrefixCache(engine, out);
  AppendCostModel(engine, out);
  AppendExtra(extra, out);
  out.Gauge("tandem:http_connections", connections, "Open connections.");
  MutexLock lock(mutex_);
  out.Buckets("vllm:time_to_first_token_seconds", first_token_s_,
              "From a request's arrival to its first token's delivery.");
  out.Buckets("vllm:inter_token_latency_seconds", inter_token_s_,
              "Between deliveries of one answer's tokens.");
  out.Buckets("vllm:e2e_request_latency_seconds", end_to_end_s_,
              "From a request's arrival to the end of its answer.");
  out.Buckets("vllm:request_queue_time_seconds", queue_s_,
              "From a request's arrival to its leaving the queue.");
  out.Buckets("vllm:request_prefill_time_seconds", prefill_s_,
              "From leaving the queue to the first token.");
  out.Buckets("vllm:request_decode_time_seconds", decode_s_, "From the first token to the end.");
  out.Buckets("vllm:request_prompt_tokens", prompt_tokens_, "Tokens of prompts.");
  out.Buckets("vllm:request_generation_tokens", completion_tokens_, "Tokens of answers.");
  out.Begin("vllm:request_success_total", "counter",
            "Answers, each choice of a request for itself, by how they ended.");
  for (size_t i = 0; i < ends_.size(); ++i) {
    out.Sample("vllm:request_success_total", ends_[i],
               fmt::format(",finished_reason=\"{}\"", kEndNames[i]));
  }
  out.Begin("tandem:api_errors_total", "counter", "Error answers by code.");
  for (const auto& [code, count] : errors_) {
    out.Sample("tandem:api_errors_total", count, fmt::format(",code=\"{}\"", EscapeLabel(code)));
  }
  return out.Take();
}

std::string EscapeLabel(std::string_view value) {
  std::string out;
  for (const char c : value) {
    switch (c) {
      case '\\': out += "\\\\"; break;
      case '"': out += "\\\""; break;
      case '\n': out += "\\n"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

}  // namespace tandem
