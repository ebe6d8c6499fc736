#include "sched/sequence_store.h"

#include <utility>

#include "base/check.h"

namespace tandem {
namespace {
constexpr SequenceIndex kNone{-1};
}  // namespace

SequenceStore::SequenceStore(int32_t capacity) : capacity_(capacity) {
  TANDEM_CHECK_GT(capacity, 0);
}

SequenceIndex SequenceStore::Add(Request request, int32_t outputs_max, TimeNs start_by) {
  TANDEM_CHECK_LT(size(), capacity_);
  if (free_.empty()) {
    free_.push_back(SequenceIndex(slab_size()));
    slab_.emplace_back();
  }
  const SequenceIndex index = free_.back();
  TANDEM_CHECK(by_id_.emplace(request.id, index).second);
  free_.pop_back();
  Sequence& s = at(index);
  s = Sequence();
  s.tokens = std::move(request.prompt);
  s.request = std::move(request);
  s.request.prompt = {};
  s.serial = ++last_serial_;
  s.prompt_tokens = s.known();
  s.outputs_max = outputs_max;
  s.start_by = start_by;
  s.times.arrival = s.request.arrival;
  SequenceIndex previous = queue_tail_;
  while (previous != kNone && at(previous).admission == 0 && at(previous).start_by > start_by) {
    previous = at(previous).queue_previous;
  }
  InsertBehind(previous, index);
  return index;
}

void SequenceStore::Remove(SequenceIndex index) {
  Sequence& s = at(index);
  TANDEM_CHECK_NE(s.serial, 0u);
  by_id_.erase(s.request.id);
  s = Sequence();
  free_.push_back(index);
}

std::optional<SequenceIndex> SequenceStore::Find(RequestId id) const {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return std::nullopt;
  return it->second;
}

Sequence* SequenceStore::FindSerial(SequenceIndex index, uint64_t serial) {
  Sequence& s = at(index);
  return s.serial == serial ? &s : nullptr;
}

void SequenceStore::InsertBehind(SequenceIndex previous, SequenceIndex index) {
  Sequence& s = at(index);
  s.queue_previous = previous;
  s.queue_next = previous == kNone ? queue_head_ : at(previous).queue_next;
  (previous == kNone ? queue_head_ : at(previous).queue_next) = index;
  (s.queue_next == kNone ? queue_tail_ : at(s.queue_next).queue_previous) = index;
  ++queue_size_;
}

void SequenceStore::PushHead(SequenceIndex index) { InsertBehind(kNone, index); }

void SequenceStore::InsertPreempted(SequenceIndex index) {
  SequenceIndex previous = kNone;
  SequenceIndex next = queue_head_;
  while (next != kNone && at(next).admission != 0 && at(next).admission < at(index).admission) {
    previous = next;
    next = at(next).queue_next;
  }
  InsertBehind(previous, index);
}

void SequenceStore::Requeue(SequenceIndex index) {
  const Sequence& s = at(index);
  SequenceIndex previous = kNone;
  for (SequenceIndex next = queue_head_; next != kNone; next = at(next).queue_next) {
    const Sequence& other = at(next);
    const bool before = other.admission != 0 || other.start_by < s.start_by ||
                        (other.start_by == s.start_by && other.serial < s.serial);
    if (!before) break;
    previous = next;
  }
  InsertBehind(previous, index);
}

void SequenceStore::Unlink(SequenceIndex index) {
  Sequence& s = at(index);
  (s.queue_previous == kNone ? queue_head_ : at(s.queue_previous).queue_next) = s.queue_next;
  (s.queue_next == kNone ? queue_tail_ : at(s.queue_next).queue_previous) = s.queue_previous;
  s.queue_next = s.queue_previous = kNone;
  --queue_size_;
}

Status SequenceStore::CheckIntegrity() const {
  std::vector<bool> queued(slab_.size(), false);
  int32_t count = 0;
  SequenceIndex previous = kNone;
  for (SequenceIndex i = queue_head_; i != kNone; i = at(i).queue_next) {
    if (++count > queue_size_) return InternalError("the queue is longer than {}", queue_size_);
    if (at(i).queue_previous != previous) return InternalError("queue link of entry {}", i);
    queued[static_cast<size_t>(i.value())] = true;
    previous = i;
  }
  if (count != queue_size_ || previous != queue_tail_) {
    return InternalError("the queue has {} entries, {} counted", count, queue_size_);
  }
  size_t live = 0;
  for (int32_t i = 0; i < slab_size(); ++i) {
    const Sequence& s = at(SequenceIndex(i));
    const bool in_queue = queued[static_cast<size_t>(i)];
    if (s.serial == 0) {
      if (in_queue) return InternalError("free entry {} is queued", i);
      continue;
    }
    ++live;
    if (IsEnd(s.state) || IsQueued(s.state) != in_queue) {
      return InternalError("entry {} is {} and {} the queue", i, NameOf(s.state),
                           in_queue ? "on" : "off");
    }
    if (Find(s.request.id) != SequenceIndex(i)) return InternalError("entry {} is not found", i);
  }
  if (live + free_.size() != slab_.size() || live != by_id_.size()) {
    return InternalError("{} live, {} free, {} known entries of {}", live, free_.size(),
                         by_id_.size(), slab_.size());
  }
  return OkStatus();
}

}  // namespace tandem
