// What: a snapshot of the engine's counters and gauges.
// Not here: per-request times (RequestOutput), how they are exported (server/metrics).
// Threads: values.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

// Tokens of requests that the prefix cache did not have, by reason.
struct PrefixMisses {
  int64_t never_stored = 0;
  int64_t evicted = 0;
  int64_t other_identity = 0;  // another tenant's
  int64_t tail = 0;            // of a block that was not full
  int64_t last_token = 0;      // always computed
  int64_t pending = 0;         // another request is computing it
  int64_t window = 0;          // the window before it is gone
};

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
  int64_t requests_refused_for_deadline = 0;  // of these
  int64_t steps = 0;
  int64_t prompt_tokens = 0;     // run through the model, recomputed ones included
  int64_t generated_tokens = 0;  // delivered
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;
  TimeNs step_time_total = 0;  // device time of all steps
  // Of cancelled requests that ran: from the event to the next planning, which leaves them out, and
  // to the completion of the last step that touches their blocks.
  int64_t cancels_stopped = 0;
  TimeNs cancel_stop_time_total = 0;
  int64_t cancels_released = 0;
  TimeNs cancel_release_time_total = 0;
  // The prefix cache: tokens of admitted requests, those of them that were found, and why the
  // others were not; whole spans of blocks given up; seconds of prompt processing saved, as
  // predicted.
  int32_t requests_awaiting_prefix = 0;  // gauge; they count as waiting
  int64_t prefix_query_tokens = 0;
  int64_t prefix_hit_tokens = 0;
  PrefixMisses prefix_missed;
  int64_t prefix_spans_evicted = 0;
  double prefix_saved_s = 0;
  // What the scheduler has learnt about steps with prompt tokens; 0 before the first.
  double cost_base_ns = 0;
  double cost_token_ns = 0;
  double cost_pair_ns = 0;
  double cost_error = 0;  // mean of |predicted - measured| / measured of recent steps
  // Prompt tokens of the last step that an ITL target bounded; 0 before the first.
  int32_t itl_prefill_tokens = 0;
};

}  // namespace tandem
