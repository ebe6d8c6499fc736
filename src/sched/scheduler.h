// What: Scheduler: turns requests and results into StepPlans: bounded queue, admission by
//   reservation, three batching policies in one code path (spec S2), token budgets, preemption,
//   deadlines, two-phase release. Every step runs the decode rows first, then admits from the
//   queue's head while places and blocks last, then runs prompts in admission order.
// Not here: submitting, outputs, when a request has finished (engine/); what a step costs
//   (cost_model.h), how long a request takes (finish_predictor.h).
// Threads: the engine's thread. No clock, no device; equal calls give equal plans.
// Invariants (CheckIntegrity):
//   - one code path for every pipeline depth: a row's token is a literal when it is known at
//     planning, else the output of the row in flight that chooses it;
//   - a request that is promised all it can ever need is never preempted and never waits for a
//     block;
//   - of the others, the one that entered first is never preempted, so each step sequence makes
//     progress;
//   - a block leaves for another sequence only after the last submitted step that touches it has
//     completed.
// Cost: a step costs O(running + tokens planned + blocks moved), whatever waits in the queue; a
//   steady decode step allocates nothing. An arrival with a deadline costs O((running + waiting) *
//   running).
// Based on: Orca (iteration-level batching), Sarathi-Serve (chunked prefill), spec S2-S9;
//   docs/scheduler.md, docs/decisions/002. In parts by reason: scheduler.cc (the life of a
//   sequence), scheduler_plan.cc, scheduler_prefix.cc, scheduler_deadlines.cc, scheduler_commit.cc,
//   scheduler_validate.cc, scheduler_check.cc.
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
#include "kv/prefix_cache.h"
#include "kv/state_pools.h"
#include "sched/admission_share.h"
#include "sched/cost_model.h"
#include "sched/finish_predictor.h"
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
  std::span<const SequenceIndex> running_sequences() const { return running_; }
  // Those that await a prefix included.
  int32_t waiting() const { return store_.queue_size() + awaiting_prefix(); }
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
    StepTerms terms;
    std::vector<FlightRow> rows;
  };
  // The step in planning.
  struct Draft {
    StepPlan* plan = nullptr;
    Flight* flight = nullptr;
    int32_t budget_left = 0;  // tokens
    double limit_ns = 0;      // the step may take so long; 0: no limit
    bool admit = true;
  };
  enum class Blocks : uint8_t { kReady, kWait, kPreempted };

  Scheduler(const SchedulerConfig& config, int32_t max_context_tokens);

  // Whether the request is promised all it can ever need.
  bool FullyReserved(const Sequence& sequence) const;
  int64_t TokensToReserve(const Sequence& sequence) const;

  // Deadlines (scheduler_deadlines.cc).
  // Decides by the deadlines of `request`; sets *start_by for the queue.
  Status CheckDeadlines(const Request& request, TimeNs now, TimeNs* start_by);
  Status JudgePrediction(const Request& request, TimeNs now, const Prediction& alone,
                         const Prediction& predicted);
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

  // The prefix cache (scheduler_prefix.cc). Without one there are no hits and no waiters.
  double RecomputeSeconds(int64_t begin, int64_t end) const;
  PrefixIdentity IdentityOf(const Request& request) const;
  // What is stored of the known tokens of a request.
  PrefixHit FindPrefix(const Request& request, std::span<const TokenId> tokens) const;
  // A running sequence is about to compute more of the prefix than the hit has.
  bool WillBeComputed(const PrefixHit& hit) const;
  // Takes a sequence off the queue until its owner has computed what `hit` says.
  void AwaitPrefix(SequenceIndex index, const PrefixHit& hit);
  // `owner` has committed so many tokens, or has left: who awaited that is queued again.
  void WakeWaiters(uint64_t owner, int64_t committed);
  void KeepCommitted(const Sequence& sequence, int64_t committed, StepId done);
  void GiveUpBlocks(const Sequence& sequence);
  // No row of the plan could run: sequences that it would have restored go back to the queue.
  void UndoJoins(StepPlan* plan);
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
  // Tokens that a sequence runs again if it gives up its blocks now.
  static int32_t RecomputeTokens(const Sequence& sequence) { return sequence.next_position; }
  void Preempt(SequenceIndex index);
  // Takes a running sequence out of its slot.
  void LeaveSlot(SequenceIndex index);
  void Move(Sequence* sequence, RequestState to);
  SequenceBlocks& BlocksOf(const Sequence& sequence) {
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

  const SchedulerConfig config_;
  const int32_t max_context_tokens_;
  StatePools pools_;
  std::unique_ptr<PrefixCache> cache_;
  SequenceStore store_;
  std::vector<SequenceIndex> awaiting_;  // in state kAwaitingPrefix
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
  int32_t itl_prefill_tokens_ = 0;
};

}  // namespace tandem
