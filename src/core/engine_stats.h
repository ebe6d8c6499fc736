// What: a snapshot of the engine's counters and gauges.
// Not here: per-request times (RequestOutput), how they are exported (server/metrics).
// Threads: values.
#pragma once

#include <array>
#include <cstddef>
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

// Prompts whose state moves between nodes (docs/decisions/005-handoff.md).
struct HandoffStats {
  // Gauges.
  int32_t ready_peers = 0;           // prefill nodes that take requests
  int32_t requests_awaiting_kv = 0;  // they count as waiting
  int32_t requests_sending = 0;      // computed, and not yet delivered
  int32_t open = 0;                  // fetches and sends whose blocks may still be touched
  // Counters since start.
  int64_t fetches = 0;           // ordered
  int64_t fetched_requests = 0;  // whose state arrived
  int64_t fetched_tokens = 0;    // of these, what was missing here
  int64_t fetches_failed = 0;
  int64_t fetches_given_up = 0;  // for a running request that lacked a block
  int64_t fallbacks = 0;         // requests that were computed here after a fetch had failed
  int64_t sends = 0;             // delivered
  int64_t sends_failed = 0;      // cancelled ones included
};

// Parts of the prefix cache that are alike, and what became of such parts (kv/retention.h).
struct PrefixClassFigures {
  int32_t reuses = 0;            // before, of each; 3: three or more
  bool continues = false;        // stored behind a prefix that had been reused
  int32_t first_token_from = 0;  // how deep they lie: this or deeper
  int64_t hits = 0;
  int64_t evictions = 0;
  int64_t parts = 0;           // now
  double hit_probability = 0;  // measured: of a reuse before eviction
};
inline constexpr size_t kPrefixClassesMax = 32;

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
  std::array<PrefixClassFigures, kPrefixClassesMax> prefix_classes;
  // What the scheduler has learnt about steps with prompt tokens; 0 before the first.
  double cost_base_ns = 0;
  double cost_token_ns = 0;
  double cost_pair_ns = 0;
  double cost_error = 0;  // mean of |predicted - measured| / measured of recent steps
  // Prompt tokens of the last step that an ITL target bounded; 0 before the first.
  int32_t itl_prefill_tokens = 0;
  HandoffStats handoff;
};

}  // namespace tandem
