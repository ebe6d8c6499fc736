// What: how a replay and runs beside one another look, to people and as JSON.
// Not here: replaying (replay.h), one record's line (event_log.h).
// Threads: pure functions.
#pragma once

#include <span>
#include <string>

#include "plan/event_log.h"
#include "plan/replay.h"
#include "plan/run_figures.h"

namespace tandem {

struct NamedSummary {
  std::string name;
  RunSummary summary;
};

// What was replayed, and the difference if there is one: where, and both plans.
std::string ReplayText(const ReplayReport& report);
// A line per figure, a column per run.
std::string SummariesText(std::span<const NamedSummary> runs);
// {"replay": {...}, "runs": {NAME: {...}}}
std::string ReplayJson(const ReplayReport& report, std::span<const NamedSummary> runs);

}  // namespace tandem
