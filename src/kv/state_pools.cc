#include "kv/state_pools.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

StatePools::StatePools(std::span<const StateGroupBlocks> groups, int32_t max_uncommitted_tokens,
                       int32_t max_steps_in_flight)
    : max_uncommitted_tokens_(max_uncommitted_tokens) {
  TANDEM_CHECK(!groups.empty());
  TANDEM_CHECK_GT(max_uncommitted_tokens, 0);
  for (const StateGroupBlocks& g : groups) {
    groups_.push_back(g.group);
    pools_.emplace_back(g.num_blocks, max_steps_in_flight);
  }
}

int64_t StatePools::PeakBlocks(GroupId id, int64_t tokens) const {
  const StateGroup& g = groups_[Index(id)];
  const int64_t all = g.BlocksFor(tokens);
  if (g.kind != StateKind::kWindow) return all;
  // The next position to commit reads window_tokens - 1 tokens before itself; behind it lie the
  // uncommitted ones. A run of `span` tokens touches one block more than it fills when it starts at
  // a block's last token.
  const int64_t span = int64_t{g.window_tokens} - 1 + max_uncommitted_tokens_;
  const int64_t p = g.tokens_per_block;
  return std::min(all, (span + p - 2) / p + 1);
}

int64_t StatePools::MaxTokens(int64_t limit) const {
  int64_t most = limit;
  for (int32_t i = 0; i < num_groups(); ++i) {
    const GroupId id(i);
    const int64_t blocks = pool(id).total();
    if (PeakBlocks(id, limit) <= blocks) continue;
    most = std::min(most, blocks * group(id).tokens_per_block);
  }
  return most;
}

SequenceBlocks StatePools::MakeSequence(int64_t max_tokens) {
  SequenceBlocks sequence;
  for (int32_t i = 0; i < num_groups(); ++i) {
    const StateGroup& g = group(GroupId(i));
    const auto max_blocks = static_cast<int32_t>(g.BlocksFor(max_tokens));
    sequence.parts_.push_back(
        {BlockTable(&pools_[static_cast<size_t>(i)], g.tokens_per_block, max_blocks), 0, 0});
  }
  return sequence;
}

bool StatePools::Reserve(SequenceBlocks* sequence, int64_t tokens) {
  for (int32_t i = 0; i < num_groups(); ++i) {
    if (PeakBlocks(GroupId(i), tokens) > pool(GroupId(i)).available()) return false;
  }
  for (int32_t i = 0; i < num_groups(); ++i) {
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    TANDEM_CHECK(part.promised == 0 && part.table.num_blocks() == 0);
    part.promised = static_cast<int32_t>(PeakBlocks(GroupId(i), tokens));
    part.reserved = part.promised;
    TANDEM_CHECK(pools_[static_cast<size_t>(i)].Reserve(part.promised));
  }
  return true;
}

Growth StatePools::Grow(SequenceBlocks* sequence, int64_t tokens, SlotId slot,
                        std::vector<BlockAppend>* appends) {
  for (int32_t i = 0; i < num_groups(); ++i) {
    const SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    const BlockPool& pool = pools_[static_cast<size_t>(i)];
    const int64_t need = group(GroupId(i)).BlocksFor(tokens) - part.table.num_blocks();
    if (need - part.reserved <= pool.available()) continue;
    return pool.fenced() > 0 ? Growth::kWait : Growth::kShort;
  }
  for (int32_t i = 0; i < num_groups(); ++i) {
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    BlockPool& pool = pools_[static_cast<size_t>(i)];
    const int64_t end = group(GroupId(i)).BlocksFor(tokens);
    while (part.table.num_blocks() < end) {
      BlockId block;
      if (part.reserved > 0) {
        --part.reserved;
        block = pool.AllocateReserved();
      } else {
        block = pool.Allocate().value();
      }
      part.table.Append(block);
      appends->push_back({slot, GroupId(i), block});
    }
  }
  return Growth::kDone;
}

void StatePools::ReleasePassed(SequenceBlocks* sequence, int64_t position, StepId done) {
  for (int32_t i = 0; i < num_groups(); ++i) {
    const StateGroup& g = group(GroupId(i));
    if (g.kind != StateKind::kWindow) continue;
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    const int32_t freed = part.table.ReleaseBelow(position - g.window_tokens + 1, done);
    const int32_t owed = part.promised - part.table.num_held() - part.reserved;
    const int32_t again = std::clamp(owed, 0, freed);
    TANDEM_CHECK(pools_[static_cast<size_t>(i)].Reserve(again));
    part.reserved += again;
  }
}

void StatePools::Release(SequenceBlocks* sequence, StepId last_use) {
  for (int32_t i = 0; i < num_groups(); ++i) {
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    pools_[static_cast<size_t>(i)].Unreserve(part.reserved);
    part.table.Clear(last_use);
    part.promised = 0;
    part.reserved = 0;
  }
}

void StatePools::CompleteSteps(StepId step) {
  for (BlockPool& pool : pools_) pool.CompleteSteps(step);
}

int64_t StatePools::total_blocks() const {
  int64_t total = 0;
  for (const BlockPool& pool : pools_) total += pool.total();
  return total;
}

int64_t StatePools::busy_blocks() const {
  int64_t busy = 0;
  for (const BlockPool& pool : pools_) busy += pool.total() - pool.free();
  return busy;
}

Status StatePools::CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const {
  for (int32_t i = 0; i < num_groups(); ++i) {
    const BlockPool& pool = pools_[static_cast<size_t>(i)];
    if (Status s = pool.CheckIntegrity(); !s.ok()) {
      return s.WithContext(fmt::format("group {}", i));
    }
    std::vector<int32_t> refs(static_cast<size_t>(pool.total()), 0);
    int64_t reserved = 0;
    for (const SequenceBlocks* sequence : sequences) {
      const SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
      reserved += part.reserved;
      for (int32_t e = part.table.first_held(); e < part.table.num_blocks(); ++e) {
        ++refs[static_cast<size_t>(part.table.at(e).value())];
      }
    }
    if (reserved != pool.reserved()) {
      return InternalError("group {}: {} blocks promised, the sequences count {}", i,
                           pool.reserved(), reserved);
    }
    for (int32_t b = 0; b < pool.total(); ++b) {
      if (refs[static_cast<size_t>(b)] != pool.refs(BlockId(b))) {
        return InternalError("group {}: block {} has {} references, the tables {}", i, b,
                             pool.refs(BlockId(b)), refs[static_cast<size_t>(b)]);
      }
    }
  }
  return OkStatus();
}

}  // namespace tandem
