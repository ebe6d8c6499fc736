// What: Sequence: one request on its way through the scheduler; SequenceStore: all of them in a
//   slab of fixed size, with the waiting queue threaded through it and a look-up by request id.
// Not here: decisions (scheduler.h).
// Threads: the engine's thread.
// Invariants (CheckIntegrity): every slab entry is free, waiting (on the queue exactly once, unless
//   it awaits a prefix or its state), running or sending; serials of live entries are unique and
//   never reused, so a reference {index, serial} to an ended sequence finds nothing.
// Cost: O(1), but a place in the queue takes a walk past those that wait for a later one;
//   allocation only in Add. The id look-up is never iterated, so its order decides nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "core/request.h"
#include "sched/request_state.h"

namespace tandem {

// An entry of the slab; reused after its sequence has ended.
using SequenceIndex = StrongId<struct SequenceIndexTag, int32_t>;

inline constexpr SlotId kNoSlot{-1};

struct Sequence {
  Request request;  // without the prompt, which is the beginning of `tokens`
  RequestState state = RequestState::kQueued;
  uint64_t serial = 0;          // 0: the entry is free
  std::vector<TokenId> tokens;  // known: prompt, then outputs
  int32_t prompt_tokens = 0;
  int32_t outputs_max = 0;  // stated limit, or what the context allows

  // Progress. Positions [0, next_position) are planned, [0, computed) have been run at some time
  // (preemption does not lower it).
  int32_t next_position = 0;
  int32_t computed = 0;
  // Prompt positions below it need no (further) log probability of their successor.
  int32_t scored = 0;
  int32_t rows_in_flight = 0;
  int32_t samples_in_flight = 0;  // of these rows, those that choose a token
  StepId sampled_step;            // the last row that chooses a token
  int32_t sampled_row = 0;
  StepId last_step;  // last submitted step with a row of this sequence
  int32_t recomputed = 0;
  int32_t cached = 0;  // positions that the first admission found in the prefix cache
  // While it has never been admitted: positions that it is expected to find then.
  int32_t expected_cached = 0;
  int32_t expected_held = 0;  // of these, in blocks that others hold
  int32_t preemptions = 0;

  // Waiting order: preempted sequences in the order of their first admission, then the others by
  // the latest time at which they should start.
  TimeNs start_by = 0;
  uint64_t admission = 0;  // 1, 2, ... in order of first admission; 0: never yet
  bool due = false;        // has a deadline or a target that counts

  // In state kAwaitingPrefix: who computes the prefix, by serial, and how many tokens of it.
  uint64_t awaited_owner = 0;
  int64_t awaited_tokens = 0;

  // Hand-off. In state kAwaitingKv: the attempt that it waits for, and whether its state is here.
  FetchId fetch;
  bool fetch_arrived = false;
  int32_t fetches = 0;         // ordered
  int32_t fetches_failed = 0;  // of these
  // With request.send: positions [0, announced) have been handed over; all of it has arrived.
  int32_t announced = 0;
  bool delivered = false;

  SlotId slot = kNoSlot;  // while it holds one (HoldsSlot)
  bool joined = false;    // the executor knows the slot (or will, with the step in planning)
  RequestTimes times;

  SequenceIndex queue_next{-1};
  SequenceIndex queue_previous{-1};

  int32_t known() const { return static_cast<int32_t>(tokens.size()); }
  int32_t outputs() const { return known() - prompt_tokens; }
  // Tokens that are known or will be once the steps in flight are over.
  int32_t length() const { return known() + samples_in_flight; }
  bool has_limit() const { return request.max_output_tokens.has_value(); }
  // Of the positions [begin, end), those whose successor's log probability is still to be reported.
  int32_t ScoresWanted(int32_t begin, int32_t end) const {
    if (!request.prompt_logprobs) return 0;
    return std::max(0, std::min(end, prompt_tokens - 1) - std::max(begin, scored));
  }
  // A token is left to run and its output is wanted.
  bool runnable() const {
    return next_position < length() && length() - prompt_tokens < outputs_max;
  }
};

class SequenceStore {
 public:
  explicit SequenceStore(int32_t capacity);

  // Takes an entry in state kQueued on the queue: behind all that should start at `start_by` or
  // earlier. Requires a free entry and an unused id.
  SequenceIndex Add(Request request, int32_t outputs_max, TimeNs start_by);
  // Frees an entry that is on no list.
  void Remove(SequenceIndex index);

  std::optional<SequenceIndex> Find(RequestId id) const;
  // The entry if it still holds the sequence `serial`, else null.
  Sequence* FindSerial(SequenceIndex index, uint64_t serial);

  Sequence& at(SequenceIndex index) { return slab_[static_cast<size_t>(index.value())]; }
  const Sequence& at(SequenceIndex index) const {
    return slab_[static_cast<size_t>(index.value())];
  }

  // The waiting queue, head first.
  bool queue_empty() const { return queue_size_ == 0; }
  int32_t queue_size() const { return queue_size_; }
  SequenceIndex queue_head() const { return queue_head_; }
  void PushHead(SequenceIndex index);
  // Puts a preempted sequence before all that were first admitted later, or never.
  void InsertPreempted(SequenceIndex index);
  // Puts a sequence that left the queue before its admission back where it would stand.
  void Requeue(SequenceIndex index);
  void Unlink(SequenceIndex index);

  int32_t capacity() const { return capacity_; }
  int32_t size() const {
    return static_cast<int32_t>(slab_.size()) - static_cast<int32_t>(free_.size());
  }
  // One past the largest index that ever was in use.
  int32_t slab_size() const { return static_cast<int32_t>(slab_.size()); }

  // Recounts slab, queue and look-up. O(slab_size()).
  Status CheckIntegrity() const;

 private:
  // Puts an entry behind `previous`, or at the head if that is -1.
  void InsertBehind(SequenceIndex previous, SequenceIndex index);

  const int32_t capacity_;
  std::vector<Sequence> slab_;  // grows up to capacity_
  std::vector<SequenceIndex> free_;
  std::unordered_map<RequestId, SequenceIndex> by_id_;
  SequenceIndex queue_head_{-1};
  SequenceIndex queue_tail_{-1};
  int32_t queue_size_ = 0;
  uint64_t last_serial_ = 0;
};

}  // namespace tandem
