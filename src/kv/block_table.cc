#include "kv/block_table.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

BlockTable::BlockTable(BlockPool* pool, int32_t tokens_per_block, int32_t max_blocks)
    : pool_(pool), tokens_per_block_(tokens_per_block), max_blocks_(max_blocks) {
  TANDEM_CHECK_GT(tokens_per_block, 0);
  TANDEM_CHECK_GE(max_blocks, 0);
  blocks_.reserve(static_cast<size_t>(max_blocks));
}

void BlockTable::Append(BlockId block) {
  TANDEM_CHECK_LT(num_blocks(), max_blocks_);
  blocks_.push_back(block);
}

void BlockTable::SkipTo(int32_t entries) {
  TANDEM_CHECK_EQ(num_blocks(), 0);
  TANDEM_CHECK(entries >= 0 && entries <= max_blocks_);
  blocks_.resize(static_cast<size_t>(entries));
  first_held_ = entries;
}

BlockId BlockTable::Replace(int32_t entry, BlockId block) {
  const BlockId old = at(entry);
  blocks_[static_cast<size_t>(entry)] = block;
  return old;
}

int32_t BlockTable::ReleaseBelow(int64_t position, StepId last_use) {
  if (position <= 0) return 0;
  const int64_t end = std::min<int64_t>(position / tokens_per_block_, num_blocks());
  const int32_t begin = first_held_;
  for (; first_held_ < end; ++first_held_) {
    pool_->Unref(blocks_[static_cast<size_t>(first_held_)], last_use);
  }
  return first_held_ - begin;
}

int32_t BlockTable::Truncate(int64_t tokens, StepId last_use) {
  TANDEM_CHECK_GE(tokens, 0);
  const int64_t keep = (tokens + tokens_per_block_ - 1) / tokens_per_block_;
  TANDEM_CHECK_GE(keep, first_held_);
  int32_t freed = 0;
  while (num_blocks() > keep) {
    freed += pool_->Unref(blocks_.back(), last_use);
    blocks_.pop_back();
  }
  return freed;
}

void BlockTable::Clear(StepId last_use) {
  while (num_blocks() > first_held_) {
    pool_->Unref(blocks_.back(), last_use);
    blocks_.pop_back();
  }
  blocks_.clear();
  first_held_ = 0;
}

BlockId BlockTable::at(int32_t entry) const {
  TANDEM_CHECK(entry >= first_held_ && entry < num_blocks());
  return blocks_[static_cast<size_t>(entry)];
}

}  // namespace tandem
