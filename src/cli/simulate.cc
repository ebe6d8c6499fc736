// The command `simulate`: a scenario through the scheduler on a virtual clock, or a recorded run
// once more.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "os/file.h"
#include "plan/event_log.h"
#include "plan/replay.h"
#include "plan/replay_report.h"
#include "plan/scenario.h"
#include "plan/simulation_report.h"
#include "plan/simulator.h"

namespace tandem {
namespace {

// Every step and delivery of more requests would take gigabytes.
constexpr size_t kMaxRecordedRequests = 100'000;

Status WriteText(const std::string& path, const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                          AtomicFile::Create(RealFileSystem(), path));
  TANDEM_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(text))));
  return file->Commit();
}

Status RunScenario(const SimulateOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::string text,
      ReadSmallFile(RealFileSystem(), options.scenario_path, kMaxScenarioBytes));
  Result<Scenario> scenario = ParseScenario(text);
  if (!scenario.ok()) return scenario.status().WithContext(options.scenario_path);
  if (!options.policy.empty()) {
    TANDEM_ASSIGN_OR_RETURN(scenario->policy, PolicyFromName(options.policy));
  }
  const bool record = scenario->requests.size() <= kMaxRecordedRequests;
  if (!options.svg_path.empty() && !record) {
    return OutOfRangeError("a picture shows at most {} requests, the scenario has {}",
                           kMaxRecordedRequests, scenario->requests.size());
  }
  TANDEM_ASSIGN_OR_RETURN(const Simulation simulation, Simulate(*scenario, record));
  if (!options.svg_path.empty()) {
    TANDEM_RETURN_IF_ERROR(WriteText(options.svg_path, ToSvg(*scenario, simulation)));
  }
  const std::string report =
      options.json ? ToJson(*scenario, simulation) : ToText(*scenario, simulation);
  std::fwrite(report.data(), 1, report.size(), stdout);
  return OkStatus();
}

// What the flags change, for people; empty: nothing.
Result<std::string> ChangeSettings(const SimulateOptions& o, const LogHeader& header,
                                   SchedulerConfig* config) {
  std::string text;
  const auto note = [&text](std::string_view flag, const auto& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", flag, value);
  };
  if (!o.policy.empty()) {
    TANDEM_ASSIGN_OR_RETURN(config->policy, PolicyFromName(o.policy));
    note("policy", o.policy);
  }
  if (!o.reservation.empty()) {
    TANDEM_ASSIGN_OR_RETURN(config->reservation, ReservationFromName(o.reservation));
    note("reservation", o.reservation);
  }
  if (o.prefix_cache == "off") {
    config->prefix_cache.reset();
  } else if (!o.prefix_cache.empty()) {
    if (!config->prefix_cache)
      config->prefix_cache.emplace().identity.model = header.model_identity;
    config->prefix_cache->retention =
        o.prefix_cache == "lru" ? RetentionKind::kLru : RetentionKind::kValue;
  }
  if (!o.prefix_cache.empty()) note("prefix cache", o.prefix_cache);
  const auto set = [&note](const std::optional<int32_t>& value, const char* name, int32_t* field) {
    if (!value) return;
    *field = *value;
    note(name, *value);
  };
  set(o.token_budget, "budget", &config->token_budget);
  set(o.chunk_tokens, "chunks", &config->chunk_tokens);
  set(o.max_seqs, "places", &config->max_running);
  if (o.itl_target_ms) {
    config->itl_target = static_cast<TimeNs>(*o.itl_target_ms * kNsPerMs);
    note("ITL target", *o.itl_target_ms);
  }
  return text;
}

Status PrintRecords(EventLogReader* log) {
  const auto print = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  print(HeaderText(log->header()));
  std::optional<TimeNs> start;
  LogRecord record;
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const bool more, log->Next(&record));
    if (!more) break;
    if (!start) {
      if (const auto* event = std::get_if<LoggedEvent>(&record)) start = event->event.at;
      if (const auto* advance = std::get_if<LoggedAdvance>(&record)) start = advance->at;
    }
    print(RecordLine(record, start.value_or(0)));
  }
  if (log->cut_off()) print("the log is cut off: the run had not ended\n");
  return OkStatus();
}

// The recorded run, and if the flags change something, the simulation of it as it was and as it
// would have been: the two differ from one another by the change alone.
Result<std::vector<NamedSummary>> Runs(const SimulateOptions& options, const LogHeader& header,
                                       const ReplayReport& report) {
  std::vector<NamedSummary> runs = {{"recorded", report.summary}};
  SchedulerConfig changed = header.config;
  TANDEM_ASSIGN_OR_RETURN(const std::string change, ChangeSettings(options, header, &changed));
  if (change.empty() || report.difference) return runs;
  for (const auto& [name, config] :
       {std::pair(std::string("simulated"), header.config), std::pair(change, changed)}) {
    TANDEM_ASSIGN_OR_RETURN(const RunSummary summary,
                            SimulateRecorded(config, report.requests, report.cost));
    runs.push_back({name, summary});
  }
  return runs;
}

Status RunReplay(const SimulateOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                          RealFileSystem().Open(options.replay_path));
  const auto read = [&file](int64_t offset, std::span<std::byte> out) -> Result<size_t> {
    size_t done = 0;
    while (done < out.size()) {
      TANDEM_ASSIGN_OR_RETURN(const size_t some, file->ReadSome(offset + static_cast<int64_t>(done),
                                                                out.subspan(done)));
      if (some == 0) break;
      done += some;
    }
    return done;
  };
  auto log = EventLogReader::Open(read);
  if (!log.ok()) return log.status().WithContext(options.replay_path);
  if (options.print) return PrintRecords(log->get()).WithContext(options.replay_path);
  const Result<ReplayReport> report = Replay(log->get());
  if (!report.ok()) return report.status().WithContext(options.replay_path);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<NamedSummary> runs,
                          Runs(options, (*log)->header(), *report));
  const std::string text = options.json ? ReplayJson(*report, runs)
                                        : HeaderText((*log)->header()) + ReplayText(*report) +
                                              "\n" + SummariesText(runs);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (report->difference) {
    return InternalError("{}: the replay differs from the record", options.replay_path);
  }
  return OkStatus();
}

// Flags that only a scenario, or only a replay, can heed.
Status CheckUse(const SimulateOptions& o) {
  if (o.scenario_path.empty() == o.replay_path.empty()) {
    return InvalidArgumentError("name a scenario or --replay FILE");
  }
  if (!o.replay_path.empty() && !o.svg_path.empty()) {
    return InvalidArgumentError("--svg draws scenarios only");
  }
  if (o.replay_path.empty() &&
      (o.print || !o.prefix_cache.empty() || !o.reservation.empty() || o.token_budget ||
       o.chunk_tokens || o.max_seqs || o.itl_target_ms)) {
    return InvalidArgumentError(
        "a scenario file says this itself; --print and the settings but --policy are for --replay");
  }
  return OkStatus();
}

}  // namespace

int RunSimulate(const Options& options) {
  const SimulateOptions& simulate = options.simulate;
  Status status = CheckUse(simulate);
  if (status.ok()) {
    status = simulate.replay_path.empty() ? RunScenario(simulate) : RunReplay(simulate);
  }
  return status.ok() ? 0 : Fail(status);
}

}  // namespace tandem
