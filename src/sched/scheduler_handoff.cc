#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace tandem {

HandoffStats Scheduler::handoff_stats() const {
  HandoffStats stats = handoff_;
  stats.requests_awaiting_kv = awaiting_kv();
  stats.requests_sending = sending();
  stats.open = open_handoffs();
  return stats;
}

// ---------------------------------------------------------------- the decode node

bool Scheduler::MayFetch() const {
  return port_ != nullptr && handoff_.ready_peers > 0 && awaiting_kv() < config_.fetch.max_fetches;
}

bool Scheduler::WantsFetch(const Sequence& s, const PrefixHit& hit) const {
  if (port_ == nullptr || handoff_.ready_peers == 0 || config_.fetch.max_fetches == 0) return false;
  // What was preempted knows more than its prompt, and finds most of it in the prefix cache; log
  // probabilities of a prompt need its logits.
  if (s.state != RequestState::kQueued || s.request.send || s.request.prompt_logprobs) return false;
  return s.fetches_failed < config_.fetch.max_attempts &&
         s.prompt_tokens - 1 - hit.tokens >= config_.fetch.min_tokens;
}

bool Scheduler::StartFetch(SequenceIndex index, const PrefixHit& hit, TimeNs now) {
  if (!MayFetch()) return false;
  scratch_.Clear();  // the executor learns of the blocks when the sequence joins
  if (!ReserveFor(store_.at(index), hit, &scratch_)) return false;
  TakeSlot(index, now);
  Sequence& s = store_.at(index);
  const int32_t end = s.prompt_tokens - 1;
  // All known tokens are promised, and no group has a window that waits for its own blocks.
  TANDEM_CHECK(pools_.Grow(&BlocksOf(s), end, s.slot, &scratch_) == Growth::kDone);
  Move(&s, RequestState::kAwaitingKv);
  awaiting_kv_.push_back(index);
  FetchOrder order;
  order.request = s.request.id;
  order.tokens.assign(s.tokens.begin(), s.tokens.begin() + end);
  order.have = s.next_position;
  order.blocks = BlocksBetween(s, order.have, end);
  order.cache_salt = s.request.cache_salt;
  order.id = s.fetch = ledger_.OpenFetch({index, s.serial}, order.blocks);
  s.next_position = s.expected_cached = end;
  ++s.fetches;
  ++handoff_.fetches;
  port_->Fetch(std::move(order));
  return true;
}

void Scheduler::JoinArrived() {
  for (size_t i = 0; i < awaiting_kv_.size() && running() < config_.max_running;) {
    const SequenceIndex index = awaiting_kv_[i];
    if (!store_.at(index).fetch_arrived) {
      ++i;
      continue;
    }
    awaiting_kv_.erase(awaiting_kv_.begin() + static_cast<int64_t>(i));
    Enter(index);
  }
}

void Scheduler::GiveUpFetch(SequenceIndex index) {
  Sequence& s = store_.at(index);
  if (ledger_.Settle(s.fetch)) port_->CancelFetch(s.fetch);
  LeaveSlot(index);
  s.fetch = FetchId();
  s.fetch_arrived = false;
  s.next_position = 0;
  s.computed = 0;
  s.expected_cached = s.cached;
  Move(&s, RequestState::kQueued);
  store_.Requeue(index);
}

bool Scheduler::DropLastFetch() {
  if (awaiting_kv_.empty()) return false;
  GiveUpFetch(awaiting_kv_.back());
  ++handoff_.fetches_given_up;
  return true;
}

void Scheduler::FetchArrived(FetchId fetch) {
  const std::optional<HandoffLedger::Owner> owner = ledger_.Settle(fetch);
  if (!owner) return;
  Sequence& s = store_.at(owner->sequence);
  TANDEM_CHECK_EQ(s.serial, owner->serial);  // whoever leaves settles
  s.fetch_arrived = true;
  s.computed = s.next_position;
  ++handoff_.fetched_requests;
  handoff_.fetched_tokens += s.next_position - s.cached;
  KeepCommitted(s, s.next_position, StepId(0));
  WakeWaiters(s.serial, s.next_position);
}

