// What: FakeState: the memory of the pools that a VerifyingExecutor runs on: one number per
//   position of each block.
// Not here: what is in it (verifying_executor.h, fake_handoff.h).
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/state_pools.h"

namespace tandem::testing {

class FakeState {
 public:
  explicit FakeState(std::span<const StateGroupBlocks> groups) {
    for (const StateGroupBlocks& g : groups) {
      groups_.push_back(g.group);
      entries_.emplace_back(static_cast<size_t>(g.num_blocks) *
                            static_cast<size_t>(g.group.tokens_per_block));
    }
  }

  size_t num_groups() const { return groups_.size(); }
  const StateGroup& group(size_t group) const { return groups_.at(group); }
  bool Exists(size_t group, BlockId block) const {
    return block.value() >= 0 &&
           Begin(group, block) < static_cast<int64_t>(entries_.at(group).size());
  }
  // Requires that the block exists, as Copy does.
  uint64_t& At(size_t group, BlockId block, int32_t offset) {
    return entries_.at(group).at(static_cast<size_t>(Begin(group, block) + offset));
  }
  void Copy(size_t group, BlockId from, BlockId to) {
    const auto begin = entries_.at(group).begin();
    std::copy_n(begin + Begin(group, from), groups_[group].tokens_per_block,
                begin + Begin(group, to));
  }

 private:
  int64_t Begin(size_t group, BlockId block) const {
    return int64_t{block.value()} * groups_.at(group).tokens_per_block;
  }

  std::vector<StateGroup> groups_;
  std::vector<std::vector<uint64_t>> entries_;  // [group][block * tokens_per_block + offset]
};

}  // namespace tandem::testing
