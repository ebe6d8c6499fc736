#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/cost.h"
#include "sched/scheduler.h"

namespace tandem {
namespace {

// Of one prompt token, before any step has shown what it costs. Only ratios matter then.
constexpr double kTokenSecondsGuess = 1e-3;

}  // namespace

double Scheduler::RecomputeSeconds(int64_t begin, int64_t end) const {
  const LinearCost law = cost_.prefill();
  const auto tokens = static_cast<double>(end - begin);
  if (law.token_ns <= 0 && law.pair_ns <= 0) return tokens * kTokenSecondsGuess;
  const auto pairs = static_cast<double>(CausalPairs(end - begin, begin));
  return (law.token_ns * tokens + law.pair_ns * pairs) / static_cast<double>(kNsPerS);
}

PrefixIdentity Scheduler::IdentityOf(const Request& request) const {
  PrefixIdentity identity = config_.prefix_cache->identity;
  identity.tenant_salt = request.cache_salt;
  return identity;
}

PrefixHit Scheduler::FindPrefix(const Request& request, std::span<const TokenId> tokens) const {
  // Log probabilities of the prompt need every one of its positions to be run.
  if (cache_ == nullptr || request.prompt_logprobs) return PrefixHit();
  return cache_->Find(IdentityOf(request), tokens);
}

bool Scheduler::WillBeComputed(const PrefixHit& hit) const {
  if (hit.pending_tokens <= hit.tokens) return false;
  const auto computes = [&](SequenceIndex index) {
    const Sequence& s = store_.at(index);
    return s.serial == hit.pending_owner && s.computed < hit.pending_tokens;
  };
  return std::any_of(running_.begin(), running_.end(), computes) ||
         std::any_of(awaiting_kv_.begin(), awaiting_kv_.end(), computes);
}

void Scheduler::AwaitPrefix(SequenceIndex index, const PrefixHit& hit) {
  Sequence& s = store_.at(index);
  store_.Unlink(index);
  Move(&s, RequestState::kAwaitingPrefix);
  s.awaited_owner = hit.pending_owner;
  s.awaited_tokens = hit.pending_tokens;
  s.expected_cached = static_cast<int32_t>(hit.pending_tokens);
  s.expected_held = s.expected_cached;
  awaiting_.push_back(index);
}

void Scheduler::WakeWaiters(uint64_t owner, int64_t committed) {
  std::erase_if(awaiting_, [&](SequenceIndex index) {
    Sequence& s = store_.at(index);
    if (s.awaited_owner != owner || s.awaited_tokens > committed) return false;
    Move(&s, RequestState::kQueued);
    store_.Requeue(index);
    return true;
  });
}

void Scheduler::KeepCommitted(const Sequence& s, int64_t committed, StepId done) {
  if (cache_ != nullptr) {
    cache_->Commit(&BlocksOf(s), s.tokens, committed, done);
  } else {
    pools_.ReleasePassed(&BlocksOf(s), committed, done);
  }
}

int64_t Scheduler::RecomputeTokens(const Sequence& s) const {
  if (cache_ == nullptr || s.request.prompt_logprobs) return s.next_position;
  return s.next_position - cache_->TokensHeldByOthers(BlocksOf(s));
}

void Scheduler::GiveUpBlocks(const Sequence& s) {
  if (cache_ == nullptr) return pools_.Release(&BlocksOf(s), s.last_step);
  cache_->Release(&BlocksOf(s), s.tokens, s.last_step);
  WakeWaiters(s.serial, INT64_MAX);
}

void Scheduler::UndoJoins(StepPlan* plan) {
  for (const SlotJoin& join : plan->joins) {
    const SequenceIndex index = slots_[static_cast<size_t>(join.slot.value())].sequence;
    store_.at(index).joined = false;
    Preempt(index);
  }
}

}  // namespace tandem
