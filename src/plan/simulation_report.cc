#include "plan/simulation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

constexpr size_t kMaxTextRows = 40;

std::string Quoted(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

double Ms(TimeNs ns) { return static_cast<double>(ns) / kNsPerMs; }

void AddSummary(const Simulation& s, std::string* out) {
  fmt::format_to(
      std::back_inserter(*out),
      R"({{"requests":{},"iterations":{},"finish_ns":{},"total_output_tokens":{},)"
      R"("total_scheduled_tokens":{},"total_matrix_flops":{},"peak_live_kv_bytes":{},)"
      R"("peak_reserved_kv_bytes":{},"live_kv_byte_ns":{},"max_waiting_ns":{},"max_ttft_ns":{},)"
      R"("max_itl_ns":{},"peak_blocks":{},"preemptions":{},"recomputed_tokens":{},"refused":{}}})",
      s.requests.size(), s.iterations, s.finish, s.total_output_tokens, s.total_scheduled_tokens,
      ToDecimal(s.total_matrix_flops), s.peak_live_kv_bytes, s.peak_reserved_kv_bytes,
      ToDecimal(s.live_kv_byte_ns), s.max_waiting, s.max_ttft, s.max_itl, s.peak_blocks,
      s.stats.preemptions, s.stats.recomputed_tokens, s.stats.requests_refused);
}

void AddStep(const Scenario& scenario, const SimulatedStep& step, size_t number, std::string* out) {
  auto to = std::back_inserter(*out);
  fmt::format_to(to,
                 R"({{"iteration":{},"start_ns":{},"end_ns":{},"duration_ns":{},"new_tokens":{},)"
                 R"("causal_pairs":{},"live_kv_bytes_during_step":{},"blocks_in_use":{},)"
                 R"("preempted":[)",
                 number, step.start, step.end, step.end - step.start, step.new_tokens,
                 step.causal_pairs, step.live_kv_bytes, step.blocks_in_use);
  const auto id = [&](int32_t request) {
    return Quoted(scenario.requests[static_cast<size_t>(request)].id);
  };
  for (size_t i = 0; i < step.preempted.size(); ++i) {
    fmt::format_to(to, "{}{}", i > 0 ? "," : "", id(step.preempted[i]));
  }
  *out += R"(],"plans":[)";
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const SimulatedRow& row = step.rows[i];
    fmt::format_to(to,
                   R"({}{{"request":{},"phase":"{}","history_tokens":{},"new_tokens":{},)"
                   R"("causal_pairs":{},"emits_token":{},"matrix_flops":{}}})",
                   i > 0 ? "," : "", id(row.request), row.prefill ? "prefill" : "decode",
                   row.history_tokens, row.new_tokens,
                   CausalPairs(row.new_tokens, row.history_tokens), row.emits_token,
                   ToDecimal(FlopsOf(scenario.model, row)));
  }
  *out += "]}";
}

void AddEnd(const ScenarioRequest& from, const SimulatedRequest& r, std::string* out) {
  auto to = std::back_inserter(*out);
  if (!r.refused.ok()) fmt::format_to(to, R"(,"refused":{})", Quoted(r.refused.message()));
  if (r.refusal) {
    fmt::format_to(to, R"(,"predicted_ns":{},"allowed_ns":{})", r.refusal->predicted,
                   r.refusal->allowed);
  }
  if (r.outputs > 0) {
    fmt::format_to(to,
                   R"(,"waiting_ns":{},"ttft_ns":{},"finish_ns":{},"latency_ns":{},)"
                   R"("max_itl_ns":{})",
                   r.admitted - from.arrival, r.first_token - from.arrival, r.finished,
                   r.finished - from.arrival, r.max_itl);
  }
  if (r.finish) fmt::format_to(to, R"(,"finish":"{}")", NameOf(*r.finish));
  if (from.deadline) {
    fmt::format_to(to, R"(,"deadline_ns":{},"in_time":{})", *from.deadline, r.Good(from));
  }
}

void AddRequest(const ScenarioRequest& from, const SimulatedRequest& r, std::string* out) {
  auto to = std::back_inserter(*out);
  fmt::format_to(to,
                 R"({{"id":{},"arrival_ns":{},"prompt_tokens":{},"output_tokens":{},)"
                 R"("computed":{},"reserved_bytes":{},"admitted_ns":{},"recomputed_tokens":{},)"
                 R"("preemptions":{},"delivery_ns":[{}],"matrix_flops":{})",
                 Quoted(from.id), from.arrival, from.prompt_tokens, from.output_tokens, r.computed,
                 r.reserved_bytes, r.admitted, r.recomputed, r.preemptions,
                 fmt::join(r.deliveries, ","), ToDecimal(r.matrix_flops));
  AddEnd(from, r, out);
  *out += "}";
}

