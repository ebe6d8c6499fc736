#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace tandem {

bool Scheduler::PlanStep(TimeNs now, StepPlan* plan) {
  TANDEM_CHECK(!planning_);
  TANDEM_CHECK_LE(flights_count_, config_.pipeline_depth);
  plan->Clear();
  Draft draft;
  draft.plan = plan;
  draft.closed = config_.policy == Policy::kStatic && !running_.empty();
  draft.flight = &FlightAt(flights_count_);
  // Policies other than chunked run whole prompts, whatever they add up to.
  const bool chunked = config_.policy == Policy::kChunked;
  draft.budget_left = chunked ? config_.token_budget : INT32_MAX;
  plan->step = StepId(last_step_.value() + 1);
  draft.flight->step = plan->step;
  draft.flight->planned = now;
  draft.flight->rows.clear();
  draft.flight->terms = StepTerms();
  if (cache_ != nullptr) cache_->Advance(now);

  PlanDecodes(&draft);
  if (!draft.closed) JoinArrived();
  AdmitFromQueue(now, &draft);
  LimitByItl(&draft);
  PlanPrefills(&draft);

  if (plan->rows.empty()) {
    UndoJoins(plan);
    plan->Clear();
    return false;
  }
  plan->leaves.assign(pending_leaves_.begin(), pending_leaves_.end());
  pending_leaves_.clear();
  planning_ = true;
  return true;
}

void Scheduler::PlanDecodes(Draft* draft) {
  for (size_t i = 0; i < running_.size();) {
    const SequenceIndex index = running_[i];
    const Sequence& s = store_.at(index);
    if (s.state != RequestState::kDecode || !s.runnable()) {
      ++i;
      continue;
    }
    const Blocks blocks = EnsureBlocks(index, draft);
    if (blocks == Blocks::kPreempted) continue;  // running_[i] is the next one now
    if (blocks == Blocks::kReady) AddRow(index, 1, draft);
    ++i;
  }
}

Scheduler::Blocks Scheduler::EnsureBlocks(SequenceIndex index, Draft* draft) {
  for (;;) {
    const Sequence& s = store_.at(index);
    const Growth growth = pools_.Grow(&BlocksOf(s), s.next_position + 1, s.slot, draft->plan);
    if (growth == Growth::kDone) return Blocks::kReady;
    // Whoever lacks a block comes before whoever has not started, however little that one needs.
    draft->admit = false;
    if (growth == Growth::kWait) return Blocks::kWait;
    if (DropLastFetch()) continue;
    const std::optional<SequenceIndex> victim = PickVictim(index);
    if (!victim) return Blocks::kWait;
    Preempt(*victim);
    if (*victim == index) return Blocks::kPreempted;
  }
}

std::optional<SequenceIndex> Scheduler::PickVictim(SequenceIndex index) const {
  return config_.preemption == PreemptionRule::kLastAdmitted ? LastAdmittedVictim(index)
                                                             : LeastRecomputeVictim(index);
}

std::optional<SequenceIndex> Scheduler::LastAdmittedVictim(SequenceIndex index) const {
  const auto preemptible = [this](SequenceIndex i) { return !FullyReserved(store_.at(i)); };
  const auto last = std::find_if(running_.rbegin(), running_.rend(), preemptible);
  if (last == running_.rend()) return std::nullopt;
  if (*last != index) return *last;
  // The last one itself. Its blocks help only another request that grows on demand; if there is
  // none, it keeps them and waits for one that does not to finish.
  const bool alone = std::find_if(last + 1, running_.rend(), preemptible) == running_.rend();
  return alone ? std::nullopt : std::optional(index);
}

std::optional<SequenceIndex> Scheduler::LeastRecomputeVictim(SequenceIndex index) const {
  // Nobody gives way to a request that entered later, so the one that entered first always goes on,
  // and whoever finds no victim waits for one that entered earlier, with what it has.
  std::optional<SequenceIndex> best;
  int64_t least = INT64_MAX;
  for (auto i = running_.rbegin(); i != running_.rend() && *i != index; ++i) {
    const Sequence& s = store_.at(*i);
    if (FullyReserved(s)) continue;
    const int64_t tokens = RecomputeTokens(s);
    if (tokens >= least) continue;
    least = tokens;
    best = *i;
  }
  return best;
}

