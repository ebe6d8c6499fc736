#include "kv/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

BlockPool::BlockPool(int32_t num_blocks, int32_t max_steps_in_flight) {
  TANDEM_CHECK_GE(num_blocks, 0);
  TANDEM_CHECK_GT(max_steps_in_flight, 0);
  blocks_.resize(static_cast<size_t>(num_blocks));
  fences_.assign(static_cast<size_t>(max_steps_in_flight), kNone);
  for (int32_t i = num_blocks - 1; i >= 0; --i) {
    blocks_[static_cast<size_t>(i)].next = free_head_;
    free_head_ = i;
  }
  free_ = num_blocks;
}

BlockPool::Block& BlockPool::At(BlockId block) {
  TANDEM_CHECK(block.value() >= 0 && block.value() < total());
  return blocks_[static_cast<size_t>(block.value())];
}

const BlockPool::Block& BlockPool::At(BlockId block) const {
  TANDEM_CHECK(block.value() >= 0 && block.value() < total());
  return blocks_[static_cast<size_t>(block.value())];
}

bool BlockPool::Reserve(int32_t count) {
  TANDEM_CHECK_GE(count, 0);
  if (count > available()) return false;
  reserved_ += count;
  return true;
}

bool BlockPool::ReserveReturning(int32_t count) {
  TANDEM_CHECK_GE(count, 0);
  if (count > total() - in_use_ - reserved_) return false;
  reserved_ += count;
  return true;
}

void BlockPool::Unreserve(int32_t count) {
  TANDEM_CHECK(count >= 0 && count <= reserved_);
  reserved_ -= count;
}

BlockId BlockPool::TakeFree() {
  TANDEM_CHECK_GT(free_, 0);
  const BlockId id(free_head_);
  Block& block = At(id);
  free_head_ = block.next;
  block.next = kNone;
  block.where = Where::kInUse;
  block.refs = 1;
  block.last_use = 0;
  --free_;
  ++in_use_;
  return id;
}

std::optional<BlockId> BlockPool::Allocate() {
  if (available() <= 0 || free_ == 0) return std::nullopt;
  return TakeFree();
}

BlockId BlockPool::AllocateReserved() {
  TANDEM_CHECK_GT(reserved_, 0);
  --reserved_;
  return TakeFree();
}

void BlockPool::AddRef(BlockId block) {
  Block& b = At(block);
  TANDEM_CHECK(b.refs > 0 || b.cached > 0);
  if (b.refs == 0) {
    Unsettle(block);
    b.where = Where::kInUse;
    ++in_use_;
    TANDEM_CHECK_LE(reserved_, total() - in_use_);
  }
  ++b.refs;
}

bool BlockPool::Unref(BlockId block, StepId last_use) {
  Block& b = At(block);
  TANDEM_CHECK_GT(b.refs, 0);
  b.last_use = std::max(b.last_use, last_use.value());
  if (--b.refs > 0) return false;
  --in_use_;
  return Settle(block);
}

void BlockPool::Cache(BlockId block) {
  Block& b = At(block);
  TANDEM_CHECK_GT(b.refs, 0);
  ++b.cached;
}

bool BlockPool::Uncache(BlockId block) {
  Block& b = At(block);
  TANDEM_CHECK_GT(b.cached, 0);
  if (--b.cached > 0 || b.where != Where::kEvictable) return false;
  --evictable_;
  return Settle(block);
}

void BlockPool::ReadUntil(BlockId block, StepId step) {
  Block& b = At(block);
  TANDEM_CHECK(b.refs > 0 || b.cached > 0);
  if (step.value() <= std::max(b.last_use, completed_)) return;
  if (b.refs > 0) {
    b.last_use = step.value();
    return;
  }
  Unsettle(block);
  b.last_use = step.value();
  Settle(block);
}

bool BlockPool::Settle(BlockId block) {
  Block& b = At(block);
  if (b.last_use > completed_) {
    TANDEM_CHECK_LE(b.last_use - completed_, fences_.size());
    int32_t& head = fences_[b.last_use % fences_.size()];
    b.where = Where::kFenced;
    b.next = head;
    b.previous = kNone;
    if (head != kNone) blocks_[static_cast<size_t>(head)].previous = block.value();
    head = block.value();
    ++fenced_;
    return false;
  }
  if (b.has_uses()) {
    b.where = Where::kHeld;
    ++held_;
    return false;
  }
  if (b.cached > 0) {
    b.where = Where::kEvictable;
    ++evictable_;
    return true;
  }
  b.where = Where::kFree;
  b.next = free_head_;
  free_head_ = block.value();
  ++free_;
  return true;
}

void BlockPool::Unsettle(BlockId block) {
  Block& b = At(block);
  switch (b.where) {
    case Where::kEvictable:
      TANDEM_CHECK_GT(available(), 0);
      --evictable_;
      return;
    case Where::kHeld: --held_; return;
    case Where::kFenced:
      if (b.previous == kNone) {
        fences_[b.last_use % fences_.size()] = b.next;
      } else {
        blocks_[static_cast<size_t>(b.previous)].next = b.next;
      }
      if (b.next != kNone) blocks_[static_cast<size_t>(b.next)].previous = b.previous;
      b.next = kNone;
      b.previous = kNone;
      --fenced_;
      return;
    case Where::kFree:
    case Where::kInUse: TANDEM_CHECK(false);
  }
}

