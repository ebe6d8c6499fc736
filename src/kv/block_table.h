// What: BlockTable: the blocks of one sequence in one state group, in logical order: entry i holds
//   positions [i * tokens_per_block, (i + 1) * tokens_per_block). Each entry that is held owns one
//   reference in the pool.
// Not here: when to grow or release, promises, several groups (state_pools.h).
// Threads: the engine's thread.
// Invariants: entries below first_held() have been given back and keep their logical index; all
//   others are held. Waste is in the tail block only: capacity_tokens() - tokens (spec K1).
// Cost: O(1) per block moved; nothing is allocated below `max_blocks` entries.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/block_pool.h"

namespace tandem {

class BlockTable {
 public:
  // Empty. `pool` outlives the table. Never holds more than `max_blocks` entries.
  BlockTable(BlockPool* pool, int32_t tokens_per_block, int32_t max_blocks);

  // Takes over the caller's reference as the next entry. Requires num_blocks() < max_blocks.
  void Append(BlockId block);

  // Starts an empty table behind `entries` entries that count as given back (a window that is
  // restored in the middle of a sequence). Requires num_blocks() == 0.
  void SkipTo(int32_t entries);

  // Puts the caller's reference in the place of a held entry's; the old one is the caller's now.
  BlockId Replace(int32_t entry, BlockId block);

  // Gives back the held entries that lie wholly below `position` (a window has moved past them).
  // `last_use` is the last submitted step that reads them. Returns how many entries were given
  // back.
  int32_t ReleaseBelow(int64_t position, StepId last_use);

  // Keeps the entries that `tokens` tokens need and gives back the rest (rollback). The entries
  // kept must reach at least to first_held(): a rollback behind the window is impossible. Returns
  // how many became free at once.
  int32_t Truncate(int64_t tokens, StepId last_use);

  // Gives everything back; the table is empty again.
  void Clear(StepId last_use);

  int32_t num_blocks() const {
    return static_cast<int32_t>(blocks_.size());
  }  // entries, also released ones
  int32_t first_held() const { return first_held_; }
  int32_t num_held() const { return num_blocks() - first_held_; }
  int64_t capacity_tokens() const { return int64_t{num_blocks()} * tokens_per_block_; }
  // The physical block of a held entry.
  BlockId at(int32_t entry) const;

 private:
  BlockPool* pool_;
  int32_t tokens_per_block_;
  int32_t max_blocks_;
  int32_t first_held_ = 0;
  std::vector<BlockId> blocks_;
};

}  // namespace tandem
