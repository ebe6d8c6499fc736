#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/rng.h"

namespace tandem {
namespace {

constexpr StepId kNoStep{0};

TEST(BlockPool, HandsOutAscendingThenTheLastFreedFirst) {
  BlockPool pool(3, 1);
  EXPECT_EQ(pool.Allocate(), BlockId(0));
  EXPECT_EQ(pool.Allocate(), BlockId(1));
  EXPECT_TRUE(pool.Unref(BlockId(0), kNoStep));
  EXPECT_TRUE(pool.Unref(BlockId(1), kNoStep));
  EXPECT_EQ(pool.Allocate(), BlockId(1));
  EXPECT_EQ(pool.Allocate(), BlockId(0));
  EXPECT_EQ(pool.Allocate(), BlockId(2));
  EXPECT_EQ(pool.Allocate(), std::nullopt);
}

// Vector 8.3.2-refcount of the chapter: A and B share a block; A ends, B ends, the device is idle.
TEST(BlockPool, SharedBlockIsFreeAfterTheLastHolderAndTheLastUse) {
  BlockPool pool(1, 2);
  const BlockId block = pool.Allocate().value();
  EXPECT_EQ(pool.refs(block), 1);
  pool.AddRef(block);
  EXPECT_EQ(pool.refs(block), 2);
  EXPECT_EQ(pool.in_use(), 1) << "shared blocks count once";
  EXPECT_FALSE(pool.Unref(block, StepId(2)));
  EXPECT_EQ(pool.refs(block), 1);
  EXPECT_FALSE(pool.Unref(block, StepId(1)));
  EXPECT_EQ(pool.refs(block), 0);
  EXPECT_EQ(pool.fenced(), 1);
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.free(), 0) << "A's step 2 still runs";
  pool.CompleteSteps(StepId(2));
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPool, FenceOfAStepThatIsOverDoesNotWait) {
  BlockPool pool(1, 1);
  pool.CompleteSteps(StepId(5));
  pool.CompleteSteps(StepId(3));
  EXPECT_TRUE(pool.Unref(pool.Allocate().value(), StepId(5)));
}

TEST(BlockPool, EveryUseTokenHoldsTheBlock) {
  BlockPool pool(1, 1);
  const BlockId block = pool.Allocate().value();
  pool.BeginUse(block, UseAgent::kOutboundWrite);
  pool.BeginUse(block, UseAgent::kTierCopy);
  EXPECT_FALSE(pool.Unref(block, StepId(1)));
  EXPECT_FALSE(pool.EndUse(block, UseAgent::kTierCopy));
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.held(), 1);
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  EXPECT_TRUE(pool.EndUse(block, UseAgent::kOutboundWrite));
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPool, UseTokensThatEndBeforeTheFenceLeaveItToTheFence) {
  BlockPool pool(1, 1);
  const BlockId block = pool.Allocate().value();
  pool.BeginUse(block, UseAgent::kInboundWrite);
  pool.Unref(block, StepId(1));
  EXPECT_FALSE(pool.EndUse(block, UseAgent::kInboundWrite));
  EXPECT_EQ(pool.fenced(), 1);
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPool, PromisedBlocksAreNotHandedOutToOthers) {
  BlockPool pool(4, 1);
  EXPECT_TRUE(pool.Reserve(3));
  EXPECT_FALSE(pool.Reserve(2));
  EXPECT_EQ(pool.available(), 1);
  EXPECT_TRUE(pool.Allocate().has_value());
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  pool.AllocateReserved();
  pool.Unreserve(2);
  EXPECT_EQ(pool.available(), 2);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, CachedBlockIsEvictableNotFree) {
  BlockPool pool(2, 1);
  const BlockId block = pool.Allocate().value();
  pool.Cache(block);
  EXPECT_EQ(pool.evictable(), 0) << "its holder still uses it";
  EXPECT_TRUE(pool.Unref(block, kNoStep));
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.evictable(), 1);
  EXPECT_EQ(pool.available(), 2) << "what the cache alone keeps can be promised";
  EXPECT_TRUE(pool.Reserve(2));
  pool.AllocateReserved();
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  EXPECT_TRUE(pool.Uncache(block));
  EXPECT_EQ(pool.AllocateReserved(), block);
}

TEST(BlockPool, CachedBlockWaitsForFenceAndAgentBeforeItIsEvictable) {
  BlockPool pool(1, 1);
  const BlockId block = pool.Allocate().value();
  pool.Cache(block);
  pool.BeginUse(block, UseAgent::kTierCopy);
  EXPECT_FALSE(pool.Unref(block, StepId(1)));
  EXPECT_EQ(pool.available(), 0);
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.available(), 0);
  EXPECT_TRUE(pool.EndUse(block, UseAgent::kTierCopy));
  EXPECT_EQ(pool.evictable(), 1);
}

