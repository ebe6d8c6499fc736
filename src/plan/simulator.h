// What: Simulate: runs a scenario through the engine itself (scheduler, block pools, policies) on a
//   virtual clock, event by event, and says what happened (spec P2).
// Not here: the scenario (scenario.h), how a report looks (simulation_report.h).
// Threads: one. No wall clock: equal scenarios give equal simulations.
// Cost: below 1 us per row; a record of every step and delivery only if asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "core/engine_stats.h"
#include "core/request.h"
#include "plan/scenario.h"
#include "plan/simulated_executor.h"
#include "plan/wide_int.h"

namespace tandem {

struct SimulatedStep {
  TimeNs start = 0;
  TimeNs end = 0;
  int64_t new_tokens = 0;
  int64_t causal_pairs = 0;
  int64_t live_kv_bytes = 0;  // blocks in use while it runs
  int64_t blocks_in_use = 0;
  std::vector<SimulatedRow> rows;
  std::vector<int32_t> preempted;  // requests that gave way when it was planned
};

struct SimulatedRequest {
  std::optional<FinishReason> finish;
  Status refused;  // not ok: it was never accepted
  std::optional<DeadlineRefusal> refusal;
  TimeNs admitted = 0;
  TimeNs first_token = 0;
  TimeNs finished = 0;
  TimeNs max_itl = 0;
  int32_t outputs = 0;
  int32_t computed = 0;  // positions that were stored at last
  int32_t recomputed = 0;
  int32_t preemptions = 0;
  int64_t reserved_bytes = 0;  // what it could ever store, in whole blocks
  WideInt matrix_flops = 0;
  std::vector<TimeNs> deliveries;

  // Answered whole, and in time if it had a deadline.
  bool Good(const ScenarioRequest& request) const;
};

struct Simulation {
  std::vector<SimulatedRequest> requests;  // as the scenario's
  std::vector<SimulatedStep> steps;
  int64_t iterations = 0;
  TimeNs finish = 0;  // of the last step
  int64_t total_output_tokens = 0;
  int64_t total_scheduled_tokens = 0;
  WideInt total_matrix_flops = 0;
  int64_t peak_live_kv_bytes = 0;
  int64_t peak_reserved_kv_bytes = 0;
  int64_t peak_blocks = 0;
  WideInt live_kv_byte_ns = 0;
  TimeNs max_waiting = 0;
  TimeNs max_ttft = 0;
  TimeNs max_itl = 0;
  EngineStats stats;  // at the end
};

// With `record`, steps and deliveries are kept. Errors: those of ConfigOf; OUT_OF_RANGE when the
// clock passes kMaxSimulatedTime.
Result<Simulation> Simulate(const Scenario& scenario, bool record);

}  // namespace tandem
