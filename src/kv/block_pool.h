// What: BlockPool: which blocks of one state group are free. A block carries references (sequences,
//   later the prefix cache) and use-tokens of asynchronous agents; it is free when the last of both
//   is gone (spec K3). Also the ledger of blocks that are promised and not yet taken (spec S6).
// Not here: the bytes (exec/), which sequence holds a block (block_table.h), several groups at once
//   (state_pools.h).
// Threads: one owner, the engine's thread. Integers only.
// Invariants (CheckIntegrity): a block is exactly one of
//     free     on the free list, no reference, no use-token
//     in use   at least one reference; counted once however many share it
//     fenced   no reference; a submitted step that touches it has not completed
//     held     no reference, no fence; a write or copy still reads or writes it
//   and reserved() <= free(): a promised block can always be taken.
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
  // Gives promised blocks back. Requires count <= reserved().
  void Unreserve(int32_t count);

  // Takes a free block with one reference; none when all free blocks are promised to others.
  std::optional<BlockId> Allocate();
  // Takes a promised block with one reference. Requires reserved() > 0; cannot fail.
  BlockId AllocateReserved();

  // Another holder. Requires a block in use.
  void AddRef(BlockId block);
  // A holder leaves. `last_use` is the last submitted step that touches the block on behalf of this
  // holder (StepId(0): none); the latest over all holders counts. True when the block became free
  // at once.
  bool Unref(BlockId block, StepId last_use);

  // Counts one operation of `agent` on the block. Requires a block that is not free.
  void BeginUse(BlockId block, UseAgent agent);
  // The operation is over. Requires a BeginUse without its EndUse. True when the block became free.
  bool EndUse(BlockId block, UseAgent agent);

  // Steps up to and including `step` no longer touch any block. Steps complete in order; an earlier
  // step than the last one given changes nothing.
  void CompleteSteps(StepId step);

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t free() const { return free_; }
  int32_t in_use() const { return in_use_; }
  int32_t fenced() const { return fenced_; }
  int32_t held() const { return held_; }
  int32_t reserved() const { return reserved_; }
  // Free and promised to nobody.
  int32_t available() const { return free_ - reserved_; }
  int32_t refs(BlockId block) const { return At(block).refs; }

  // Recounts everything; names the first contradiction. O(total()).
  Status CheckIntegrity() const;

 private:
  enum class Where : uint8_t { kFree, kInUse, kFenced, kHeld };
  static constexpr int32_t kNone = -1;

  struct Block {
    uint64_t last_use = 0;  // step
    int32_t refs = 0;
    int32_t next = kNone;  // on the free list or a fence list
    std::array<int32_t, kNumUseAgents> uses{};
    Where where = Where::kFree;

    bool has_uses() const { return (uses[0] | uses[1] | uses[2]) != 0; }
  };

  Block& At(BlockId block);
  const Block& At(BlockId block) const;
  BlockId TakeFree();
  // Puts a block without references where it belongs now; true when that is the free list.
  bool Settle(BlockId block);
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
  int32_t reserved_ = 0;
};

}  // namespace tandem
