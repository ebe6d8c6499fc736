// What: StatePools: the pools of all state groups, and what a sequence holds and is promised in
//   each of them. Operations act on all groups or on none, so that no caller sees half a sequence.
//   A sequence may start from state that exists: blocks of the prefix cache, or of a sequence that
//   it is forked from.
// Not here: who is admitted or preempted (sched/), which state exists and which cached block is
//   given up (prefix_cache.h), the bytes (exec/).
// Threads: the engine's thread.
// Invariants (CheckIntegrity): each pool's references are those of the tables and pins; each pool's
//   promises are those of the sequences.
//   - Paged groups share blocks by reference; a block that somebody else refers to, or that is
//     cached, is copied before a sequence writes into it (only a tail block can be).
//   - Window groups share nothing: a sequence that starts from existing state takes copies of the
//     few blocks its window needs. So a window that moves on always gets its own blocks back.
//   - A promise covers what a sequence will take: all but the full blocks it shares, and one more
//     for a shared tail. A sequence that stays within its promise never finds a pool short; it may
//     have to wait for blocks of steps in flight (window groups only).
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
  // Positions [0, tokens()) are covered; the next one is written next.
  int64_t tokens() const { return tokens_; }

 private:
  friend class StatePools;
  friend class PrefixCache;
  struct Part {
    BlockTable table;
    int32_t promised = 0;       // most own blocks held at one time under the promise
    int32_t reserved = 0;       // of these, not taken
    int32_t shared = 0;         // entries before this one are not under the promise
    bool tail_promise = false;  // one of `reserved` is for the copy of the shared tail
  };
  struct Pin {
    GroupId group;
    BlockId block;
  };
  // The sequence's place in the prefix tree.
  struct Path {
    int32_t node = -1;  // the deepest node that holds a part of the sequence, or the root; -1: none
    int32_t spans = 0;  // its depth
    int32_t pending = -1;  // the deepest node that others wait for this sequence to fill
    uint64_t owner = 0;    // the name that they know it by
  };
  static size_t Index(GroupId group) { return static_cast<size_t>(group.value()); }

  std::vector<Part> parts_;
  int64_t tokens_ = 0;
  // References on blocks of the path that the tables hold under another number: another sequence
  // computed the same part at the same time.
  std::vector<Pin> pins_;
  Path path_;
};

enum class Growth : uint8_t {
  kDone,
  kWait,   // too few blocks now, but enough are fenced or held and come back by themselves
  kShort,  // too few blocks beyond the promise, and none comes back by itself
};

// The blocks of one group that a sequence starts from.
struct RestoredGroup {
  int32_t first_entry = 0;
  std::vector<BlockId> blocks;
};

// Whoever keeps evictable blocks (prefix_cache.h).
class BlockReclaimer {
 public:
  virtual ~BlockReclaimer() = default;
  // Makes `count` evictable blocks of the group free. Requires as many.
  virtual void Reclaim(GroupId group, int32_t count) = 0;
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
  // The first entry that position `position` reads.
  int32_t FirstEntryRead(GroupId id, int64_t position) const;

  // An empty holding for sequences of at most `max_tokens` tokens. The only call that allocates.
  SequenceBlocks MakeSequence(int64_t max_tokens);

  // Promises the blocks for `tokens` tokens in every group; false, and nothing changes, when one
  // has too few. Requires an empty holding without a promise.
  [[nodiscard]] bool Reserve(SequenceBlocks* sequence, int64_t tokens);

  // Starts `sequence` at position `tokens`, a multiple of every group's tokens per block, from
  // cached blocks (one entry of `from` per group, from FirstEntryRead on), and promises what it
  // needs beyond them for `reserve_tokens` tokens (0: nothing). Adds the table entries of `slot`
  // and the copies to *plan. False, and nothing changes, when a pool has too few. Requires an empty
  // holding.
  [[nodiscard]] bool Restore(SequenceBlocks* sequence, int64_t tokens,
                             std::span<const RestoredGroup> from, int64_t reserve_tokens,
                             SlotId slot, StepPlan* plan);

