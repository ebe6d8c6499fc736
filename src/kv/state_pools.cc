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
  fork_.resize(groups_.size());
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
        {.table = BlockTable(&pools_[static_cast<size_t>(i)], g.tokens_per_block, max_blocks)});
  }
  return sequence;
}

int32_t StatePools::FirstEntryRead(GroupId id, int64_t position) const {
  const StateGroup& g = group(id);
  if (g.kind != StateKind::kWindow) return 0;
  const int64_t first = std::max<int64_t>(0, position - g.window_tokens + 1);
  return static_cast<int32_t>(std::min(first, position) / g.tokens_per_block);
}

bool StatePools::Reserve(SequenceBlocks* sequence, int64_t tokens) {
  return StartFrom({sequence, 0, tokens, nullptr}, {}, SlotId(0), nullptr);
}

bool StatePools::Restore(SequenceBlocks* sequence, int64_t tokens,
                         std::span<const RestoredGroup> from, int64_t reserve_tokens, SlotId slot,
                         StepPlan* plan) {
  TANDEM_CHECK_EQ(from.size(), groups_.size());
  for (const StateGroup& g : groups_) TANDEM_CHECK_EQ(tokens % g.tokens_per_block, 0);
  return StartFrom({sequence, tokens, reserve_tokens, nullptr}, from, slot, plan);
}

bool StatePools::Fork(SequenceBlocks* parent, SequenceBlocks* child, int64_t tokens,
                      int64_t reserve_tokens, SlotId slot, StepPlan* plan) {
  TANDEM_CHECK(tokens >= 0 && tokens <= parent->tokens_);
  for (int32_t i = 0; i < num_groups(); ++i) {
    const BlockTable& table = parent->table(GroupId(i));
    RestoredGroup& from = fork_[static_cast<size_t>(i)];
    from.first_entry = FirstEntryRead(GroupId(i), tokens);
    from.blocks.clear();
    const auto end = static_cast<int32_t>(group(GroupId(i)).BlocksFor(tokens));
    for (int32_t e = from.first_entry; e < end; ++e) from.blocks.push_back(table.at(e));
  }
  return StartFrom({child, tokens, reserve_tokens, parent}, fork_, slot, plan);
}

int32_t StatePools::SharedEntries(const StateGroup& g, int64_t tokens, int32_t first_entry) {
  if (g.kind == StateKind::kWindow) return first_entry;
  return static_cast<int32_t>(tokens / g.tokens_per_block);  // a tail that is not full is copied
}

int32_t StatePools::PromiseFor(GroupId id, int64_t tokens, int32_t shared, size_t copies) const {
  if (tokens == 0) return 0;
  const int64_t rest = group(id).BlocksFor(tokens) - shared;
  const int64_t most = std::min(PeakBlocks(id, tokens), std::max<int64_t>(0, rest));
  return static_cast<int32_t>(std::max(most, static_cast<int64_t>(copies)));
}

bool StatePools::ParentNeedsTail(GroupId id, const Start& start) const {
  const int64_t p = group(id).tokens_per_block;
  if (start.parent == nullptr || group(id).kind == StateKind::kWindow || start.tokens % p == 0) {
    return false;
  }
  const SequenceBlocks::Part& part = start.parent->parts_[Index(id)];
  const int64_t next = start.parent->tokens_;
  return part.promised > 0 && !part.tail_promise && next % p != 0 && next / p == start.tokens / p;
}

bool StatePools::StartFits(const Start& start, std::span<const RestoredGroup> from) const {
  for (int32_t i = 0; i < num_groups(); ++i) {
    const GroupId id(i);
    const BlockPool& p = pool(id);
    const bool window = group(id).kind == StateKind::kWindow;
    int32_t evictable = 0;  // cached blocks that nobody else can have from now on
    int32_t returning = 0;
    size_t copies = 0;
    int32_t first_entry = 0;
    if (!from.empty()) {
      const RestoredGroup& g = from[static_cast<size_t>(i)];
      first_entry = g.first_entry;
      copies = window ? g.blocks.size() : 0;
      for (BlockId block : g.blocks) {
        evictable += p.is_evictable(block);
        returning += !window && p.refs(block) == 0 && !p.is_evictable(block);
      }
    }
    const int32_t shared = SharedEntries(group(id), start.tokens, first_entry);
    const int64_t need = int64_t{PromiseFor(id, start.reserve_tokens, shared, copies)} + evictable +
                         (start.reserve_tokens == 0 ? static_cast<int64_t>(copies) : 0) +
                         (ParentNeedsTail(id, start) ? 1 : 0);
    if (need > p.available()) return false;
    if (need + returning > p.total() - p.in_use() - p.reserved()) return false;
  }
  return true;
}

