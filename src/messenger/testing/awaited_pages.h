// What: AwaitedPages: which blocks of a fake decoder may be written by peers now, and with what;
//   and the whole state of a prompt, checked and written.
// Not here: who orders that (fake_decoder.h).
// Threads: one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "messenger/testing/fake_state.h"

namespace tandem::testing {

// The state of one layer of one block, as far as its positions have a history.
inline void CheckPage(const StateGroup& group, int32_t ordinal, int32_t layer,
                      const uint64_t* values, const std::vector<uint64_t>& histories) {
  for (int32_t slot = 0; slot < group.tokens_per_block; ++slot) {
    const auto position = static_cast<size_t>(ordinal * group.tokens_per_block + slot);
    if (position >= histories.size()) return;
    const int32_t model_layer = group.layers[static_cast<size_t>(layer)];
    TANDEM_CHECK_EQ(values[slot], StateOf(histories[position], model_layer));
  }
}

// All state of positions from `have` on that the next position reads.
inline void CheckState(FakePools* pools, const std::vector<FakeTable>& tables, int32_t have,
                       const std::vector<uint64_t>& histories) {
  const auto tokens = static_cast<int32_t>(histories.size());
  for (size_t g = 0; g < pools->pools.size(); ++g) {
    FakePool& pool = pools->pools[g];
    const int32_t from = std::max(have, FirstRead(pool.group, tokens));
    for (int32_t o = from / pool.group.tokens_per_block; o < pool.group.BlocksFor(tokens); ++o) {
      for (int32_t l = 0; l < static_cast<int32_t>(pool.group.layers.size()); ++l) {
        CheckPage(pool.group, o, l, pool.At(tables[g].At(o), l, 0), histories);
      }
    }
  }
}

// Computes all state that the next position reads, and writes something for that position.
inline void WriteState(FakePools* pools, const std::vector<FakeTable>& tables,
                       const std::vector<uint64_t>& histories) {
  const auto tokens = static_cast<int32_t>(histories.size());
  for (size_t g = 0; g < pools->pools.size(); ++g) {
    FakePool& pool = pools->pools[g];
    const int32_t per_block = pool.group.tokens_per_block;
    for (int32_t l = 0; l < static_cast<int32_t>(pool.group.layers.size()); ++l) {
      const int32_t model_layer = pool.group.layers[static_cast<size_t>(l)];
      for (int32_t p = FirstRead(pool.group, tokens); p < tokens; ++p) {
        *pool.At(tables[g].At(p / per_block), l, p % per_block) =
            StateOf(histories[static_cast<size_t>(p)], model_layer);
      }
      *pool.At(tables[g].At(tokens / per_block), l, tokens % per_block) = 0x5eed;
    }
  }
}

class AwaitedPages {
 public:
  using HistoriesPtr = std::shared_ptr<const std::vector<uint64_t>>;

  explicit AwaitedPages(FakePools* pools) : pools_(pools) {}

  // Block `block` will hold the sequence's block `ordinal`. Requires that nobody awaits it.
  void Await(size_t group, BlockId block, int32_t ordinal, HistoriesPtr histories) {
    const auto place = std::pair(group, block);
    TANDEM_CHECK(blocks_.emplace(place, Awaited{ordinal, std::move(histories)}).second);
  }
  // All of it has come, or none of it will. Unknown ones are ignored.
  void Forget(size_t group, BlockId block) { blocks_.erase({group, block}); }

  // Fails for bytes that land where nobody awaits them, or that are not the right ones.
  void CheckLanding(std::span<const std::byte> memory, std::span<const std::byte> bytes) const {
    for (size_t g = 0; g < pools_->pools.size(); ++g) {
      const FakePool& pool = pools_->pools[g];
      const std::byte* const base = pool.memory.data();
      if (memory.data() < base || memory.data() >= base + pool.memory.size()) continue;
      const auto offset = static_cast<int64_t>(memory.data() - base);
      const BlockId block(static_cast<int32_t>(offset / pool.group.BlockBytes()));
      const int64_t in_block = offset % pool.group.BlockBytes();
      TANDEM_CHECK_EQ(in_block % pool.group.PageBytes(), 0);
      TANDEM_CHECK_EQ(static_cast<int64_t>(bytes.size()), pool.group.PageBytes());
      const auto awaited = blocks_.find({g, block});
      TANDEM_CHECK(awaited != blocks_.end());
      CheckPage(pool.group, awaited->second.ordinal,
                static_cast<int32_t>(in_block / pool.group.PageBytes()),
                reinterpret_cast<const uint64_t*>(bytes.data()), *awaited->second.histories);
    }
  }

 private:
  struct Awaited {
    int32_t ordinal = 0;
    HistoriesPtr histories;
  };
  FakePools* const pools_;
  std::map<std::pair<size_t, BlockId>, Awaited> blocks_;
};

}  // namespace tandem::testing
