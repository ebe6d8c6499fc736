// What: Replay: gives the recorded inputs of a live run to a new engine and checks that it makes
//   the same plans, byte for byte, and refuses the same requests (spec P3).
// Not here: the log's bytes (event_log.h), other settings (recorded_workload.h).
// Threads: one. No wall clock: equal logs give equal replays.
// Cost: that of the engine; the requests and their answers are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/event_log.h"
#include "plan/recorded_workload.h"
#include "plan/run_figures.h"
#include "sched/cost_model.h"

namespace tandem {

// Where the replay left the record. `recorded` and `replayed` are plans, or what Handle returned.
struct ReplayDifference {
  int64_t record = 0;  // its number in the log, the header's being 0
  std::string recorded;
  std::string replayed;
};

struct ReplayReport {
  int64_t events = 0;  // handled
  int64_t plans = 0;   // that were the same
  std::optional<ReplayDifference> difference;
  // The record has a gap here; what follows it cannot be replayed, and was not.
  uint64_t missing_records = 0;
  bool cut_off = false;  // see EventLogReader
  // Up to the difference, the gap or the end:
  RunSummary summary;
  std::vector<RecordedRequest> requests;  // in the order of their arrival
  CostModel cost;                         // fitted on the recorded steps
};

// Reads `log` to its end, to the first difference or to the first gap. Errors: those of the reader;
// DATA_LOSS for records in an order that no run has.
Result<ReplayReport> Replay(EventLogReader* log);

}  // namespace tandem
