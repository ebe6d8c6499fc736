// What: ContentModel: what a device would have in its blocks, as one number per place that stands
//   for the whole history up to the token there. Runs plans' copies and rows, and checks what no
//   counter can tell: every block that a sequence holds carries the sequence's tokens, whoever
//   shared, copied, cached, evicted or reused it, and no block is handed out while a step or an
//   agent touches it.
// Not here: operations (random_driver.h).
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "core/step_plan.h"
#include "kv/state_pools.h"

namespace tandem::testing {

// Equal values mean equal tokens from the first one on, of one tenant.
using History = uint64_t;

class ContentModel {
 public:
  explicit ContentModel(const StatePools* pools) : pools_(pools) {
    for (int32_t g = 0; g < pools->num_groups(); ++g) {
      groups_.emplace_back(static_cast<size_t>(pools->pool(GroupId(g)).total()));
    }
  }

  // The entries of a submitted plan are fresh or shared, and its copies are made.
  void Run(const StepPlan& plan, uint64_t completed) {
    for (const BlockAppend& a : plan.appends) {
      const BlockPool& pool = pools_->pool(a.group);
      if (pool.refs(a.block) > 1 || pool.cached(a.block)) continue;
      const Block& block = At(a.group, a.block);
      TANDEM_CHECK(block.touched_by <= completed && block.uses == 0);
    }
    for (const BlockCopy& copy : plan.copies) {
      At(copy.group, copy.to).content = At(copy.group, copy.from).content;
      At(copy.group, copy.from).touched_by = plan.step.value();
    }
  }

  // Step `step` writes positions [begin, end).
  void Write(const SequenceBlocks& s, const std::vector<History>& histories, int64_t begin,
             int64_t end, uint64_t step) {
    ForEachPlace(s, begin, end, [&](GroupId g, BlockId block, size_t offset, int64_t position) {
      Block& b = At(g, block);
      b.content.resize(static_cast<size_t>(pools_->group(g).tokens_per_block));
      b.content[offset] = histories[static_cast<size_t>(position)];
      b.touched_by = step;
    });
  }

  // Every position that a row from `committed` on reads is where the tables say.
  void Check(const SequenceBlocks& s, const std::vector<History>& histories, int64_t committed) {
    ForEachPlace(s, 0, s.tokens(), [&](GroupId g, BlockId block, size_t offset, int64_t at) {
      const StateGroup& group = pools_->group(g);
      if (group.kind == StateKind::kWindow && at <= committed - group.window_tokens) return;
      const std::vector<History>& content = At(g, block).content;
      TANDEM_CHECK_LT(offset, content.size());
      TANDEM_CHECK_EQ(content[offset], histories[static_cast<size_t>(at)]);
    });
  }

  void BeginUse(GroupId group, BlockId block) { ++At(group, block).uses; }
  void EndUse(GroupId group, BlockId block) { --At(group, block).uses; }

 private:
  struct Block {
    std::vector<History> content;  // by offset
    uint64_t touched_by = 0;       // the last step
    int32_t uses = 0;              // of agents
  };

  Block& At(GroupId group, BlockId block) {
    return groups_[static_cast<size_t>(group.value())][static_cast<size_t>(block.value())];
  }

  template <typename F>
  void ForEachPlace(const SequenceBlocks& s, int64_t begin, int64_t end, const F& f) {
    for (int32_t g = 0; g < pools_->num_groups(); ++g) {
      const BlockTable& table = s.table(GroupId(g));
      const int64_t p = pools_->group(GroupId(g)).tokens_per_block;
      for (int64_t at = begin; at < end; ++at) {
        const auto entry = static_cast<int32_t>(at / p);
        if (entry < table.first_held()) continue;
        f(GroupId(g), table.at(entry), static_cast<size_t>(at % p), at);
      }
    }
  }

  const StatePools* pools_;
  std::vector<std::vector<Block>> groups_;
};

}  // namespace tandem::testing