// Durations of one series, in ms.
std::string Percentiles(std::vector<TimeNs> values) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return Ms(values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)]);
  };
  return fmt::format("median {:.3f}   p99 {:.3f}   most {:.3f} ms", at(0.5), at(0.99), at(1.0));
}

}  // namespace

std::string ToJson(const Scenario& scenario, const Simulation& simulation) {
  std::string out = "{\"summary\":";
  AddSummary(simulation, &out);
  out += ",\n\"steps\":[";
  for (size_t i = 0; i < simulation.steps.size(); ++i) {
    out += i > 0 ? ",\n" : "\n";
    AddStep(scenario, simulation.steps[i], i, &out);
  }
  out += "],\n\"requests\":[";
  for (size_t i = 0; i < simulation.requests.size(); ++i) {
    out += i > 0 ? ",\n" : "\n";
    AddRequest(scenario.requests[i], simulation.requests[i], &out);
  }
  return out + "]}\n";
}

std::string ToText(const Scenario& scenario, const Simulation& s) {
  std::string out;
  auto to = std::back_inserter(out);
  std::vector<TimeNs> waiting, ttft, latency;
  int64_t good = 0;
  for (size_t i = 0; i < s.requests.size(); ++i) {
    const SimulatedRequest& r = s.requests[i];
    const TimeNs arrival = scenario.requests[i].arrival;
    good += r.Good(scenario.requests[i]);
    if (r.outputs == 0) continue;
    waiting.push_back(r.admitted - arrival);
    ttft.push_back(r.first_token - arrival);
    latency.push_back(r.finished - arrival);
  }
  const double seconds = std::max(1e-9, static_cast<double>(s.finish) / kNsPerS);
  fmt::format_to(to, "policy {}: {} requests in {:.3f} ms, {} steps\n", NameOf(scenario.policy),
                 s.requests.size(), Ms(s.finish), s.iterations);
  fmt::format_to(to,
                 "  whole and in time {}   refused {}   {:.2f} requests/s   {:.1f} output "
                 "tokens/s\n",
                 good, s.stats.requests_refused, static_cast<double>(good) / seconds,
                 static_cast<double>(s.total_output_tokens) / seconds);
  fmt::format_to(to, "  waiting      {}\n", Percentiles(std::move(waiting)));
  fmt::format_to(to, "  first token  {}\n", Percentiles(std::move(ttft)));
  fmt::format_to(to, "  answer       {}\n", Percentiles(std::move(latency)));
  fmt::format_to(to, "  largest gap between tokens {:.3f} ms\n", Ms(s.max_itl));
  fmt::format_to(to,
                 "  KV at most {:.1f} MiB in use, {:.1f} MiB promised   preemptions {}   "
                 "recomputed {} tokens\n\n",
                 static_cast<double>(s.peak_live_kv_bytes) / (1 << 20),
                 static_cast<double>(s.peak_reserved_kv_bytes) / (1 << 20), s.stats.preemptions,
                 s.stats.recomputed_tokens);
  fmt::format_to(to, "{:<12} {:>8} {:>8} {:>12} {:>12} {:>12} {:>12} {:>10}  {}\n", "request",
                 "prompt", "output", "arrival ms", "waited ms", "first ms", "answer ms", "gap ms",
                 "end");
  for (size_t i = 0; i < std::min(s.requests.size(), kMaxTextRows); ++i) {
    const ScenarioRequest& from = scenario.requests[i];
    const SimulatedRequest& r = s.requests[i];
    fmt::format_to(to, "{:<12} {:>8} {:>8} {:>12.3f}", from.id.substr(0, 12), from.prompt_tokens,
                   r.outputs, Ms(from.arrival));
    if (r.outputs > 0) {
      fmt::format_to(to, " {:>12.3f} {:>12.3f} {:>12.3f} {:>10.3f}", Ms(r.admitted - from.arrival),
                     Ms(r.first_token - from.arrival), Ms(r.finished - from.arrival),
                     Ms(r.max_itl));
    } else {
      fmt::format_to(to, " {:>12} {:>12} {:>12} {:>10}", "-", "-", "-", "-");
    }
    const std::string_view end = r.finish ? NameOf(*r.finish) : "refused";
    fmt::format_to(to, "  {}{}\n", end, r.finish && from.deadline && !r.Good(from) ? ", late" : "");
  }
  if (s.requests.size() > kMaxTextRows) {
    fmt::format_to(to, "... and {} more (--json has all)\n", s.requests.size() - kMaxTextRows);
  }
  return out;
}

}  // namespace tandem