void Scheduler::FetchFailed(FetchId fetch) {
  const std::optional<HandoffLedger::Owner> owner = ledger_.Settle(fetch);
  if (!owner) return;
  TANDEM_CHECK_EQ(store_.at(owner->sequence).serial, owner->serial);
  GiveUpFetch(owner->sequence);
  ++store_.at(owner->sequence).fetches_failed;
  ++handoff_.fetches_failed;
}

void Scheduler::FetchDrained(FetchId fetch) {
  FetchFailed(fetch);  // unless it has arrived, nothing more will
  ledger_.DrainFetch(fetch);
}

void Scheduler::AppendTable(const Sequence& s, StepPlan* plan) const {
  for (int32_t g = 0; g < pools_.num_groups(); ++g) {
    const BlockTable& table = BlocksOf(s).table(GroupId(g));
    for (int32_t e = table.first_held(); e < table.num_blocks(); ++e) {
      plan->appends.push_back({s.slot, GroupId(g), table.at(e)});
    }
  }
}

std::vector<std::vector<BlockId>> Scheduler::BlocksBetween(const Sequence& s, int32_t begin,
                                                           int32_t end) const {
  std::vector<std::vector<BlockId>> blocks(static_cast<size_t>(pools_.num_groups()));
  for (int32_t g = 0; g < pools_.num_groups(); ++g) {
    const StateGroup& group = pools_.group(GroupId(g));
    const BlockTable& table = BlocksOf(s).table(GroupId(g));
    for (int64_t e = begin / group.tokens_per_block; e < group.BlocksFor(end); ++e) {
      blocks[static_cast<size_t>(g)].push_back(table.at(static_cast<int32_t>(e)));
    }
  }
  return blocks;
}

// ---------------------------------------------------------------- the prefill node

void Scheduler::Announce(Sequence* s, StepId step, int32_t end) {
  const SendId send = *s->request.send;
  if (end <= s->announced || !ledger_.has_send(send)) return;
  SendChunk chunk{send, step, s->announced, end, BlocksBetween(*s, s->announced, end)};
  for (int32_t g = 0; g < pools_.num_groups(); ++g) {
    const StateGroup& group = pools_.group(GroupId(g));
    const std::vector<BlockId>& blocks = chunk.blocks[static_cast<size_t>(g)];
    // The block that the chunk before ended in has been lent with it.
    const bool again = s->announced % group.tokens_per_block != 0;
    for (size_t i = again ? 1 : 0; i < blocks.size(); ++i) {
      ledger_.Lend(send, GroupId(g), blocks[i]);
    }
  }
  s->announced = end;
  port_->ChunkSubmitted(std::move(chunk));
}

void Scheduler::AllIsRun(SequenceIndex index) {
  LeaveSlot(index);
  Sequence& s = store_.at(index);
  Move(&s, RequestState::kSending);
  sending_.push_back(index);
  if (s.delivered) outcome_.sent.push_back(index);
}

std::optional<SequenceIndex> Scheduler::SendDrained(SendId send, bool delivered) {
  const std::optional<HandoffLedger::Owner> owner = ledger_.DrainSend(send);
  if (!owner) return std::nullopt;
  Sequence* s = store_.FindSerial(owner->sequence, owner->serial);
  if (s == nullptr) return std::nullopt;  // ended before
  if (!delivered) return owner->sequence;
  s->delivered = true;
  if (s->state != RequestState::kSending) return std::nullopt;  // its last rows are in flight
  return owner->sequence;
}

void Scheduler::EndSend(const Sequence& s, RequestState end, const Status& why) {
  if (end == RequestState::kFinished) {
    ++handoff_.sends;
    return;
  }
  ++handoff_.sends_failed;
  if (!ledger_.has_send(*s.request.send)) return;  // it has drained
  port_->SendFailed(*s.request.send, end == RequestState::kCancelled
                                         ? CancelledError("the request was cancelled")
                                         : why);
}

}  // namespace tandem
