// What: Engine: the loop admit -> plan -> submit -> commit -> emit, as a state machine that
//   somebody drives.
// Not here: threads, queues, the wall clock, polling (all the host's); which rows run (sched/); how
//   (StepExecutor).
// Threads: one owner; ValidateRequest and max_context_tokens from any thread.
// Invariants (CheckIntegrity): those of Scheduler; every accepted request gets exactly one last
//   output. The inputs are the calls of Handle, StopAdmission and Advance, in their order, and
//   nothing else: a log of them replays to the same plans.
// Cost: O(rows + tokens + blocks moved) per step, whatever waits; a steady decode step allocates
//   nothing.
//
// A host loops:
//   for each event that has come (arrivals, cancels, hand-offs; Poll(&result) until false, each as
//   a ResultEvent):
//     engine.Handle(event)
//   engine.Advance(now)
//   while nothing has come: sleep. The executor's on-finished callback, an arrival, a cancel or a
//   hand-off wakes it up.
// To shut down: StopAdmission(), and go on until !HasWork(); the executor may be destroyed once
// also steps_in_flight() == 0 and open_handoffs() == 0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "core/engine_stats.h"
#include "core/event.h"
#include "core/handoff_port.h"
#include "core/request.h"
#include "core/step_executor.h"
#include "core/step_plan.h"
#include "sched/scheduler.h"
#include "sched/scheduler_config.h"

namespace tandem {

// The engine adds no number of its own to what scheduling needs.
using EngineConfig = SchedulerConfig;

// Receives every output of every request, in order per request, while Handle or Advance runs.
class EngineOutputSink {
 public:
  virtual ~EngineOutputSink() = default;
  // `output` is valid during the call only. Must not call back into the engine.
  virtual void OnOutput(const RequestOutput& output) = 0;
};

class Engine {
 public:
  // `executor`, `sink` and `port` outlive the engine; without a port no state moves between nodes.
  // Errors name the field of `config` that makes no sense
  // or that the executor's limits exclude.
  static Result<std::unique_ptr<Engine>> Create(const EngineConfig& config, StepExecutor* executor,
                                                EngineOutputSink* sink,
                                                HandoffPort* port = nullptr);

  // Takes one input; plans nothing. Event times never decrease (an earlier one counts as the
  // latest).
  //   arrival  the request waits, or the error says why it is refused: nothing is kept, the sink is
  //   not called.
  //            UNAVAILABLE after StopAdmission, else as Scheduler::Enqueue.
  //   cancel   the request ends with kCancelled at once; unknown ids are ignored.
  //   result   tokens are emitted, requests that ended get their last output. INTERNAL for a result
  //   that does not
  //            belong to the oldest step in flight; it changes nothing, and the executor is not to
  //            be trusted.
  //   hand-off what came of a fetch or a send. INVALID_ARGUMENT without a port.
  // A result whose status is not ok ends the requests that had a row in its step with kFailed;
  // others go on.
  Status Handle(const EngineEvent& event);

  // Plans and submits steps until the pipeline is full or nothing can run. Call it after Handle;
  // calling it without need changes nothing. A plan that the executor refuses fails the requests
  // that had a row in it.
  void Advance(TimeNs now);

  // No arrival is accepted from now on; what was accepted runs to its end.
  void StopAdmission() { admission_stopped_ = true; }

  // Requests without their last output exist.
  bool HasWork() const {
    return scheduler_->running() + scheduler_->waiting() + scheduler_->sending() > 0;
  }
  // Submitted steps whose result has not been handled. May outlast the requests.
  int32_t steps_in_flight() const { return scheduler_->steps_in_flight(); }
  // Fetches and sends that have not drained: until then their blocks may be touched from outside.
  // May outlast the requests.
  int32_t open_handoffs() const { return scheduler_->open_handoffs(); }

  // What an arrival would be refused for whatever the state: see Scheduler::Validate.
  Status ValidateRequest(const Request& request) const { return scheduler_->Validate(request); }
  int32_t max_context_tokens() const { return scheduler_->max_context_tokens(); }

  // Set when the arrival that was handled last was refused for its deadline.
  const std::optional<DeadlineRefusal>& refusal() const { return refusal_; }

  EngineStats stats(TimeNs now) const;

  Status CheckIntegrity() const { return scheduler_->CheckIntegrity(); }
  // For tests and inspection.
  const Scheduler& scheduler() const { return *scheduler_; }

 private:
  Engine(std::unique_ptr<Scheduler> scheduler, StepExecutor* executor, EngineOutputSink* sink,
         HandoffPort* port);

  Status HandleArrival(const Request& request);
  void HandleCancel(RequestId id);
  Status HandleResult(const StepResult& result);
  Status HandleHandoff(const HandoffEvent& event);
  void CommitRow(const CommittedRow& row, const StepResult& result);
  void AddPrefixStats(EngineStats* stats) const;
  // Emits one output with `token` if there is one, and with the log probabilities that output_
  // holds; with `finish` it is the last and the sequence ends.
  void Emit(SequenceIndex index, std::optional<TokenId> token, std::optional<FinishReason> finish,
            const Status& status);

  // The two phases of cancels, for the statistics: the sequence is in no later plan; the last step
  // that touches its blocks has completed.
  struct Cancelled {
    StepId last_step;
    TimeNs at;
    bool stopped;
  };
  void NoteStops();
  void NoteReleases(StepId done);

  std::unique_ptr<Scheduler> scheduler_;
  StepExecutor* executor_;
  EngineOutputSink* sink_;
  HandoffPort* port_;  // or null
  bool admission_stopped_ = false;
  TimeNs now_ = 0;
  StepPlan plan_;         // reused for every step
  RequestOutput output_;  // reused for every output
  std::vector<Cancelled> cancels_;
  std::optional<DeadlineRefusal> refusal_;
  EngineStats counters_;  // gauges are filled in by stats()
};

}  // namespace tandem
