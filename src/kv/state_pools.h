// What: StatePools: the pools of all state groups, and what a sequence holds and is promised in
//   each of them. Operations act on all groups or on none, so that no caller sees half a sequence.
// Not here: who is admitted or preempted (sched/), the bytes (exec/).
// Threads: the engine's thread.
// Invariants (CheckIntegrity): each pool's references are those of the tables; each pool's promises
//   are those of the sequences; a sequence that stays within its promise never fails to grow.
// Cost: O(groups + blocks moved); nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "core/step_plan.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "tensor/state_group.h"

namespace tandem {

struct StateGroupBlocks {
  StateGroup group;
  int32_t num_blocks = 0;
};

// What one sequence holds: a table and a promise per group. Made by StatePools; outlived by it.
class SequenceBlocks {
 public:
  const BlockTable& table(GroupId group) const { return parts_[Index(group)].table; }
  // Blocks promised and not yet taken.
  int32_t reserved(GroupId group) const { return parts_[Index(group)].reserved; }

 private:
  friend class StatePools;
  struct Part {
    BlockTable table;
    int32_t promised = 0;  // most blocks held at one time under the promise
    int32_t reserved = 0;
  };
  static size_t Index(GroupId group) { return static_cast<size_t>(group.value()); }

  std::vector<Part> parts_;
};

enum class Growth : uint8_t {
  kDone,
  kWait,   // too few blocks now, but blocks of submitted steps are on their way back
  kShort,  // too few blocks, and none comes back by itself
};

class StatePools {
 public:
  // `max_uncommitted_tokens`: the most tokens of one sequence that are planned beyond its committed
  // position (steps in flight and the one being planned); a window keeps that many tokens in
  // addition.
  StatePools(std::span<const StateGroupBlocks> groups, int32_t max_uncommitted_tokens,
             int32_t max_steps_in_flight);
  StatePools(const StatePools&) = delete;
  StatePools& operator=(const StatePools&) = delete;

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  const StateGroup& group(GroupId id) const { return groups_[Index(id)]; }
  const BlockPool& pool(GroupId id) const { return pools_[Index(id)]; }

  // The most blocks that a sequence of `tokens` tokens holds in the group at one time. In a window
  // group at least the blocks that window and uncommitted tokens span at the worst alignment.
  int64_t PeakBlocks(GroupId id, int64_t tokens) const;
  // The longest sequence that fits into empty pools, at most `limit` tokens.
  int64_t MaxTokens(int64_t limit) const;

  // An empty holding for sequences of at most `max_tokens` tokens. The only call that allocates.
  SequenceBlocks MakeSequence(int64_t max_tokens);

  // Promises the blocks for `tokens` tokens in every group; false, and nothing changes, when one
  // has too few. Requires an empty holding without a promise.
  [[nodiscard]] bool Reserve(SequenceBlocks* sequence, int64_t tokens);

  // Takes blocks until the tables cover `tokens` tokens, promised ones first, and writes each one
  // as an append of `slot`. Unless kDone nothing has changed.
  [[nodiscard]] Growth Grow(SequenceBlocks* sequence, int64_t tokens, SlotId slot,
                            std::vector<BlockAppend>* appends);

  // Tokens before `position` are committed by step `done`, which has completed: window groups give
  // back what no later position reads. Blocks that come back count for the promise again.
  void ReleasePassed(SequenceBlocks* sequence, int64_t position, StepId done);

  // Gives back all blocks and the promise. `last_use`: the last submitted step that touches the
  // sequence.
  void Release(SequenceBlocks* sequence, StepId last_use);

  void CompleteSteps(StepId step);

  int64_t total_blocks() const;
  // Not free: referenced, fenced or held. Shared blocks count once.
  int64_t busy_blocks() const;

  // Compares pools and holdings; `sequences` must be all that exist.
  Status CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const;

 private:
  static size_t Index(GroupId id) { return static_cast<size_t>(id.value()); }

  std::vector<StateGroup> groups_;
  std::deque<BlockPool> pools_;  // tables keep pointers
  int32_t max_uncommitted_tokens_;
};

}  // namespace tandem
