#include "plan/replay_report.h"

#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

namespace tandem {
namespace {

std::string Ms(TimeNs time) { return fmt::format("{:.3f}", static_cast<double>(time) / kNsPerMs); }
std::string Spreads(const Spread& s) {
  return fmt::format("{} / {} / {}", Ms(s.median), Ms(s.p99), Ms(s.most));
}

struct Line {
  const char* name;
  std::function<std::string(const RunSummary&)> value;
};

std::vector<Line> Lines() {
  const auto count = [](int64_t RunSummary::*field) {
    return [field](const RunSummary& s) { return fmt::format("{}", s.*field); };
  };
  const auto spread = [](Spread RunSummary::*field) {
    return [field](const RunSummary& s) { return Spreads(s.*field); };
  };
  return {{"requests", count(&RunSummary::requests)},
          {"answered whole", count(&RunSummary::answered)},
          {"cancelled", count(&RunSummary::cancelled)},
          {"failed", count(&RunSummary::failed)},
          {"refused", count(&RunSummary::refused)},
          {"unfinished", [](const RunSummary& s) { return fmt::format("{}", s.unfinished()); }},
          {"duration ms", [](const RunSummary& s) { return Ms(s.duration); }},
          {"steps", count(&RunSummary::steps)},
          {"output tokens", count(&RunSummary::output_tokens)},
          {"output tokens/s",
           [](const RunSummary& s) { return fmt::format("{:.1f}", s.output_tokens_per_s()); }},
          {"prompt tokens computed", count(&RunSummary::prompt_tokens)},
          {"prompt tokens cached", count(&RunSummary::cached_tokens)},
          {"preemptions", count(&RunSummary::preemptions)},
          {"tokens recomputed", count(&RunSummary::recomputed_tokens)},
          {"waiting ms *", spread(&RunSummary::waiting)},
          {"first token ms *", spread(&RunSummary::first_token)},
          {"answer ms *", spread(&RunSummary::answer)},
          {"between tokens ms *", spread(&RunSummary::gap)}};
}

std::string Indented(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += "  " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

nlohmann::ordered_json SpreadJson(const Spread& s) {
  return {{"median_ns", s.median}, {"p99_ns", s.p99}, {"most_ns", s.most}};
}

nlohmann::ordered_json SummaryJson(const RunSummary& s) {
  return {{"requests", s.requests},
          {"answered", s.answered},
          {"cancelled", s.cancelled},
          {"failed", s.failed},
          {"refused", s.refused},
          {"unfinished", s.unfinished()},
          {"duration_ns", s.duration},
          {"steps", s.steps},
          {"output_tokens", s.output_tokens},
          {"prompt_tokens_computed", s.prompt_tokens},
          {"prompt_tokens_cached", s.cached_tokens},
          {"preemptions", s.preemptions},
          {"tokens_recomputed", s.recomputed_tokens},
          {"waiting", SpreadJson(s.waiting)},
          {"first_token", SpreadJson(s.first_token)},
          {"answer", SpreadJson(s.answer)},
          {"between_tokens", SpreadJson(s.gap)}};
}

}  // namespace

std::string ReplayText(const ReplayReport& r) {
  std::string out = fmt::format("replayed {} events: ", r.events);
  auto to = std::back_inserter(out);
  if (!r.difference) {
    fmt::format_to(to, "every decision is the same ({} plans)\n", r.plans);
  } else {
    fmt::format_to(to, "{} plans are the same, record {} differs\nrecorded:\n{}replayed:\n{}",
                   r.plans, r.difference->record, Indented(r.difference->recorded),
                   Indented(r.difference->replayed));
  }
  if (r.missing_records > 0) {
    fmt::format_to(to,
                   "{} records are missing here (they came faster than they could be written): "
                   "what follows was not replayed\n",
                   r.missing_records);
  }
  if (r.cut_off) out += "the log is cut off: the run had not ended\n";
  return out;
}

std::string SummariesText(std::span<const NamedSummary> runs) {
  constexpr size_t kNameWidth = 24;
  constexpr size_t kLeastWidth = 10;
  const std::vector<Line> lines = Lines();
  std::vector<size_t> widths;
  for (const NamedSummary& run : runs) {
    size_t width = std::max(kLeastWidth, run.name.size());
    for (const Line& line : lines) width = std::max(width, line.value(run.summary).size());
    widths.push_back(width);
  }
  std::string out(kNameWidth, ' ');
  auto to = std::back_inserter(out);
  for (size_t i = 0; i < runs.size(); ++i) {
    fmt::format_to(to, "  {:>{}}", runs[i].name, widths[i]);
  }
  out += '\n';
  for (const Line& line : lines) {
    fmt::format_to(to, "{:<{}}", line.name, kNameWidth);
    for (size_t i = 0; i < runs.size(); ++i) {
      fmt::format_to(to, "  {:>{}}", line.value(runs[i].summary), widths[i]);
    }
    out += '\n';
  }
  return out + "* median / p99 / most\n";
}

std::string ReplayJson(const ReplayReport& report, std::span<const NamedSummary> runs) {
  nlohmann::ordered_json json;
  json["replay"] = {{"events", report.events},
                    {"plans", report.plans},
                    {"same", !report.difference.has_value()},
                    {"missing_records", report.missing_records},
                    {"cut_off", report.cut_off}};
  if (report.difference) {
    json["replay"]["difference"] = {{"record", report.difference->record},
                                    {"recorded", report.difference->recorded},
                                    {"replayed", report.difference->replayed}};
  }
  json["runs"] = nlohmann::ordered_json::object();
  for (const NamedSummary& run : runs) json["runs"][run.name] = SummaryJson(run.summary);
  return json.dump(2) + "\n";
}

}  // namespace tandem
