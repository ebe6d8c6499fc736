// What: Scenario: what a simulation runs: scheduler settings, the cost of a step, a model's figures
//   and the requests; and how it is read from JSON (docs/scheduler.md lists the keys).
// Not here: running it (simulator.h).
// Threads: values.
// Invariants: a Scenario from ParseScenario is in range: it can be run, though a request may be
//   refused. Requests are in the order of their arrival.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "sched/scheduler_config.h"

namespace tandem {

// 36 years: sums of two stay far inside 64 bits.
inline constexpr TimeNs kMaxSimulatedTime = TimeNs{1} << 60;

// Of a model in its stored precision; the default is Qwen3-8B with a BF16 cache.
struct ModelFigures {
  std::string name = "qwen3-8b";
  int64_t kv_bytes_per_token = 147'456;
  int64_t flops_per_token = 13'891'534'848;  // of all projections, without the output's
  int64_t flops_per_pair = 589'824;          // of a (query, key) pair, all layers and heads
  int64_t flops_per_logit_row = 1'244'659'712;
};

// A step's time in whole ns.
struct StepTimes {
  int64_t base_ns = 0;
  int64_t token_ns = 0;
  int64_t pair_ns = 0;
  LinearCost law() const {
    return {static_cast<double>(base_ns), static_cast<double>(token_ns),
            static_cast<double>(pair_ns)};
  }
};

struct ScenarioRequest {
  std::string id;
  TimeNs arrival = 0;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;  // that it really generates
  // The limit that it states; below output_tokens it cuts the answer. None: states none, and ends
  // by a stop token.
  std::optional<int32_t> max_tokens;
  std::optional<TimeNs> deadline;     // from the arrival
  std::optional<TimeNs> ttft_target;  // from the arrival
  std::optional<TimeNs> cancel_at;    // on the simulation's clock
  std::optional<int32_t> cancel_after_outputs;
};

struct Scenario {
  Policy policy = Policy::kChunked;
  int32_t max_sequences = 1;
  int32_t token_budget = 1;
  int32_t chunk_tokens = 1;
  StepTimes step;
  ModelFigures model;
  int32_t block_tokens = 1;
  std::optional<int64_t> kv_capacity_bytes;  // none: enough for max_sequences of the longest
  int32_t reserved_blocks = 0;               // of the capacity, blocks that nobody gets
  Reservation reservation = Reservation::kFull;
  int32_t reserve_tokens = 1024;
  PreemptionRule preemption = PreemptionRule::kLeastRecompute;
  TimeNs itl_target = 0;
  std::vector<int32_t> prepared_tokens;
  bool heed_deadlines = true;
  // The scheduler learns what a step costs instead of being told.
  bool learn_cost = false;
  int32_t max_queue = 1 << 20;
  int32_t pipeline_depth = 0;
  std::vector<ScenarioRequest> requests;
};

// Poisson arrivals with uniform lengths.
struct Workload {
  int32_t count = 0;
  double rate_per_s = 0;
  int32_t prompt_tokens_min = 1, prompt_tokens_max = 1;
  int32_t output_tokens_min = 1, output_tokens_max = 1;
  double deadline_factor = 0;  // of the time that the request takes alone; 0: no deadline
  uint64_t seed = 1;
};

// What the request takes from its arrival to its last token when nobody else is there.
TimeNs UnloadedTime(const Scenario& scenario, const ScenarioRequest& request);

// Appends `workload` to the scenario's requests. Requires positive counts, lengths and rate, and
// minima that are not above their maxima.
void AddWorkload(const Workload& workload, Scenario* scenario);

inline constexpr size_t kMaxScenarioBytes = size_t{256} << 20;
inline constexpr int32_t kMaxScenarioRequests = 4'000'000;

// INVALID_ARGUMENT with the key's path for anything that is missing, unknown, of the wrong type or
// out of range; DATA_LOSS for what is not JSON; OUT_OF_RANGE for a text that is too long.
Result<Scenario> ParseScenario(std::string_view json);

// The scheduler's settings. RESOURCE_EXHAUSTED when the KV capacity holds no block.
Result<SchedulerConfig> ConfigOf(const Scenario& scenario);

}  // namespace tandem
