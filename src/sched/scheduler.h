// What: Scheduler: turns requests and results into StepPlans: bounded queue, admission by
//   reservation, three batching policies in one code path (spec S2), token budgets, preemption,
//   deadlines, two-phase release, prompts that come from prefill nodes or go to decode nodes. Every
//   step runs the decode rows first, then admits from the queue's head while places and blocks
//   last, then runs prompts in admission order.
// Not here: submitting, outputs, when a request has finished (engine/); what a step costs
//   (cost_model.h), how long a request takes (finish_predictor.h); which blocks a hand-off still
//   touches (handoff_ledger.h).
// Threads: the engine's thread. No clock, no device; equal calls give equal plans.
// Invariants (CheckIntegrity):
//   - one code path for every pipeline depth: a row's token is a literal when it is known at
//     planning, else the output of the row in flight that chooses it;
//   - a request that is promised all it can ever need is never preempted and never waits for a
//     block;
//   - of the others, the one that entered first is never preempted, so each step sequence makes
//     progress;
//   - a block leaves for another sequence only after the last submitted step that touches it has
//     completed, and the last fetch or send that touches it has drained;
//   - whoever awaits its state gives way to every running request that lacks a block, so none waits
//     for one that waits for its place.
// Cost: a step costs O(running + tokens planned + blocks moved), whatever waits in the queue; a
//   steady decode step allocates nothing. An arrival with a deadline costs O((running + waiting) *
//   running).
// Based on: Orca (iteration-level batching), Sarathi-Serve (chunked prefill), spec S2-S9;
//   docs/scheduler.md, docs/decisions/002. In parts by reason: scheduler.cc (the life of a
//   sequence), scheduler_plan.cc, scheduler_prefix.cc, scheduler_handoff.cc,
//   scheduler_deadlines.cc, scheduler_commit.cc, scheduler_validate.cc, scheduler_check.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/engine_stats.h"
#include "core/handoff_port.h"
#include "core/request.h"
#include "core/step_plan.h"
#include "kv/prefix_cache.h"
#include "kv/state_pools.h"
#include "sched/admission_share.h"
#include "sched/cost_model.h"
#include "sched/finish_predictor.h"
#include "sched/flight.h"
#include "sched/handoff_ledger.h"
#include "sched/scheduler_config.h"
#include "sched/sequence_store.h"

namespace tandem {

class Scheduler {
 public:
  // `port` outlives the scheduler; without one nothing is fetched, and requests with `send` are
  // refused.
  static Result<std::unique_ptr<Scheduler>> Create(const SchedulerConfig& config,
                                                   HandoffPort* port = nullptr);

  const SchedulerConfig& config() const { return config_; }
  // The longest request (prompt + output) that is ever accepted: what model and pools allow.
  int32_t max_context_tokens() const { return max_context_tokens_; }

  // Whether the request could ever run; depends on the configuration only, so it may be called from
  // any thread. INVALID_ARGUMENT for values that make no sense, OUT_OF_RANGE with the numbers for
  // what can never fit.
  Status Validate(const Request& request) const;

  // Puts a request on the queue: behind all that should start as early or earlier, which without
  // deadlines is behind all. Errors of Validate; INVALID_ARGUMENT for an id in use;
  // RESOURCE_EXHAUSTED when the queue is full, or when the request is predicted to miss its
  // deadline: then refusal() has the numbers.
  Status Enqueue(Request request, TimeNs now);
  // Set when the last Enqueue failed for a deadline.
  const std::optional<DeadlineRefusal>& refusal() const { return refusal_; }

  std::optional<SequenceIndex> Find(RequestId id) const { return store_.Find(id); }
  const Sequence& sequence(SequenceIndex index) const { return store_.at(index); }

  // Adds a committed token to its sequence; `now` is the time of the first one.
  void AppendToken(SequenceIndex index, TokenId token, TimeNs now);

  // Ends a sequence in any state: it is in no later plan, its rows in flight will be discarded, its
  // blocks come back once the steps in flight and hand-offs that touch them are over. `why` is for
  // the other side of a send that ends undelivered. Requires an end state.
  void End(SequenceIndex index, RequestState end, const Status& why = OkStatus());

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
  // AppendToken or End each sequence with a token in `rows`, and End each in `failed` and `sent`.
  const StepOutcome& Commit(const StepResult& result);

