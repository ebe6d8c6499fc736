// What: BlockPool: which blocks of one state group are free. A block carries references (of
//   sequences), the marks of the prefix cache that keeps it, and use-tokens of asynchronous agents;
//   it is free when the last of all is gone (spec K3). Also the ledger of blocks that are promised
//   and not yet taken (spec S6).
// Not here: the bytes (exec/), which sequence holds a block (block_table.h), several groups at once
//   (state_pools.h), which cached block is given up when blocks lack (prefix_cache.h).
// Threads: one owner, the engine's thread. Integers only.
// Invariants (CheckIntegrity): a block is exactly one of
//     free       on the free list, no reference, no use-token, not cached
//     in use     at least one reference; counted once however many share it
//     fenced     no reference; a submitted step that touches it has not completed
//     held       no reference, no fence; a write or copy still reads or writes it
//     evictable  cached, and nothing else: Uncache makes it free
//   and reserved() <= total() - in_use(): what is promised is there or comes back by itself.
// Cost: every operation O(1) (CompleteSteps: O(1) per block that it releases). Nothing is allocated
//   after construction.
// Based on: the reference-count contract of leveldb's cache; fences as in deferred destruction of
//   GPU resources.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tandem {

// Who, besides the device's stream, may still touch a block that nobody refers to. The stream needs
// no count: its token is the step id given to Unref.
enum class UseAgent : uint8_t {
  kOutboundWrite,  // a peer's memory is written from the block
  kInboundWrite,   // a peer writes the block
  kTierCopy,       // to or from host memory or disk
};
inline constexpr int32_t kNumUseAgents = 3;

class BlockPool {
 public:
  // Blocks 0 .. num_blocks-1, all free, handed out in ascending order at first; afterwards the
  // block freed last is handed out first: it is the warmest, and a block that was freed too early
  // shows at once. At most `max_steps_in_flight` steps are submitted and not completed at any time.
  BlockPool(int32_t num_blocks, int32_t max_steps_in_flight);

  // Promises `count` more blocks; false, and nothing changes, when fewer are available.
  [[nodiscard]] bool Reserve(int32_t count);
  // The same for a holder that has just given `count` blocks back: those that are fenced or held
  // still count, for they come back by themselves; until then available() may be negative. False,
  // and nothing changes, when `count` blocks are neither here nor on their way.
  [[nodiscard]] bool ReserveReturning(int32_t count);
  // Gives promised blocks back. Requires count <= reserved().
  void Unreserve(int32_t count);

  // Takes a free block with one reference; none when no block is free, or all are promised to
  // others.
  std::optional<BlockId> Allocate();
  // Takes a promised block with one reference. Requires reserved() > 0 and free() > 0: the caller
  // evicts first where only evictable blocks are left.
  BlockId AllocateReserved();

  // Another holder. Requires a block in use, or a cached one; one that is evictable leaves the
  // available blocks, so then available() > 0 is required.
  void AddRef(BlockId block);
  // A holder leaves. `last_use` is the last submitted step that touches the block on behalf of this
  // holder (StepId(0): none); the latest over all holders counts. True when the block became free
  // or evictable at once.
  bool Unref(BlockId block, StepId last_use);

  // The prefix cache keeps the block beyond its holders, once more. Requires a block in use.
  void Cache(BlockId block);
  // The prefix cache lets go once. Requires a cached block. True when the block became free at
  // once: what is in use, fenced or held becomes free only when that is over.
  bool Uncache(BlockId block);

  // The step `step`, planned or submitted, reads a block for somebody who holds no reference (the
  // source of a copy). Requires a block in use, or a cached one; an evictable one leaves the
  // available blocks until then, so available() > 0 is required.
  void ReadUntil(BlockId block, StepId step);

  // Counts one operation of `agent` on the block. Requires a block that is not free; for an
  // evictable one available() > 0, which it leaves.
  void BeginUse(BlockId block, UseAgent agent);
  // The operation is over. Requires a BeginUse without its EndUse. True when the block became free
  // or evictable.
  bool EndUse(BlockId block, UseAgent agent);

  // Steps up to and including `step` no longer touch any block. Steps complete in order; an earlier
  // step than the last one given changes nothing.
  void CompleteSteps(StepId step);

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t free() const { return free_; }
  int32_t in_use() const { return in_use_; }
  int32_t fenced() const { return fenced_; }
  int32_t held() const { return held_; }
  int32_t evictable() const { return evictable_; }
  int32_t reserved() const { return reserved_; }
  // Free or evictable, and promised to nobody; below zero while promises wait for blocks that come
  // back.
  int32_t available() const { return free_ + evictable_ - reserved_; }
  int32_t refs(BlockId block) const { return At(block).refs; }
  int32_t uses(BlockId block, UseAgent agent) const {
    return At(block).uses[static_cast<size_t>(agent)];
  }
  bool cached(BlockId block) const { return At(block).cached > 0; }
  int32_t times_cached(BlockId block) const { return At(block).cached; }
  bool is_evictable(BlockId block) const { return At(block).where == Where::kEvictable; }

  // Recounts everything; names the first contradiction. O(total()).
  Status CheckIntegrity() const;

 private:
  enum class Where : uint8_t { kFree, kInUse, kFenced, kHeld, kEvictable };
  static constexpr int32_t kNone = -1;

  struct Block {
    uint64_t last_use = 0;  // step
    int32_t refs = 0;
    int32_t next = kNone;      // on the free list or a fence list
    int32_t previous = kNone;  // on a fence list
    std::array<int32_t, kNumUseAgents> uses{};
    Where where = Where::kFree;
    int32_t cached = 0;  // times

    bool has_uses() const { return (uses[0] | uses[1] | uses[2]) != 0; }
  };

  Block& At(BlockId block);
  const Block& At(BlockId block) const;
  BlockId TakeFree();
  // Puts a block without references where it belongs now; true when it is free or evictable.
  bool Settle(BlockId block);
  // Takes a block without references out of the place that Settle gave it.
  void Unsettle(BlockId block);
  Status CheckLists(std::vector<bool>* listed) const;

  std::vector<Block> blocks_;
  // Fenced blocks by their last step, one list per step in flight: fences_[step % size].
  std::vector<int32_t> fences_;
  uint64_t completed_ = 0;  // step
  int32_t free_head_ = kNone;
  int32_t free_ = 0;
  int32_t in_use_ = 0;
  int32_t fenced_ = 0;
  int32_t held_ = 0;
  int32_t evictable_ = 0;
  int32_t reserved_ = 0;
};

}  // namespace tandem
