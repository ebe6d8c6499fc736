// The text and JSON of a model bench.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/bench_model.h"

namespace tandem {
namespace {

struct Spread {
  double least = 0;
  double median = 0;
  double most = 0;
};

template <typename Figure>
Spread SpreadOf(const std::vector<BenchRun>& runs, Figure figure) {
  std::vector<double> values;
  for (const BenchRun& run : runs) values.push_back(figure(run));
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

template <typename Figure>
double MedianOf(const std::vector<BenchRun>& runs, Figure figure) {
  return SpreadOf(runs, figure).median;
}

bool IsPrefill(const BenchReport& report) { return report.options.what == "prefill"; }

// Of the runs, most are bound by memory.
bool MemoryBound(const BenchReport& report) {
  const auto count = std::count_if(report.runs.begin(), report.runs.end(),
                                   [](const BenchRun& run) { return run.memory_bound; });
  return 2 * static_cast<size_t>(count) > report.runs.size();
}

nlohmann::ordered_json Json(const Spread& spread) {
  return {{"min", spread.least}, {"median", spread.median}, {"max", spread.most}};
}

nlohmann::ordered_json Json(const BenchRun& run, bool prefill) {
  nlohmann::ordered_json json;
  json["tokens_per_s"] = run.tokens_per_s;
  if (!prefill) json["gb_s"] = run.gb_s;
  json["gop_s"] = run.gop_s;
  json["memory_read_gb_s"] = run.limits.memory_read_gb_s;
  json["weights_read_gb_s"] = run.limits.weights_read_gb_s;
  json["compute_gop_s"] = run.limits.compute_gop_s;
  json["percent_of_limit"] = run.percent_of_limit;
  json["bound"] = run.memory_bound ? "memory" : "compute";
  return json;
}

}  // namespace

std::string BenchText(const BenchReport& report) {
  const auto& runs = report.runs;
  const BenchOptions& o = report.options;
  const Spread rate = SpreadOf(runs, [](const BenchRun& r) { return r.tokens_per_s; });
  const double gop_s = MedianOf(runs, [](const BenchRun& r) { return r.gop_s; });
  const double compute = MedianOf(runs, [](const BenchRun& r) { return r.limits.compute_gop_s; });
  std::string text =
      fmt::format("{} {}, batch {}, prompt {}, output {}, {} threads, numerics {}, {} runs\n",
                  o.what, report.subject.model_name, o.batch, o.prompt_tokens, o.output_tokens,
                  report.subject.threads, report.subject.numerics, runs.size());
  text += fmt::format("  tokens/s      {:>9.1f}   (min {:.1f}, max {:.1f})\n", rate.median,
                      rate.least, rate.most);
  if (!IsPrefill(report)) {
    const double gb_s = MedianOf(runs, [](const BenchRun& r) { return r.gb_s; });
    const double memory =
        MedianOf(runs, [](const BenchRun& r) { return r.limits.memory_read_gb_s; });
    const double weights =
        MedianOf(runs, [](const BenchRun& r) { return r.limits.weights_read_gb_s; });
    text += fmt::format(
        "  GB/s          {:>9.1f}   {:.0f} % of {:.1f} (memory read), {:.0f} % of {:.1f} (bytes as "
        "many as the weights)\n",
        gb_s, 100 * gb_s / memory, memory, 100 * gb_s / weights, weights);
  }
  text += fmt::format("  GOP/s         {:>9.1f}   {:.0f} % of {:.1f} ({} multiply-adds)\n", gop_s,
                      100 * gop_s / compute, compute, NameOf(report.subject.compute));
  text += fmt::format("  of the limit  {:>7.0f} %   ({})\n",
                      MedianOf(runs, [](const BenchRun& r) { return r.percent_of_limit; }),
                      MemoryBound(report) ? "memory" : "compute");
  text += fmt::format("  result hash   {}\n", runs.empty() ? "" : runs.front().result_hash);
  return text;
}

std::string BenchJson(const BenchReport& report) {
  const auto& runs = report.runs;
  const BenchOptions& o = report.options;
  nlohmann::ordered_json json;
  json["what"] = o.what;
  json["model"] = report.subject.model_name;
  json["numerics"] = report.subject.numerics;
  json["threads"] = report.subject.threads;
  json["batch"] = o.batch;
  json["prompt_tokens"] = o.prompt_tokens;
  json["output_tokens"] = o.output_tokens;
  json["tokens_per_s"] = Json(SpreadOf(runs, [](const BenchRun& r) { return r.tokens_per_s; }));
  if (!IsPrefill(report))
    json["gb_s"] = Json(SpreadOf(runs, [](const BenchRun& r) { return r.gb_s; }));
  json["gop_s"] = Json(SpreadOf(runs, [](const BenchRun& r) { return r.gop_s; }));
  json["percent_of_limit"] =
      Json(SpreadOf(runs, [](const BenchRun& r) { return r.percent_of_limit; }));
  json["bound"] = MemoryBound(report) ? "memory" : "compute";
  json["compute"] = NameOf(report.subject.compute);
  json["result_hash"] = runs.empty() ? "" : runs.front().result_hash;
  json["runs"] = nlohmann::ordered_json::array();
  for (const BenchRun& run : runs) json["runs"].push_back(Json(run, IsPrefill(report)));
  // Names come from files: bytes that are not UTF-8 are replaced, not thrown about.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tandem
