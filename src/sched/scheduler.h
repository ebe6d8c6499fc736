// What: Scheduler: turns requests and results into StepPlans: bounded FIFO queue, admission by
//   reservation, chunked prefill beside decodes, preemption, two-phase release. Policy `chunked`
//   (spec S2): every step runs the decode rows first, then prefill chunks, both in admission order,
//   then admits from the queue's head while budget, places and blocks last.
// Not here: submitting, outputs, when a request has finished (engine/).
// Threads: the engine's thread. No clock, no device; equal calls give equal plans.
// Invariants (CheckIntegrity):
//   - one code path for every pipeline depth: a row's token is a literal when it is known at
//     planning, else the output of the row in flight that chooses it;
//   - a request with a stated limit is never preempted and never waits for a block: its promise
//     covers it;
//   - of those without, the earliest admitted is never preempted, so each step sequence makes
//     progress;
//   - a block leaves for another sequence only after the last submitted step that touches it has
//     completed.
// Cost: a step costs O(running + tokens planned + blocks moved), whatever waits in the queue; a
//   steady decode step allocates nothing.
// Based on: Orca (iteration-level batching), Sarathi-Serve (chunked prefill), spec S6/S7/S9;
//   docs/decisions/002.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/request.h"
#include "core/step_plan.h"
#include "kv/state_pools.h"
#include "sched/scheduler_config.h"
#include "sched/sequence_store.h"

namespace tandem {

// What a completed row has for a sequence that still wants it.
struct CommittedRow {
  SequenceIndex sequence;
  std::optional<TokenId> token;  // chosen
  // Entries of StepResult::logprobs: of prompt tokens, and behind them of the chosen token.
  int32_t logprobs_begin = 0;
  int32_t prompt_logprobs = 0;
  int32_t token_logprobs = 0;
};

// What a completed step changed. Valid until the next call of Commit or Refused.
struct StepOutcome {
  std::vector<CommittedRow> rows;     // those with a token or log probabilities, in row order
  std::vector<SequenceIndex> failed;  // sequences whose rows came to nothing, in row order
  int64_t prefill_tokens = 0;         // run by prefill rows
  int64_t recomputed_tokens = 0;      // of all tokens run, those that had been run before
};

class Scheduler {
 public:
  static Result<std::unique_ptr<Scheduler>> Create(const SchedulerConfig& config);

  const SchedulerConfig& config() const { return config_; }
  // The longest request (prompt + output) that is ever accepted: what model and pools allow.
  int32_t max_context_tokens() const { return max_context_tokens_; }

  // Whether the request could ever run; depends on the configuration only, so it may be called from
  // any thread. INVALID_ARGUMENT for values that make no sense, OUT_OF_RANGE with the numbers for
  // what can never fit.
  Status Validate(const Request& request) const;

  // Puts a request at the end of the queue. Errors of Validate; INVALID_ARGUMENT for an id in use;
  // RESOURCE_EXHAUSTED when the queue is full.
  Status Enqueue(Request request);

  std::optional<SequenceIndex> Find(RequestId id) const { return store_.Find(id); }
  const Sequence& sequence(SequenceIndex index) const { return store_.at(index); }

  // Adds a committed token to its sequence; `now` is the time of the first one.
  void AppendToken(SequenceIndex index, TokenId token, TimeNs now);

  // Ends a sequence in any state: it is in no later plan, its rows in flight will be discarded, its
  // blocks come back once the steps in flight that touch them have completed. Requires an end
  // state.
  void End(SequenceIndex index, RequestState end);

  // Plans the next step into *plan. False when no row can run now; then the plan is empty and is
  // not submitted. Requires steps_in_flight() <= pipeline_depth, and Submitted or Refused for every
  // plan before the next call.
  bool PlanStep(TimeNs now, StepPlan* plan);
  void Submitted(const StepPlan& plan);
  // The executor has refused the plan whole. Its sequences are returned; the caller must End them.
  // Leaves that were in the plan come again in the next one.
  const StepOutcome& Refused(const StepPlan& plan);

  int32_t steps_in_flight() const { return flights_count_; }

  // Whether `result` is that of the oldest step in flight and has its rows. INTERNAL if not.
  Status CheckResult(const StepResult& result) const;
  // Takes the result of the oldest step in flight; requires CheckResult. The caller must
  // AppendToken or End each sequence with a token in `rows`, and End each in `failed`.
  const StepOutcome& Commit(const StepResult& result);

  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  int32_t waiting() const { return store_.queue_size(); }
  int64_t preemptions() const { return preemptions_; }
  const StatePools& pools() const { return pools_; }

  Status CheckIntegrity() const;

 private:
  struct Slot {
    SequenceBlocks blocks;
    SequenceIndex sequence{-1};  // -1: free
  };
  // A row of a step in flight, or of the step in planning.
  struct FlightRow {
    SequenceIndex sequence;
    uint64_t serial = 0;
    SlotId slot;
    int32_t position = 0;
    int32_t num_tokens = 0;
    bool prefill = false;
    bool sample = false;
    int32_t prompt_logprobs = 0;  // entries
    int32_t token_logprobs = 0;
  };
  struct Flight {
    StepId step;
    std::vector<FlightRow> rows;
  };
  // The step in planning.
  struct Draft {
    StepPlan* plan = nullptr;
    Flight* flight = nullptr;
    int32_t budget_left = 0;
    bool admit = true;
  };
  enum class Blocks : uint8_t { kReady, kWait, kPreempted };

  Scheduler(const SchedulerConfig& config, int32_t max_context_tokens);

  void PlanDecodes(Draft* draft);
  void PlanPrefills(Draft* draft);
  void AdmitFromQueue(TimeNs now, Draft* draft);
  static void AddJoin(const Sequence& sequence, SlotId slot, StepPlan* plan);
  void PlanChunk(SequenceIndex index, Draft* draft);
  void AddRow(SequenceIndex index, int32_t num_tokens, Draft* draft);
  // Makes room for one more token, at the cost of later requests if need be.
  Blocks EnsureBlocks(SequenceIndex index, Draft* draft);
  // The request that gives way when `index` needs blocks; none when nobody else could use what it
  // would give up.
  std::optional<SequenceIndex> PickVictim(SequenceIndex index) const;
  void Preempt(SequenceIndex index);
  // Takes a running sequence out of its slot.
  void LeaveSlot(SequenceIndex index);
  void Move(Sequence* sequence, RequestState to);
  int64_t TokensToReserve(const Sequence& sequence) const;
  Flight& FlightAt(int32_t age) {
    return flights_[static_cast<size_t>(flights_head_ + age) % flights_.size()];
  }
  const Flight& FlightAt(int32_t age) const {
    return flights_[static_cast<size_t>(flights_head_ + age) % flights_.size()];
  }
  void CommitRow(const FlightRow& row, const StepResult& result, size_t row_index);
  Status CheckSequences() const;

  const SchedulerConfig config_;
  const int32_t max_context_tokens_;
  StatePools pools_;
  SequenceStore store_;
  std::vector<Slot> slots_;
  std::vector<SlotId> free_slots_;      // last out first
  std::vector<SequenceIndex> running_;  // in admission order
  std::vector<SlotId> pending_leaves_;  // for the next plan
  std::vector<Flight> flights_;         // ring of pipeline_depth + 1
  int32_t flights_head_ = 0;
  int32_t flights_count_ = 0;
  StepId last_step_;       // last submitted
  bool planning_ = false;  // a plan is out, neither submitted nor refused
  int64_t preemptions_ = 0;
  StepOutcome outcome_;
};

}  // namespace tandem
