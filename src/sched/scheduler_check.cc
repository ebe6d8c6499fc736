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
    if (IsRunning(s.state) != (s.slot != kNoSlot)) {
      return InternalError("sequence {} is {} with slot {}", i, NameOf(s.state), s.slot);
    }
    if (IsRunning(s.state) &&
        slots_[static_cast<size_t>(s.slot.value())].sequence != SequenceIndex(i)) {
      return InternalError("slot {} does not hold sequence {}", s.slot, i);
    }
    const bool decode = s.state == RequestState::kDecode;
    if (s.outputs() > s.outputs_max || s.next_position >= s.length() ||
        (decode && s.length() - s.next_position != 1) ||
        (s.state == RequestState::kPrefill && s.samples_in_flight != 0)) {
      return InternalError("sequence {} is {} at position {} of {}", i, NameOf(s.state),
                           s.next_position, s.length());
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
  if (taken != running_.size() || taken + free_slots_.size() != slots_.size() ||
      running() + waiting() != store_.size()) {
    return InternalError("{} running, {} waiting, {} slots taken, {} free, {} sequences", running(),
                         waiting(), taken, free_slots_.size(), store_.size());
  }
  for (SequenceIndex index : awaiting_) {
    const Sequence& s = store_.at(index);
    const auto owns = [&](SequenceIndex i) { return store_.at(i).serial == s.awaited_owner; };
    if (s.state != RequestState::kAwaitingPrefix ||
        std::none_of(running_.begin(), running_.end(), owns)) {
      return InternalError("sequence {} is {} and awaits a prefix of {}, which does not run", index,
                           NameOf(s.state), s.awaited_owner);
    }
  }
  return cache_ != nullptr ? cache_->CheckIntegrity(blocks) : pools_.CheckIntegrity(blocks);
}

}  // namespace tandem