bool StatePools::StartFrom(const Start& start, std::span<const RestoredGroup> from, SlotId slot,
                           StepPlan* plan) {
  SequenceBlocks* sequence = start.sequence;
  TANDEM_CHECK_EQ(sequence->tokens_, 0);
  if (!StartFits(start, from)) return false;
  // First the blocks that exist, so that no reclaim takes them.
  for (int32_t i = 0; i < num_groups(); ++i) {
    const StateGroup& g = group(GroupId(i));
    BlockPool& pool = PoolOf(i);
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    TANDEM_CHECK(part.promised == 0 && part.table.num_blocks() == 0);
    const bool parent_tail = ParentNeedsTail(GroupId(i), start);
    size_t copies = 0;
    int32_t first_entry = 0;
    if (!from.empty()) {
      const RestoredGroup& restored = from[static_cast<size_t>(i)];
      first_entry = restored.first_entry;
      if (g.kind == StateKind::kWindow) {
        copies = restored.blocks.size();
        part.table.SkipTo(first_entry);
        for (BlockId block : restored.blocks) pool.ReadUntil(block, plan->step);
      } else {
        for (BlockId block : restored.blocks) {
          pool.AddRef(block);
          part.table.Append(block);
          plan->appends.push_back({slot, GroupId(i), block});
        }
      }
    }
    part.shared = SharedEntries(g, start.tokens, first_entry);
    part.promised = PromiseFor(GroupId(i), start.reserve_tokens, part.shared, copies);
    part.reserved = part.promised;
    part.tail_promise =
        part.promised > 0 && g.kind == StateKind::kPaged && start.tokens % g.tokens_per_block != 0;
    TANDEM_CHECK(pool.Reserve(part.promised + (parent_tail ? 1 : 0)));
    if (parent_tail) {
      SequenceBlocks::Part& tail = start.parent->parts_[static_cast<size_t>(i)];
      ++tail.reserved;
      tail.tail_promise = true;
    }
  }
  for (int32_t i = 0; i < num_groups() && !from.empty(); ++i) {
    if (group(GroupId(i)).kind != StateKind::kWindow) continue;
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    const std::vector<BlockId>& blocks = from[static_cast<size_t>(i)].blocks;
    EnsureFree(i, static_cast<int64_t>(blocks.size()));
    for (BlockId block : blocks) {
      const BlockId copy = Take(i, &part);
      plan->appends.push_back({slot, GroupId(i), copy, part.table.num_blocks()});
      plan->copies.push_back({GroupId(i), block, copy});
      part.table.Append(copy);
    }
  }
  sequence->tokens_ = start.tokens;
  return true;
}

void StatePools::EnsureFree(int32_t group, int64_t count) {
  const BlockPool& pool = PoolOf(group);
  if (pool.free() >= count) return;
  TANDEM_CHECK(reclaimer_ != nullptr);
  reclaimer_->Reclaim(GroupId(group), static_cast<int32_t>(count) - pool.free());
  TANDEM_CHECK_GE(pool.free(), count);
}

BlockId StatePools::Take(int32_t group, SequenceBlocks::Part* part) {
  if (part->reserved == 0) return PoolOf(group).Allocate().value();
  --part->reserved;
  return PoolOf(group).AllocateReserved();
}

StatePools::Need StatePools::NeedOf(const SequenceBlocks& sequence, int32_t i,
                                    int64_t tokens) const {
  Need need;
  const SequenceBlocks::Part& part = sequence.parts_[static_cast<size_t>(i)];
  const StateGroup& g = group(GroupId(i));
  need.new_blocks = std::max<int64_t>(0, g.BlocksFor(tokens) - part.table.num_blocks());
  if (tokens <= sequence.tokens_ || sequence.tokens_ % g.tokens_per_block == 0) return need;
  const BlockId tail = part.table.at(static_cast<int32_t>(sequence.tokens_ / g.tokens_per_block));
  const BlockPool& p = pool(GroupId(i));
  need.copy_tail = p.refs(tail) > 1 || p.cached(tail);
  need.drop_tail_promise = part.tail_promise && !need.copy_tail;
  return need;
}