  // What HandoffEvent tells. Events of hand-offs that nobody knows any more change nothing.
  void SetReadyPeers(int32_t peers) { handoff_.ready_peers = peers; }
  void FetchArrived(FetchId fetch);
  void FetchFailed(FetchId fetch);
  void FetchDrained(FetchId fetch);
  // Returns the sequence that has come to its end with this, which the caller must End: as failed
  // unless it was `delivered`.
  std::optional<SequenceIndex> SendDrained(SendId send, bool delivered);

  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  std::span<const SequenceIndex> running_sequences() const { return running_; }
  // Those that await a prefix or their state included.
  int32_t waiting() const { return store_.queue_size() + awaiting_prefix() + awaiting_kv(); }
  int32_t awaiting_kv() const { return static_cast<int32_t>(awaiting_kv_.size()); }
  int32_t sending() const { return static_cast<int32_t>(sending_.size()); }
  // Blocks may be touched from outside until it is 0, whether or not their requests still exist.
  int32_t open_handoffs() const { return ledger_.open(); }
  HandoffStats handoff_stats() const;
  int32_t awaiting_prefix() const { return static_cast<int32_t>(awaiting_.size()); }
  // Null without one.
  const PrefixCache* prefix_cache() const { return cache_.get(); }
  int64_t preemptions() const { return preemptions_; }
  const StatePools& pools() const { return pools_; }
  const CostModel& cost_model() const { return cost_; }
  // Prompt tokens of the last step that an ITL target bounded.
  int32_t itl_prefill_tokens() const { return itl_prefill_tokens_; }

  Status CheckIntegrity() const;

 private:
  struct Slot {
    SequenceBlocks blocks;
    SequenceIndex sequence{-1};  // -1: free
  };
  // The step in planning.
  struct Draft {
    StepPlan* plan = nullptr;
    Flight* flight = nullptr;
    int32_t budget_left = 0;  // tokens
    double limit_ns = 0;      // the step may take so long; 0: no limit
    bool admit = true;        // from the queue
    bool closed = false;      // to everybody: a group runs (Policy::kStatic)
  };
  enum class Blocks : uint8_t { kReady, kWait, kPreempted };

  Scheduler(const SchedulerConfig& config, HandoffPort* port, int32_t max_context_tokens);

  // Whether the request is promised all it can ever need.
  bool FullyReserved(const Sequence& sequence) const;
  int64_t TokensToReserve(const Sequence& sequence) const;

  // Deadlines (scheduler_deadlines.cc).
  // Decides by the deadlines of `request`; sets *start_by for the queue.
  Status CheckDeadlines(const Request& request, TimeNs now, TimeNs* start_by);
  Status JudgePrediction(const Request& request, TimeNs now, const Prediction& alone,
                         const Prediction& predicted);
  // Until the steps in flight have completed, as predicted.
  TimeNs TimeInFlight(TimeNs now) const;
  // Tokens that the pools have room for beyond all promises.
  int64_t FreeTokens() const;
  // Sets what of the sequence's state is there (history, held), or will be once it enters.
  void DescribeState(const Sequence& sequence, Load* load) const;
  Load LoadOf(const Sequence& sequence, TimeNs now) const;
  Load LoadOf(const Request& request) const;
  // Tells the predictor what runs and waits. Returns how many of those that wait go before a
  // newcomer that should start by then.
  size_t DescribePresent(TimeNs now, TimeNs start_by);

  // Planning (scheduler_plan.cc).
  void PlanDecodes(Draft* draft);
  void AdmitFromQueue(TimeNs now, Draft* draft);
  bool MayAdmit(const Draft& draft) const;
  // Promises the blocks that the head of the queue needs in the next free slot; false: too few.
  bool ReserveFor(const Sequence& sequence, const PrefixHit& hit, StepPlan* plan);
  void Admit(SequenceIndex index, TimeNs now, StepPlan* plan);
  // Gives a queued sequence the next free slot, whose blocks have been promised.
  void TakeSlot(SequenceIndex index, TimeNs now);
  // Makes a sequence with a slot a running one.
  void Enter(SequenceIndex index);

  // The prefix cache (scheduler_prefix.cc). Without one there are no hits and no waiters.
  double RecomputeSeconds(int64_t begin, int64_t end) const;
  PrefixIdentity IdentityOf(const Request& request) const;
  // What is stored of the known tokens of a request.
  PrefixHit FindPrefix(const Request& request, std::span<const TokenId> tokens) const;
  // A sequence that runs, or awaits its state, will have more of the prefix than the hit has.
  bool WillBeComputed(const PrefixHit& hit) const;
  // Takes a sequence off the queue until its owner has computed what `hit` says.
  void AwaitPrefix(SequenceIndex index, const PrefixHit& hit);
  // `owner` has committed so many tokens, or has left: who awaited that is queued again.
  void WakeWaiters(uint64_t owner, int64_t committed);
  void KeepCommitted(const Sequence& sequence, int64_t committed, StepId done);
  void GiveUpBlocks(const Sequence& sequence);
  // No row of the plan could run: sequences that it would have restored go back to the queue.
  void UndoJoins(StepPlan* plan);