TEST(BlockPool, CachedBlockIsTakenUpAgainFromEveryPlace) {
  BlockPool pool(3, 1);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(pool.Allocate().value());
    pool.Cache(blocks.back());
  }
  pool.BeginUse(blocks[2], UseAgent::kOutboundWrite);
  pool.Unref(blocks[0], StepId(1));  // fenced
  pool.Unref(blocks[1], kNoStep);    // evictable
  pool.Unref(blocks[2], kNoStep);    // held
  for (BlockId block : blocks) pool.AddRef(block);
  EXPECT_EQ(pool.in_use(), 3);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.in_use(), 3) << "a fence that is over frees nothing that is in use";
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, SourceOfACopyStaysUntilTheStepIsOver) {
  BlockPool pool(1, 1);
  const BlockId block = pool.Allocate().value();
  pool.Cache(block);
  pool.Unref(block, kNoStep);
  pool.ReadUntil(block, StepId(1));
  EXPECT_EQ(pool.available(), 0);
  EXPECT_FALSE(pool.Uncache(block));
  EXPECT_EQ(pool.free(), 0);
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPool, ReturningBlocksCanBePromisedToWhoGaveThemBack) {
  BlockPool pool(1, 1);
  pool.Unref(pool.Allocate().value(), StepId(1));
  EXPECT_FALSE(pool.Reserve(1));
  EXPECT_TRUE(pool.ReserveReturning(1));
  EXPECT_FALSE(pool.ReserveReturning(1));
  EXPECT_EQ(pool.available(), -1);
  pool.CompleteSteps(StepId(1));
  EXPECT_EQ(pool.available(), 0);
  pool.AllocateReserved();
}

TEST(BlockPoolDeathTest, ProgrammerErrorsAbort) {
  BlockPool pool(1, 1);
  EXPECT_DEATH(pool.Unref(BlockId(0), kNoStep), "refs");
  EXPECT_DEATH(pool.AddRef(BlockId(0)), "refs");
  EXPECT_DEATH(pool.AllocateReserved(), "reserved_");
  EXPECT_DEATH(pool.AddRef(BlockId(1)), "block");
  EXPECT_DEATH(pool.BeginUse(BlockId(0), UseAgent::kTierCopy), "where");
  EXPECT_DEATH(pool.Cache(BlockId(0)), "refs");
  EXPECT_DEATH(pool.Uncache(BlockId(0)), "cached");
}

// The pool as sets and maps: what is free is whatever nothing holds.
class PoolModel {
 public:
  explicit PoolModel(int32_t blocks) : blocks_(static_cast<size_t>(blocks)) {}

  struct Block {
    std::multiset<int> uses;
    int refs = 0;
    uint64_t fence = 0;
    int cached = 0;
  };
  bool IsIdle(size_t i) const {
    return blocks_[i].refs == 0 && blocks_[i].uses.empty() && blocks_[i].fence <= completed;
  }
  bool IsFree(size_t i) const { return IsIdle(i) && blocks_[i].cached == 0; }
  bool IsEvictable(size_t i) const { return IsIdle(i) && blocks_[i].cached > 0; }
  int32_t Free() const {
    int32_t free = 0;
    for (size_t i = 0; i < blocks_.size(); ++i) free += IsFree(i);
    return free;
  }
  int32_t Evictable() const {
    int32_t n = 0;
    for (size_t i = 0; i < blocks_.size(); ++i) n += IsEvictable(i);
    return n;
  }
  int32_t Available() const { return Free() + Evictable() - reserved; }
  int32_t Returning() const { return static_cast<int32_t>(blocks_.size()) - InUse() - reserved; }
  // Whether a cached block can leave the evictable ones, or gain a first holder.
  bool MayTakeUp(size_t i) const { return !IsEvictable(i) || Available() > 0; }
  int32_t InUse() const {
    int32_t n = 0;
    for (const Block& b : blocks_) n += b.refs > 0;
    return n;
  }
  Block& at(size_t i) { return blocks_[i]; }

  uint64_t completed = 0;
  uint64_t submitted = 0;
  int32_t reserved = 0;

 private:
  std::vector<Block> blocks_;
};

constexpr int32_t kBlocks = 24;
constexpr uint64_t kInFlight = 3;

void RandomStepEvent(SplitMix64* random, BlockPool* pool, PoolModel* model) {
  if (model->submitted < model->completed + kInFlight && random->Below(2) == 0) {
    ++model->submitted;
  } else if (model->submitted > model->completed) {
    model->completed += 1 + random->Below(model->submitted - model->completed);
    pool->CompleteSteps(StepId(model->completed));
  }
}

