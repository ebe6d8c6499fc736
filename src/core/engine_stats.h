// What: a snapshot of the engine's counters and gauges.
// Not here: per-request times (RequestOutput), how they are exported (server/metrics).
// Threads: values.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

struct EngineStats {
  // Gauges.
  int32_t requests_running = 0;
  int32_t requests_waiting = 0;
  int64_t blocks_total = 0;
  int64_t blocks_in_use = 0;
  TimeNs last_step_finished = 0;  // engine clock; 0 before the first
  TimeNs now = 0;                 // engine clock at the snapshot
  // Counters since start.
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t requests_refused = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;     // run through the model, recomputed ones included
  int64_t generated_tokens = 0;  // delivered
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;
  TimeNs step_time_total = 0;  // device time of all steps
};

}  // namespace tandem