  // Starts `child` at position `tokens` with the state of `parent`, whose rows up to there have
  // been submitted; otherwise as Restore. A tail block that is not full is shared until one of them
  // writes into it. Where the parent holds a promise, it grows by the copy of its tail. Requires
  // that no window of the parent has moved past what position `tokens` reads.
  [[nodiscard]] bool Fork(SequenceBlocks* parent, SequenceBlocks* child, int64_t tokens,
                          int64_t reserve_tokens, SlotId slot, StepPlan* plan);

  // Takes blocks until the tables cover `tokens` tokens, promised ones first, and writes each one
  // as an entry of `slot` into *plan; a shared tail block that is written into is replaced by a
  // copy. The last one who refers to it writes in place, unless it is cached. Unless kDone nothing
  // has changed.
  [[nodiscard]] Growth Grow(SequenceBlocks* sequence, int64_t tokens, SlotId slot, StepPlan* plan);

  // Tokens before `position` are committed by step `done`, which has completed: window groups give
  // back what no later position reads. Blocks that come back count for the promise again.
  void ReleasePassed(SequenceBlocks* sequence, int64_t position, StepId done);

  // Gives back all blocks and the promise. `last_use`: the last submitted step that touches the
  // sequence. Requires that the prefix cache has let go of it (PrefixCache::Release does both).
  void Release(SequenceBlocks* sequence, StepId last_use);

  void CompleteSteps(StepId step);

  // An asynchronous agent reads or writes a block (BlockPool::BeginUse, EndUse).
  void BeginUse(GroupId id, BlockId block, UseAgent agent) {
    pools_[Index(id)].BeginUse(block, agent);
  }
  void EndUse(GroupId id, BlockId block, UseAgent agent) { pools_[Index(id)].EndUse(block, agent); }

  int64_t total_blocks() const;
  // Referenced, fenced or held. Shared blocks count once, those that only the cache keeps do not.
  int64_t busy_blocks() const;

  // Compares pools and holdings; `sequences` must be all that exist.
  Status CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const;

 private:
  friend class PrefixCache;
  struct Start {
    SequenceBlocks* sequence;
    int64_t tokens;
    int64_t reserve_tokens;
    SequenceBlocks* parent;  // or null
  };
  struct Need {
    int64_t new_blocks = 0;
    bool copy_tail = false;
    bool drop_tail_promise = false;  // the tail is written in place
    int64_t total() const { return new_blocks + (copy_tail ? 1 : 0); }
  };
  static size_t Index(GroupId id) { return static_cast<size_t>(id.value()); }

  BlockPool& PoolOf(int32_t group) { return pools_[static_cast<size_t>(group)]; }
  int32_t PromiseFor(GroupId id, int64_t tokens, int32_t shared, size_t copies) const;
  static int32_t SharedEntries(const StateGroup& group, int64_t tokens, int32_t first_entry);
  bool ParentNeedsTail(GroupId id, const Start& start) const;
  bool StartFits(const Start& start, std::span<const RestoredGroup> from) const;
  bool StartFrom(const Start& start, std::span<const RestoredGroup> from, SlotId slot,
                 StepPlan* plan);
  Need NeedOf(const SequenceBlocks& sequence, int32_t group, int64_t tokens) const;
  void EnsureFree(int32_t group, int64_t count);
  BlockId Take(int32_t group, SequenceBlocks::Part* part);
  void Pin(SequenceBlocks* sequence, GroupId id, BlockId block);

  std::vector<StateGroup> groups_;
  std::deque<BlockPool> pools_;  // tables keep pointers
  int32_t max_uncommitted_tokens_;
  BlockReclaimer* reclaimer_ = nullptr;
  std::vector<RestoredGroup> fork_;  // scratch
};

}  // namespace tandem
