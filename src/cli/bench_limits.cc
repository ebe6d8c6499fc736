#include "cli/bench_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "device/cpu_device.h"
#include "exec/memory_plan.h"
#include "os/cpu.h"

namespace tandem {
namespace {

using Figure = std::function<std::optional<double>(const MachineLimits&)>;

void AppendRow(std::string* text, const std::string& label, const char* unit,
               const LimitsReport& report, const Figure& figure) {
  fmt::format_to(std::back_inserter(*text), "{:<30}{:>8}", label, unit);
  for (const MachineLimits& limits : report.limits) {
    const std::optional<double> value = figure(limits);
    *text += value ? fmt::format("{:>12.1f}", *value) : fmt::format("{:>12}", "absent");
  }
  *text += '\n';
}

const char* UnitOf(ComputeKind kind) { return kind == ComputeKind::kInt8 ? "GOP/s" : "GFLOP/s"; }

// "fp32_gflop_s", "int8_gop_s".
std::string KeyOf(ComputeKind kind) {
  std::string key = NameOf(kind);
  for (char& c : key) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return key + (kind == ComputeKind::kInt8 ? "_gop_s" : "_gflop_s");
}

nlohmann::ordered_json OrNull(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

Result<LimitsReport> MeasureLimitsReport(int32_t threads) {
  if (threads <= 0) threads = NumUsableProcessors();
  std::vector<int32_t> counts = {1};
  if (threads > 1) counts.push_back(threads);
  LimitsReport report;
  report.cache_bytes = CacheProbeBytes();
  // The largest team fills the buffer, which all teams then read.
  const std::unique_ptr<Device> device = MakeCpuDevice({threads, {}});
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> filler, device->NewStream());
  TANDEM_ASSIGN_OR_RETURN(const Buffer buffer, MakeProbeBuffer(*device, AsCpu(*filler)));
  report.memory_bytes = static_cast<int64_t>(buffer.size());
  for (const int32_t count : counts) {
    const std::unique_ptr<Device> team = MakeCpuDevice({count, {}});
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, team->NewStream());
    report.limits.push_back(MeasureLimits(AsCpu(*stream), {buffer.data(), buffer.size()}));
  }
  return report;
}

std::string LimitsText(const LimitsReport& report) {
  std::string text = fmt::format("{:<38}", "limits of this machine");
  for (const MachineLimits& limits : report.limits) {
    text += fmt::format("{:>12}",
                        fmt::format("{} thread{}", limits.threads, limits.threads == 1 ? "" : "s"));
  }
  text += '\n';
  AppendRow(&text, fmt::format("memory read, {}", FormatBytes(report.memory_bytes)), "GB/s", report,
            [](const MachineLimits& l) { return l.memory_read_gb_s; });
  AppendRow(&text, fmt::format("cache read, {} each", FormatBytes(report.cache_bytes)), "GB/s",
            report, [](const MachineLimits& l) { return l.cache_read_gb_s; });
  for (const ComputeKind kind : kComputeKinds) {
    const char* instruction = InstructionOf(kind);
    const std::string label =
        instruction ? fmt::format("{}, {}", NameOf(kind), instruction) : std::string(NameOf(kind));
    AppendRow(&text, label, UnitOf(kind), report,
              [kind](const MachineLimits& l) { return l.gop_s(kind); });
  }
  return text;
}

std::string LimitsJson(const LimitsReport& report) {
  nlohmann::ordered_json json;
  json["memory_bytes"] = report.memory_bytes;
  json["cache_bytes_per_thread"] = report.cache_bytes;
  for (const ComputeKind kind : kComputeKinds) {
    const char* instruction = InstructionOf(kind);
    auto& entry = json["instructions"][NameOf(kind)];
    if (instruction) entry = instruction;
  }
  json["limits"] = nlohmann::ordered_json::array();
  for (const MachineLimits& limits : report.limits) {
    nlohmann::ordered_json entry;
    entry["threads"] = limits.threads;
    entry["memory_read_gb_s"] = limits.memory_read_gb_s;
    entry["cache_read_gb_s"] = limits.cache_read_gb_s;
    for (const ComputeKind kind : kComputeKinds) entry[KeyOf(kind)] = OrNull(limits.gop_s(kind));
    json["limits"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem
