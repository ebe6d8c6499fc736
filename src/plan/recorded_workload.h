// What: RecordedRequest: a request of a recorded run, with the answer it got; and SimulateRecorded,
//   which gives the same requests to an engine with other settings, on a virtual clock.
// Not here: reading the record (replay.h), scenarios without a record (simulator.h).
// Threads: one. No wall clock: equal arguments give equal summaries.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/request.h"
#include "plan/run_figures.h"
#include "sched/cost_model.h"
#include "sched/scheduler_config.h"

namespace tandem {

struct RecordedRequest {
  Request request;
  TimeNs came = 0;  // to the engine, not before request.arrival, from which its times count
  std::vector<TokenId> answer;
  std::optional<FinishReason> finish;  // none: refused, or still running when the record ended
  bool accepted = false;
  std::optional<TimeNs> cancel_at;
};

// What a request that was cancelled is taken to have answered beyond what it did, if nobody had
// cancelled it: enough to be cancelled at its time under most settings.
inline constexpr size_t kMostBeyondCancel = 4096;

// Each request comes when it came, is cancelled when it was, and answers what it did; one whose
// answer is not known to its end (refused, or still running when the record ended) is taken to
// answer as much as the mean, within its limit. A step takes what `cost` predicts.
// Errors: those of Engine::Create; FAILED_PRECONDITION when `cost` has seen no step.
Result<RunSummary> SimulateRecorded(const SchedulerConfig& config,
                                    std::span<const RecordedRequest> requests,
                                    const CostModel& cost);

}  // namespace tandem
