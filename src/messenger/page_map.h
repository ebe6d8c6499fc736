// What: PageMap: which pages of a prompt's state go over the network, in one numbering that both
//   sides compute from the formats; where a page lies; which immediate it carries.
// Not here: when a page is complete (send_side.h), what the pages of one node are (StateGroup).
// Threads: values.
// Invariants: a page is one layer of one block. Of a paged group the pages are those of the blocks
//   of positions [have, tokens); of a window group those of the blocks that the window before
//   position `tokens` reaches, without what lies before `have`. Numbers go by group, then block in
//   order of position, then layer; each is written exactly once (spec H5):
//     pages = sum over groups of blocks x layers x slices x pieces
//   with 1 slice, as both sides have the same shard, and 1 piece, as a page is contiguous.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "fabric/transfer_engine.h"
#include "messenger/protocol.h"
#include "tensor/state_group.h"

namespace tandem {

class PageMap {
 public:
  // INVALID_ARGUMENT unless `have` is a multiple of every group's tokens per block and less than
  // `tokens`; OUT_OF_RANGE beyond kMaxHandoffPages.
  static Result<PageMap> Create(std::span<const StateGroup> groups, int32_t have, int32_t tokens);

  struct Group {
    int32_t first_block = 0;  // of the sequence: that of position first_block * tokens_per_block
    int32_t end_block = 0;
    int32_t first_page = 0;
    int32_t layers = 0;
    int32_t blocks() const { return end_block - first_block; }
  };
  const Group& group(size_t g) const { return groups_[g]; }
  size_t num_groups() const { return groups_.size(); }
  int32_t pages() const { return pages_; }

  // `block` counts in the sequence, `layer` in the group. Requires that the page is part of the
  // map.
  int32_t PageOf(size_t g, int32_t block, int32_t layer) const;

  // How many expectations, and pages of each.
  int32_t expectations() const;
  uint32_t PiecesOf(int32_t expectation) const;
  // Requires expectations as Fits wants them.
  static Immediate ImmediateOf(std::span<const Expectation> expectations, int32_t page);
  // Whether a peer's expectations are those of this map, with ordinals that do not overflow.
  bool Fits(std::span<const Expectation> expectations) const;

 private:
  std::vector<Group> groups_;
  int32_t pages_ = 0;
};

// Where a page lies in its pool.
inline uint64_t PageOffset(const StateGroup& group, BlockId block, int32_t layer) {
  return static_cast<uint64_t>(block.value()) * static_cast<uint64_t>(group.BlockBytes()) +
         static_cast<uint64_t>(layer) * static_cast<uint64_t>(group.PageBytes());
}

}  // namespace tandem