void BlockPool::BeginUse(BlockId block, UseAgent agent) {
  Block& b = At(block);
  TANDEM_CHECK(b.where != Where::kFree);
  const bool evictable = b.where == Where::kEvictable;
  if (evictable) Unsettle(block);
  ++b.uses[static_cast<size_t>(agent)];
  if (evictable) Settle(block);
}

bool BlockPool::EndUse(BlockId block, UseAgent agent) {
  Block& b = At(block);
  int32_t& uses = b.uses[static_cast<size_t>(agent)];
  TANDEM_CHECK_GT(uses, 0);
  --uses;
  if (b.where != Where::kHeld || b.has_uses()) return false;
  --held_;
  return Settle(block);
}

void BlockPool::CompleteSteps(StepId step) {
  if (step.value() <= completed_) return;
  const uint64_t last_listed = std::min<uint64_t>(step.value(), completed_ + fences_.size());
  const uint64_t first = completed_ + 1;
  completed_ = step.value();
  for (uint64_t s = first; s <= last_listed; ++s) {
    int32_t index = fences_[s % fences_.size()];
    fences_[s % fences_.size()] = kNone;
    while (index != kNone) {
      Block& b = blocks_[static_cast<size_t>(index)];
      const int32_t next = b.next;
      b.next = kNone;
      b.previous = kNone;
      --fenced_;
      Settle(BlockId(index));
      index = next;
    }
  }
}

Status BlockPool::CheckLists(std::vector<bool>* listed) const {
  const auto walk = [&](int32_t head, Where where) -> Result<int32_t> {
    int32_t count = 0;
    for (int32_t i = head; i != kNone; i = blocks_[static_cast<size_t>(i)].next) {
      if (i < 0 || i >= total()) return InternalError("block {} on a list does not exist", i);
      if ((*listed)[static_cast<size_t>(i)]) return InternalError("block {} is listed twice", i);
      (*listed)[static_cast<size_t>(i)] = true;
      if (blocks_[static_cast<size_t>(i)].where != where) {
        return InternalError("block {} is on the wrong list", i);
      }
      if (where == Where::kFenced) {
        const int32_t next = blocks_[static_cast<size_t>(i)].next;
        if (next >= 0 && next < total() && blocks_[static_cast<size_t>(next)].previous != i) {
          return InternalError("block {} does not know the block before it", next);
        }
      }
      ++count;
    }
    return count;
  };
  TANDEM_ASSIGN_OR_RETURN(const int32_t free_listed, walk(free_head_, Where::kFree));
  if (free_listed != free_) return InternalError("{} blocks free, {} listed", free_, free_listed);
  int32_t fenced_listed = 0;
  for (size_t f = 0; f < fences_.size(); ++f) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t count, walk(fences_[f], Where::kFenced));
    fenced_listed += count;
    for (int32_t i = fences_[f]; i != kNone; i = blocks_[static_cast<size_t>(i)].next) {
      const uint64_t last_use = blocks_[static_cast<size_t>(i)].last_use;
      if (last_use % fences_.size() != f || last_use <= completed_ ||
          last_use > completed_ + fences_.size()) {
        return InternalError("block {} waits for step {} on the wrong list", i, last_use);
      }
    }
  }
  if (fenced_listed != fenced_) {
    return InternalError("{} blocks fenced, {} listed", fenced_, fenced_listed);
  }
  return OkStatus();
}

Status BlockPool::CheckIntegrity() const {
  std::vector<bool> listed(blocks_.size(), false);
  TANDEM_RETURN_IF_ERROR(CheckLists(&listed));
  int32_t in_use = 0;
  int32_t held = 0;
  int32_t evictable = 0;
  for (int32_t i = 0; i < total(); ++i) {
    const Block& b = blocks_[static_cast<size_t>(i)];
    const bool on_list = b.where == Where::kFree || b.where == Where::kFenced;
    if (listed[static_cast<size_t>(i)] != on_list) return InternalError("block {} is lost", i);
    if ((b.refs > 0) != (b.where == Where::kInUse)) {
      return InternalError("block {} has {} references in the wrong place", i, b.refs);
    }
    if (b.where == Where::kFree && (b.has_uses() || b.cached > 0)) {
      return InternalError("free block {} is used or cached", i);
    }
    if (b.where == Where::kEvictable &&
        (b.has_uses() || b.cached == 0 || b.last_use > completed_)) {
      return InternalError("evictable block {} is used, fenced or not cached", i);
    }
    if (b.where == Where::kHeld && !b.has_uses())
      return InternalError("block {} is held by none", i);
    if (*std::min_element(b.uses.begin(), b.uses.end()) < 0 || b.cached < 0) {
      return InternalError("block {} has a negative use count", i);
    }
    in_use += b.where == Where::kInUse;
    held += b.where == Where::kHeld;
    evictable += b.where == Where::kEvictable;
  }
  if (in_use != in_use_) return InternalError("{} blocks in use, {} found", in_use_, in_use);
  if (held != held_) return InternalError("{} blocks held, {} found", held_, held);
  if (evictable != evictable_) {
    return InternalError("{} blocks evictable, {} found", evictable_, evictable);
  }
  if (reserved_ < 0 || reserved_ > total() - in_use_) {
    return InternalError("{} blocks promised, {} of {} in use", reserved_, in_use_, total());
  }
  return OkStatus();
}

}  // namespace tandem
