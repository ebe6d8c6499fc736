#include <algorithm>

#include "sched/scheduler.h"

namespace tandem {

Status Scheduler::CheckSequences() const {
  std::vector<int32_t> rows(static_cast<size_t>(store_.slab_size()), 0);
  std::vector<int32_t> samples(rows.size(), 0);
  for (int32_t age = 0; age < flights_count_; ++age) {
    for (const FlightRow& row : FlightAt(age).rows) {
      const auto i = static_cast<size_t>(row.sequence.value());
      if (store_.at(row.sequence).serial != row.serial) continue;
      ++rows[i];
      samples[i] += row.sample;
    }
  }
  for (int32_t i = 0; i < store_.slab_size(); ++i) {
    const Sequence& s = store_.at(SequenceIndex(i));
    if (s.serial == 0) continue;
    if (rows[static_cast<size_t>(i)] != s.rows_in_flight ||
        samples[static_cast<size_t>(i)] != s.samples_in_flight) {
      return InternalError("sequence {} counts {} rows in flight, {} found", i, s.rows_in_flight,
                           rows[static_cast<size_t>(i)]);
    }
    if (HoldsSlot(s.state) != (s.slot != kNoSlot)) {
      return InternalError("sequence {} is {} with slot {}", i, NameOf(s.state), s.slot);
    }
    if (HoldsSlot(s.state) &&
        slots_[static_cast<size_t>(s.slot.value())].sequence != SequenceIndex(i)) {
      return InternalError("slot {} does not hold sequence {}", s.slot, i);
    }
    const bool decode = s.state == RequestState::kDecode;
    const bool all_is_run = s.next_position == s.length() && s.request.send;
    if (s.outputs() > s.outputs_max || (s.next_position >= s.length() && !all_is_run) ||
        (decode && s.length() - s.next_position != 1) ||
        (s.state == RequestState::kPrefill && s.samples_in_flight != 0)) {
      return InternalError("sequence {} is {} at position {} of {}", i, NameOf(s.state),
                           s.next_position, s.length());
    }
  }
  return OkStatus();
}

Status Scheduler::CheckHandoffs() const {
  TANDEM_RETURN_IF_ERROR(ledger_.CheckIntegrity());
  if (running() > config_.max_running || awaiting_kv() > config_.fetch.max_fetches) {
    return InternalError("{} run and {} await their state, {} and {} may", running(), awaiting_kv(),
                         config_.max_running, config_.fetch.max_fetches);
  }
  for (const SequenceIndex index : awaiting_kv_) {
    const Sequence& s = store_.at(index);
    if (s.state != RequestState::kAwaitingKv || s.joined ||
        BlocksOf(s).tokens() != s.prompt_tokens - 1 ||
        s.fetch_arrived != (s.computed == s.prompt_tokens - 1)) {
      return InternalError("sequence {} is {} and awaits its state in blocks for {} tokens", index,
                           NameOf(s.state), BlocksOf(s).tokens());
    }
  }
  for (const SequenceIndex index : sending_) {
    const Sequence& s = store_.at(index);
    if (s.state != RequestState::kSending || s.announced != s.known() ||
        !ledger_.has_send(*s.request.send)) {
      return InternalError("sequence {} is {} and sends {} of {} tokens", index, NameOf(s.state),
                           s.announced, s.known());
    }
  }
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  TANDEM_RETURN_IF_ERROR(store_.CheckIntegrity());
  TANDEM_RETURN_IF_ERROR(CheckSequences());
  std::vector<const SequenceBlocks*> blocks;
  size_t taken = 0;
  for (const Slot& slot : slots_) {
    blocks.push_back(&slot.blocks);
    taken += slot.sequence != SequenceIndex(-1);
  }
  if (taken != running_.size() + awaiting_kv_.size() ||
      taken + free_slots_.size() != slots_.size() ||
      running() + waiting() + sending() != store_.size()) {
    return InternalError(
        "{} running, {} waiting, {} sending, {} slots taken, {} free, {} sequences", running(),
        waiting(), sending(), taken, free_slots_.size(), store_.size());
  }
  TANDEM_RETURN_IF_ERROR(CheckHandoffs());
  for (SequenceIndex index : awaiting_) {
    const Sequence& s = store_.at(index);
    const auto owns = [&](SequenceIndex i) { return store_.at(i).serial == s.awaited_owner; };
    if (s.state != RequestState::kAwaitingPrefix ||
        (std::none_of(running_.begin(), running_.end(), owns) &&
         std::none_of(awaiting_kv_.begin(), awaiting_kv_.end(), owns))) {
      return InternalError("sequence {} is {} and awaits a prefix of {}, which does not run", index,
                           NameOf(s.state), s.awaited_owner);
    }
  }
  return cache_ != nullptr ? cache_->CheckIntegrity(blocks) : pools_.CheckIntegrity(blocks);
}

}  // namespace tandem