Growth StatePools::Grow(SequenceBlocks* sequence, int64_t tokens, SlotId slot, StepPlan* plan) {
  for (int32_t i = 0; i < num_groups(); ++i) {
    const SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    const BlockPool& p = pool(GroupId(i));
    const Need need = NeedOf(*sequence, i, tokens);
    const int32_t dropped = need.drop_tail_promise ? 1 : 0;
    const int64_t beyond = need.total() - (part.reserved - dropped);
    const int64_t lacking = beyond - p.available() - dropped;
    if (beyond > 0 && lacking > 0) {
      return lacking <= p.fenced() + p.held() ? Growth::kWait : Growth::kShort;
    }
    // What is promised is on its way if it is not here.
    if (need.total() > p.free() + p.evictable()) return Growth::kWait;
  }
  for (int32_t i = 0; i < num_groups(); ++i) {
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    BlockPool& pool = PoolOf(i);
    const StateGroup& g = group(GroupId(i));
    const Need need = NeedOf(*sequence, i, tokens);
    EnsureFree(i, need.total());
    if (need.drop_tail_promise) {
      pool.Unreserve(1);
      --part.reserved;
    }
    if (need.copy_tail) {
      const auto entry = static_cast<int32_t>(sequence->tokens_ / g.tokens_per_block);
      const BlockId copy = Take(i, &part);
      const BlockId tail = part.table.Replace(entry, copy);
      pool.Unref(tail, plan->step);
      plan->copies.push_back({GroupId(i), tail, copy});
      plan->appends.push_back({slot, GroupId(i), copy, entry});
    }
    part.tail_promise = part.tail_promise && tokens <= sequence->tokens_;
    for (int64_t n = 0; n < need.new_blocks; ++n) {
      const BlockId block = Take(i, &part);
      part.table.Append(block);
      plan->appends.push_back({slot, GroupId(i), block});
    }
  }
  sequence->tokens_ = std::max(sequence->tokens_, tokens);
  return Growth::kDone;
}

void StatePools::ReleasePassed(SequenceBlocks* sequence, int64_t position, StepId done) {
  for (int32_t i = 0; i < num_groups(); ++i) {
    const StateGroup& g = group(GroupId(i));
    if (g.kind != StateKind::kWindow) continue;
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    const int32_t released = part.table.ReleaseBelow(position - g.window_tokens + 1, done);
    const int32_t owed = part.promised - part.table.num_held() - part.reserved;
    const int32_t again = std::clamp(owed, 0, released);
    // The source of a copy is still read: then its place in the promise comes back with the step.
    TANDEM_CHECK(PoolOf(i).ReserveReturning(again));
    part.reserved += again;
  }
}

void StatePools::Pin(SequenceBlocks* sequence, GroupId id, BlockId block) {
  PoolOf(id.value()).AddRef(block);
  sequence->pins_.push_back({id, block});
}

void StatePools::Release(SequenceBlocks* sequence, StepId last_use) {
  TANDEM_CHECK_EQ(sequence->path_.node, -1);
  for (int32_t i = 0; i < num_groups(); ++i) {
    SequenceBlocks::Part& part = sequence->parts_[static_cast<size_t>(i)];
    PoolOf(i).Unreserve(part.reserved);
    part.table.Clear(last_use);
    part.promised = 0;
    part.reserved = 0;
    part.shared = 0;
    part.tail_promise = false;
  }
  for (const SequenceBlocks::Pin& pin : sequence->pins_) {
    PoolOf(pin.group.value()).Unref(pin.block, last_use);
  }
  sequence->pins_.clear();
  sequence->tokens_ = 0;
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
  for (const BlockPool& pool : pools_) busy += pool.total() - pool.free() - pool.evictable();
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
      for (const SequenceBlocks::Pin& pin : sequence->pins_) {
        if (pin.group == GroupId(i)) ++refs[static_cast<size_t>(pin.block.value())];
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
