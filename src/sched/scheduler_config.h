// What: SchedulerConfig: every number that scheduling decisions depend on, apart from the events.
// Not here: reading flags (cli/), sizes in bytes (cli/ turns the KV budget into blocks).
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kv/prefix_cache.h"
#include "kv/state_pools.h"
#include "sched/cost_model.h"

namespace tandem {

// Who may join a batch, and how much of a prompt a step takes (spec S2). One code path; docs/
// scheduler.md shows the same four requests under each.
enum class Policy : uint8_t {
  kStatic,      // a group enters when nothing runs; its places stay empty as members leave
  kContinuous,  // a place that is free is taken at the next step; a prompt is one row
  kChunked,     // as continuous, but a step's tokens are bounded: decodes first, then chunks
};
// "static" (also "fixed"), "continuous", "chunked".
std::string_view NameOf(Policy policy);
Result<Policy> PolicyFromName(std::string_view name);

// How many blocks a request is promised when it enters (spec S6). Who is promised all it can ever
// need is never preempted.
enum class Reservation : uint8_t {
  kFull,           // prompt and limit, or the whole context where no limit is stated
  kReserveTokens,  // prompt and limit; without a limit the prompt and reserve_tokens, then it grows
  kOnDemand,       // the tokens known so far; everybody grows
};
// "full", "reserve-tokens", "on-demand".
std::string_view NameOf(Reservation reservation);
Result<Reservation> ReservationFromName(std::string_view name);

// Who gives way when a running request finds no block (spec S7).
enum class PreemptionRule : uint8_t {
  kLeastRecompute,  // of those that entered later, the one that has least to compute again
  kLastAdmitted,    // the last that entered, be it the one in need
};
// "least-recompute", "last-admitted".
std::string_view NameOf(PreemptionRule rule);
Result<PreemptionRule> PreemptionRuleFromName(std::string_view name);

// What past and running requests have computed is kept and shared (spec K4, K5).
struct PrefixCaching {
  PrefixIdentity identity;  // of all requests; the tenant's salt comes with each
  RetentionKind retention = RetentionKind::kValue;
  HashKey key;  // secret
};

// When a decode node has prompts computed elsewhere (spec H2). Only while prefill nodes are ready.
struct FetchConfig {
  // Requests that wait for their state at one time, beside those that run; 0: none is fetched.
  int32_t max_fetches = 0;
  // Fewer missing tokens than this are computed here. Below a few blocks the round trip to another
  // node costs more than the row.
  int32_t min_tokens = 64;
  // Fetches of one request that may fail; then it is computed here.
  int32_t max_attempts = 2;
};

struct SchedulerConfig {
  // The model's state groups in GroupId order, each with the blocks of its pool.
  std::vector<StateGroupBlocks> groups;

  // The most tokens (prompt + output) of one request that the model allows.
  int32_t context_length = 0;
  // Prompts may hold token ids 0 .. vocab_size-1.
  int32_t vocab_size = 0;

  // Steps that are submitted before the tokens of their predecessor are known: 0 waits for every
  // result; 1 hides the host's work behind the device's and wastes one row per request that stops
  // by itself.
  int32_t pipeline_depth = 1;

  Policy policy = Policy::kChunked;
  // The three limits of a step (spec S2), independent of each other. 16 rows keep the weights'
  // reads of a small CPU model amortised; 512 tokens are a step of tens of ms there; a chunk may
  // take the whole budget. Policies other than chunked heed the first alone.
  int32_t max_running = 16;
  int32_t token_budget = 512;  // at least max_running: every running request decodes in every step
  int32_t chunk_tokens = 512;

  // Above 0: a step with decode rows takes no more prompt tokens than the cost model lets it finish
  // within this time (spec S3), but kLeastPrefillTokens in any case.
  TimeNs itl_target = 0;
  // What steps cost, where it is known beforehand; otherwise it is learnt from the steps.
  std::optional<LinearCost> cost;
  // Row counts that the executor has prepared, ascending; a step of fewer costs what the next one
  // costs (spec S4). Empty: every count costs what it is.
  std::vector<int32_t> prepared_tokens;

  Reservation reservation = Reservation::kReserveTokens;
  // Beyond the prompt, for a request without a stated limit; see Reservation.
  int32_t reserve_tokens = 1024;
  PreemptionRule preemption = PreemptionRule::kLeastRecompute;

  // None: every request computes all of its prompt.
  std::optional<PrefixCaching> prefix_cache;

  FetchConfig fetch;

  // Whether deadlines and first-token targets of requests order the queue and refuse arrivals that
  // cannot meet them (spec S8); else the queue is strictly first come, first served.
  bool heed_deadlines = true;
  // Arrivals are refused while this many requests wait.
  int32_t max_queue = 1024;

  // Names the first field that makes no sense.
  Status Validate() const;
  // The most tokens of one row.
  int32_t max_row_tokens() const;
  bool has_window_group() const;
  // What the executor must have: those that run, and those that wait for their state.
  int32_t num_slots() const { return max_running + fetch.max_fetches; }
};

// Prompt tokens per step that an ITL target cannot take away: prefill must go on beside decodes
// that alone miss the target. One block of the usual size.
inline constexpr int32_t kLeastPrefillTokens = 16;

}  // namespace tandem