  // Hand-off (scheduler_handoff.cc).
  bool MayFetch() const;
  bool WantsFetch(const Sequence& sequence, const PrefixHit& hit) const;
  // Takes the queue's head off it and orders its state; false, and nothing changes, when places or
  // blocks lack.
  bool StartFetch(SequenceIndex index, const PrefixHit& hit, TimeNs now);
  // Those whose state is here enter while there are places.
  void JoinArrived();
  // The sequence goes back to the queue without its blocks and whatever they hold.
  void GiveUpFetch(SequenceIndex index);
  // The last one that awaits its state makes room; false when there is none.
  bool DropLastFetch();
  // Writes the table of a sequence that the executor does not know yet into *plan.
  void AppendTable(const Sequence& sequence, StepPlan* plan) const;
  std::vector<std::vector<BlockId>> BlocksBetween(const Sequence& sequence, int32_t begin,
                                                  int32_t end) const;
  // The state of [announced, end) is computed by `step`: hands it over.
  void Announce(Sequence* sequence, StepId step, int32_t end);
  void AllIsRun(SequenceIndex index);
  void EndSend(const Sequence& sequence, RequestState end, const Status& why);

  void LimitByItl(Draft* draft);
  void PlanPrefills(Draft* draft);
  // Tokens of the next row of a sequence in prefill; 0: none in this step.
  int32_t ChunkFor(const Sequence& sequence, const Draft& draft) const;
  // False when a window has to wait for blocks of steps in flight.
  bool PlanChunk(SequenceIndex index, int32_t num_tokens, Draft* draft);
  void AddJoin(SequenceIndex index, StepPlan* plan);
  void AddRow(SequenceIndex index, int32_t num_tokens, Draft* draft);
  // Makes room for one more token, at the cost of later requests if need be.
  Blocks EnsureBlocks(SequenceIndex index, Draft* draft);
  // The request that gives way when `index` needs blocks; none when it has to wait instead.
  std::optional<SequenceIndex> PickVictim(SequenceIndex index) const;
  std::optional<SequenceIndex> LastAdmittedVictim(SequenceIndex index) const;
  std::optional<SequenceIndex> LeastRecomputeVictim(SequenceIndex index) const;
  // Tokens that a sequence may have to run again if it gives up its blocks now: all but those whose
  // state others keep stored.
  int64_t RecomputeTokens(const Sequence& sequence) const;
  void Preempt(SequenceIndex index);
  // Takes a sequence out of its slot, and off the list of those in its state.
  void LeaveSlot(SequenceIndex index);
  void Move(Sequence* sequence, RequestState to);
  SequenceBlocks& BlocksOf(const Sequence& sequence) {
    return slots_[static_cast<size_t>(sequence.slot.value())].blocks;
  }
  const SequenceBlocks& BlocksOf(const Sequence& sequence) const {
    return slots_[static_cast<size_t>(sequence.slot.value())].blocks;
  }
  Flight& FlightAt(int32_t age) {
    return flights_[static_cast<size_t>(flights_head_ + age) % flights_.size()];
  }
  const Flight& FlightAt(int32_t age) const {
    return flights_[static_cast<size_t>(flights_head_ + age) % flights_.size()];
  }
  void CommitRow(const FlightRow& row, const StepResult& result, size_t row_index);
  Status CheckSequences() const;
  Status CheckHandoffs() const;

  const SchedulerConfig config_;
  const int32_t max_context_tokens_;
  HandoffPort* const port_;  // or null
  StatePools pools_;
  HandoffLedger ledger_;
  std::unique_ptr<PrefixCache> cache_;
  SequenceStore store_;
  std::vector<SequenceIndex> awaiting_;     // in state kAwaitingPrefix
  std::vector<SequenceIndex> awaiting_kv_;  // in the order in which they left the queue
  std::vector<SequenceIndex> sending_;
  HandoffStats handoff_;                  // counters and ready_peers
  StepPlan scratch_;                      // takes the table entries of a fetch
  std::vector<SequenceIndex> returning_;  // scratch of DescribePresent
  std::vector<Slot> slots_;
  std::vector<SlotId> free_slots_;  // last out first
  // In order of first admission; under kLastAdmitted of the last admission.
  std::vector<SequenceIndex> running_;
  std::vector<SlotId> pending_leaves_;  // for the next plan
  std::vector<Flight> flights_;         // ring of pipeline_depth + 1
  int32_t flights_head_ = 0;
  int32_t flights_count_ = 0;
  StepId last_step_;       // last submitted
  bool planning_ = false;  // a plan is out, neither submitted nor refused
  int64_t preemptions_ = 0;
  uint64_t admissions_ = 0;  // first ones
  StepOutcome outcome_;

  CostModel cost_;
  FinishPredictor predictor_;
  AdmissionShare share_;
  std::optional<DeadlineRefusal> refusal_;
  TimeNs last_finished_ = 0;  // of the step committed last
  int32_t itl_prefill_tokens_ = 0;
};

}  // namespace tandem
