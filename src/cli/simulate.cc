// The command `simulate`: a scenario through the scheduler on a virtual clock.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "cli/commands.h"
#include "os/file.h"
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

}  // namespace

int RunSimulate(const Options& options) {
  const Status status = RunScenario(options.simulate);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace tandem