bool Scheduler::MayAdmit(const Draft& draft) const {
  return draft.admit && !draft.closed && !store_.queue_empty() &&
         (running() < config_.max_running || MayFetch());
}

void Scheduler::AdmitFromQueue(TimeNs now, Draft* draft) {
  while (MayAdmit(*draft)) {
    const SequenceIndex index = store_.queue_head();
    const Sequence& s = store_.at(index);
    // A preempted sequence comes back once all its tokens are known.
    if (s.rows_in_flight > 0) return;
    const PrefixHit hit = FindPrefix(s.request, s.tokens);
    // One that has been preempted depends on nobody again.
    if (s.state == RequestState::kQueued && WillBeComputed(hit)) {
      AwaitPrefix(index, hit);
      continue;
    }
    if (WantsFetch(s, hit)) {
      if (!StartFetch(index, hit, now)) return;
      continue;
    }
    if (running() >= config_.max_running || !ReserveFor(s, hit, draft->plan)) return;
    Admit(index, now, draft->plan);
  }
}

bool Scheduler::ReserveFor(const Sequence& s, const PrefixHit& hit, StepPlan* plan) {
  const SlotId slot = free_slots_.back();
  SequenceBlocks* blocks = &slots_[static_cast<size_t>(slot.value())].blocks;
  const int64_t tokens = TokensToReserve(s);
  if (cache_ == nullptr) return pools_.Reserve(blocks, tokens);
  return cache_->Admit(IdentityOf(s.request), hit, s.tokens, tokens, s.serial, slot, blocks, plan);
}

void Scheduler::Admit(SequenceIndex index, TimeNs now, StepPlan* plan) {
  TakeSlot(index, now);
  Enter(index);
  // What is restored enters the table in this plan, also when the first row comes in a later one.
  if (store_.at(index).next_position > 0) AddJoin(index, plan);
}

void Scheduler::TakeSlot(SequenceIndex index, TimeNs now) {
  Sequence& s = store_.at(index);
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[static_cast<size_t>(s.slot.value())].sequence = index;
  store_.Unlink(index);
  s.next_position = static_cast<int32_t>(BlocksOf(s).tokens());
  if (s.state != RequestState::kQueued) return;
  s.cached = s.next_position;
  if (s.fetches == 0) s.times.admitted = now;
}

void Scheduler::Enter(SequenceIndex index) {
  Sequence& s = store_.at(index);
  if (s.admission == 0) s.admission = ++admissions_;
  if (s.state == RequestState::kQueued && s.fetches_failed > 0) ++handoff_.fallbacks;
  Move(&s, RequestState::kPrefill);
  auto place = running_.end();
  if (config_.preemption == PreemptionRule::kLeastRecompute) {
    const auto earlier = [this](uint64_t admission, SequenceIndex i) {
      return admission < store_.at(i).admission;
    };
    place = std::upper_bound(running_.begin(), running_.end(), s.admission, earlier);
  }
  running_.insert(place, index);
  s.tokens.reserve(static_cast<size_t>(TokensToReserve(s)) + 1);
}

void Scheduler::LimitByItl(Draft* draft) {
  if (config_.itl_target == 0 || draft->flight->terms.decode_rows == 0) return;
  draft->limit_ns = static_cast<double>(config_.itl_target) / cost_.Overrun();
}

void Scheduler::PlanPrefills(Draft* draft) {
  for (SequenceIndex index : running_) {
    const Sequence& s = store_.at(index);
    if (s.state != RequestState::kPrefill || s.next_position == s.known()) continue;
    const int32_t tokens = ChunkFor(s, *draft);
    if (tokens == 0 || !PlanChunk(index, tokens, draft)) break;
  }
  const StepTerms& terms = draft->flight->terms;
  if (draft->limit_ns > 0 && terms.prefill_tokens > 0) {
    itl_prefill_tokens_ = static_cast<int32_t>(terms.prefill_tokens);
  }
}