void RandomCacheOperation(SplitMix64* random, size_t i, BlockPool* pool, PoolModel* model) {
  const BlockId id(static_cast<int32_t>(i));
  PoolModel::Block& block = model->at(i);
  switch (random->Below(5)) {
    case 0:
      if (block.refs > 0 && block.cached < 2) {
        pool->Cache(id);
        ++block.cached;
      }
      break;
    case 1:
      if (block.cached > 0) {
        --block.cached;
        ASSERT_EQ(pool->Uncache(id), model->IsFree(i));
      }
      break;
    case 2:
      if ((block.refs > 0 || block.cached > 0) && model->MayTakeUp(i)) {
        const uint64_t step = random->Below(model->submitted + 1);
        pool->ReadUntil(id, StepId(step));
        block.fence = std::max(block.fence, step);
      }
      break;
    case 3: {
      const auto count = static_cast<int32_t>(random->Below(3));
      const bool fits = count <= model->Returning();
      ASSERT_EQ(pool->ReserveReturning(count), fits);
      if (fits) model->reserved += count;
      break;
    }
    default: RandomStepEvent(random, pool, model);
  }
}

void RandomOperation(SplitMix64* random, BlockPool* pool, PoolModel* model) {
  const auto i = static_cast<size_t>(random->Below(kBlocks));
  const BlockId id(static_cast<int32_t>(i));
  PoolModel::Block& block = model->at(i);
  const auto agent = static_cast<int>(random->Below(kNumUseAgents));
  const auto taken = [&](std::optional<BlockId> got) {
    ASSERT_TRUE(got.has_value());
    const auto at = static_cast<size_t>(got->value());
    ASSERT_TRUE(model->IsFree(at)) << "block " << at << " is handed out while it is held";
    model->at(at) = {{}, 1, 0};
  };
  switch (random->Below(13)) {
    case 0:
      if (model->Available() > 0 && model->Free() > 0) {
        taken(pool->Allocate());
      } else {
        ASSERT_EQ(pool->Allocate(), std::nullopt);
      }
      break;
    case 1: {
      const auto count = static_cast<int32_t>(random->Below(6));
      const bool fits = count <= model->Available();
      ASSERT_EQ(pool->Reserve(count), fits);
      if (fits) model->reserved += count;
      break;
    }
    case 2:
      if (model->reserved > 0 && model->Free() > 0) {
        --model->reserved;
        taken(pool->AllocateReserved());
      }
      break;
    case 3:
      if (model->reserved > 0) {
        pool->Unreserve(1);
        --model->reserved;
      }
      break;
    case 4:
      if (block.refs < 4 &&
          (block.refs > 0 || (block.cached > 0 && model->MayTakeUp(i) && model->Returning() > 0))) {
        pool->AddRef(id);
        ++block.refs;
      }
      break;
    case 5:
      if (block.refs > 0) {
        const uint64_t last = random->Below(model->submitted + 1);
        --block.refs;
        block.fence = std::max(block.fence, last);
        ASSERT_EQ(pool->Unref(id, StepId(last)), model->IsIdle(i));
      }
      break;
    case 6:
      if (!model->IsFree(i) && block.uses.size() < 4 && model->MayTakeUp(i)) {
        pool->BeginUse(id, static_cast<UseAgent>(agent));
        block.uses.insert(agent);
      }
      break;
    case 7:
      if (block.uses.count(agent) > 0) {
        block.uses.erase(block.uses.find(agent));
        ASSERT_EQ(pool->EndUse(id, static_cast<UseAgent>(agent)), model->IsIdle(i));
      }
      break;
    default: RandomCacheOperation(random, i, pool, model);
  }
}
TEST(BlockPool, MillionRandomOperationsAgreeWithASimpleModel) {
  BlockPool pool(kBlocks, kInFlight);
  PoolModel model(kBlocks);
  SplitMix64 random(1);
  int32_t fewest_free = kBlocks;
  for (int op = 0; op < 1'200'000; ++op) {
    RandomOperation(&random, &pool, &model);
    if (HasFatalFailure()) FAIL() << "operation " << op;
    ASSERT_EQ(pool.free(), model.Free()) << "operation " << op;
    ASSERT_EQ(pool.reserved(), model.reserved) << "operation " << op;
    ASSERT_EQ(pool.in_use(), model.InUse()) << "operation " << op;
    ASSERT_EQ(pool.evictable(), model.Evictable()) << "operation " << op;
    ASSERT_EQ(pool.free() + pool.evictable() + pool.in_use() + pool.fenced() + pool.held(),
              kBlocks);
    fewest_free = std::min(fewest_free, pool.free());
    if (op % 16 == 0) {
      const Status status = pool.CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status.ToString() << " at operation " << op;
    }
  }
  EXPECT_EQ(fewest_free, 0) << "the operations never exhausted the pool";
}

}  // namespace
}  // namespace tandem
