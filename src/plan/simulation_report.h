// What: a simulation as JSON, as a table for people, and as a picture.
// Not here: running it (simulator.h), writing files (cli/simulate).
// Threads: pure functions.
#pragma once

#include <string>

#include "plan/scenario.h"
#include "plan/simulator.h"

namespace tandem {

// {"summary", "steps", "requests"}; times in ns. Without a record `steps` is empty and no request
// has its deliveries.
std::string ToJson(const Scenario& scenario, const Simulation& simulation);

// The summary, then one line per request; of many the first and a count.
std::string ToText(const Scenario& scenario, const Simulation& simulation);

// The timeline: one lane per request, one box per row, coloured by what it does; waiting is a thin
// line, a delivered token a tick. Requires a record.
std::string ToSvg(const Scenario& scenario, const Simulation& simulation);

}  // namespace tandem