int32_t Scheduler::ChunkFor(const Sequence& s, const Draft& draft) const {
  const int32_t rest = s.known() - s.next_position;
  if (config_.policy != Policy::kChunked) return rest;
  const int32_t most = std::min({config_.chunk_tokens, draft.budget_left, rest});
  if (draft.limit_ns == 0 || most == 0) return most;
  const StepTerms& terms = draft.flight->terms;
  const int32_t fits = cost_.LargestChunk(terms, s.next_position, most, draft.limit_ns);
  const int64_t least = kLeastPrefillTokens - terms.prefill_tokens;
  return std::max(fits, static_cast<int32_t>(std::clamp<int64_t>(least, 0, most)));
}

bool Scheduler::PlanChunk(SequenceIndex index, int32_t num_tokens, Draft* draft) {
  const Sequence& s = store_.at(index);
  std::vector<BlockAppend>& appends = draft->plan->appends;
  const size_t appended = appends.size();
  if (!s.joined) AppendTable(s, draft->plan);
  const Growth growth =
      pools_.Grow(&BlocksOf(s), s.next_position + num_tokens, s.slot, draft->plan);
  TANDEM_CHECK(growth != Growth::kShort);  // all known tokens are promised
  if (growth == Growth::kWait) {
    appends.resize(appended);
    return false;
  }
  if (!s.joined) AddJoin(index, draft->plan);
  AddRow(index, num_tokens, draft);
  return true;
}

void Scheduler::AddJoin(SequenceIndex index, StepPlan* plan) {
  Sequence& s = store_.at(index);
  s.joined = true;
  SlotJoin join{.slot = s.slot,
                .request = s.request.id,
                .sample_index = s.request.sample_index,
                .sampling = s.request.sampling,
                .logit_bias = s.request.logit_bias,
                .prompt_tokens = s.prompt_tokens};
  if (join.sampling.min_tokens > 0) join.stop_tokens = s.request.stop_tokens;
  if (s.next_position > 0) {
    join.restored_begin = static_cast<int32_t>(plan->tokens.size());
    join.num_restored = s.next_position;
    plan->tokens.insert(plan->tokens.end(), s.tokens.begin(), s.tokens.begin() + s.next_position);
  }
  plan->joins.push_back(std::move(join));
}

void Scheduler::AddRow(SequenceIndex index, int32_t num_tokens, Draft* draft) {
  Sequence& s = store_.at(index);
  StepPlan& plan = *draft->plan;
  PlanRow row;
  row.slot = s.slot;
  row.position = s.next_position;
  row.num_tokens = num_tokens;
  if (s.next_position < s.known()) {
    row.tokens_begin = static_cast<int32_t>(plan.tokens.size());
    const auto begin = s.tokens.begin() + s.next_position;
    plan.tokens.insert(plan.tokens.end(), begin, begin + num_tokens);
  } else {
    TANDEM_CHECK_EQ(num_tokens, 1);
    row.tokens_begin = -1;
    row.from_step = s.sampled_step;
    row.from_row = s.sampled_row;
  }
  s.next_position += num_tokens;
  row.sample = s.next_position == s.length() && !s.request.send;
  const bool prefill = s.state == RequestState::kPrefill;
  if (row.sample) {
    s.sampled_step = plan.step;
    s.sampled_row = static_cast<int32_t>(plan.rows.size());
    ++s.samples_in_flight;
    Move(&s, RequestState::kDecode);
  }
  ++s.rows_in_flight;
  draft->budget_left -= num_tokens;
  if (prefill) {
    draft->flight->terms.AddPrefill(row.position, num_tokens);
  } else {
    draft->flight->terms.AddDecode(row.position);
  }
  row.score = s.ScoresWanted(row.position, s.next_position);
  if (row.score > 0) {
    s.scored = s.next_position;
    if (!row.sample) row.next_token = s.tokens[static_cast<size_t>(s.next_position)];
  }
  const SamplingParams& sampling = s.request.sampling;
  const int32_t entries = sampling.wants_logprobs() ? 1 + sampling.top_logprobs : 0;
  draft->flight->rows.push_back({index, s.serial, s.slot, row.position, num_tokens, prefill,
                                 row.sample, row.score * entries, row.sample ? entries : 0});
  plan.rows.push_back(row);
}

}  // namespace tandem
