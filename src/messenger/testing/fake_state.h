// What: the state of the hand-off's tests: two state groups, pools with real memory, and state that
//   is a hash of the tokens before it; so every byte that should be somewhere is known.
// Not here: who computes and who fetches it (fake_prefiller.h, fake_decoder.h).
// Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "kv/block_pool.h"
#include "messenger/handoff_format.h"
#include "messenger/page_map.h"

namespace tandem::testing {

inline constexpr int32_t kFakeLayers = 5;

inline std::vector<StateGroup> FakeGroups() {
  StateGroup paged;
  paged.layers = {0, 2, 3};
  paged.num_heads = 1;
  paged.planes = {{.name = "kv", .dtype = DType::kF32, .dims = 2}};  // 8 bytes: one hash
  paged.tokens_per_block = 4;
  StateGroup window = paged;
  window.kind = StateKind::kWindow;
  window.layers = {1, 4};
  window.tokens_per_block = 2;
  window.window_tokens = 6;
  return {paged, window};
}

inline HandoffFormat FakeFormat() {
  return {.model = "fake", .identity = {1, 2}, .numerics = "exact", .groups = FakeGroups()};
}

inline uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 32);
}

// [position]: of the tokens up to and with that position.
inline std::vector<uint64_t> Histories(std::span<const TokenId> tokens) {
  std::vector<uint64_t> out;
  uint64_t hash = 7;
  for (const TokenId token : tokens) {
    hash = Mix(hash, static_cast<uint64_t>(token.value()) + 1);
    out.push_back(hash);
  }
  return out;
}

inline uint64_t StateOf(uint64_t history, int32_t model_layer) {
  return Mix(history, static_cast<uint64_t>(model_layer) + 1000);
}

// Blocks and bytes of one group.
struct FakePool {
  FakePool(const StateGroup& g, int32_t num_blocks)
      : group(g),
        blocks(num_blocks, 8),
        memory(static_cast<size_t>(num_blocks * g.BlockBytes()), std::byte{0}) {}

  uint64_t* At(BlockId block, int32_t layer, int32_t slot) {
    return reinterpret_cast<uint64_t*>(memory.data() + PageOffset(group, block, layer)) + slot;
  }

  StateGroup group;
  BlockPool blocks;
  std::vector<std::byte> memory;
};

struct FakePools {
  explicit FakePools(int32_t paged_blocks) {
    const std::vector<StateGroup> groups = FakeGroups();
    pools.emplace_back(groups[0], paged_blocks);
    pools.emplace_back(groups[1], 2 * paged_blocks);
  }
  std::vector<std::span<std::byte>> Memory() {
    std::vector<std::span<std::byte>> spans;
    for (FakePool& pool : pools) spans.emplace_back(pool.memory);
    return spans;
  }
  std::deque<FakePool> pools;  // per group
};

// A sequence's blocks of one group: those from ordinal `first` on.
struct FakeTable {
  int32_t first = 0;
  std::vector<BlockId> blocks;
  BlockId At(int32_t ordinal) const {
    TANDEM_CHECK(ordinal >= first);
    return blocks[static_cast<size_t>(ordinal - first)];
  }
  int32_t end() const { return first + static_cast<int32_t>(blocks.size()); }
};

// Whose state is kept beyond its request: whole blocks, references held.
struct FakeCached {
  std::string salt;
  std::vector<TokenId> tokens;  // a multiple of 4
  std::vector<FakeTable> tables;
};

// The last position whose state is read at position `tokens`, per group; the first is:
inline int32_t FirstRead(const StateGroup& group, int32_t tokens) {
  return group.kind == StateKind::kWindow ? std::max(0, tokens - group.window_tokens + 1) : 0;
}

class FakeCache {
 public:
  explicit FakeCache(FakePools* pools) : pools_(pools) {}

  // The longest prefix of at most `most` tokens that is kept; null: none.
  const FakeCached* Find(const std::string& salt, std::span<const TokenId> tokens,
                         size_t most) const {
    const FakeCached* best = nullptr;
    for (const FakeCached& entry : entries_) {
      if (entry.salt != salt || entry.tokens.size() > std::min(most, tokens.size())) continue;
      if (!std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin())) continue;
      if (best == nullptr || entry.tokens.size() > best->tokens.size()) best = &entry;
    }
    return best;
  }
  // Keeps the whole blocks of a sequence whose state of `tokens` is complete; adds references.
  void Keep(const std::string& salt, std::span<const TokenId> tokens,
            const std::vector<FakeTable>& tables) {
    const size_t whole = tokens.size() / 4 * 4;
    if (whole == 0) return;
    FakeCached entry{.salt = salt, .tokens = {tokens.begin(), tokens.begin() + whole}};
    for (size_t g = 0; g < tables.size(); ++g) {
      FakePool& pool = pools_->pools[g];
      const int32_t per_block = pool.group.tokens_per_block;
      FakeTable table{FirstRead(pool.group, static_cast<int32_t>(whole)) / per_block, {}};
      if (table.first < tables[g].first) return;  // the window before that border has gone
      for (int32_t o = table.first; o < static_cast<int32_t>(whole) / per_block; ++o) {
        table.blocks.push_back(tables[g].At(o));
      }
      entry.tables.push_back(std::move(table));
    }
    for (size_t g = 0; g < entry.tables.size(); ++g) {
      for (const BlockId block : entry.tables[g].blocks) pools_->pools[g].blocks.AddRef(block);
    }
    entries_.push_back(std::move(entry));
  }
  // Gives up the oldest; false when there is none.
  bool Evict() {
    if (entries_.empty()) return false;
    for (size_t g = 0; g < entries_.front().tables.size(); ++g) {
      for (const BlockId block : entries_.front().tables[g].blocks) {
        pools_->pools[g].blocks.Unref(block, StepId(0));
      }
    }
    entries_.pop_front();
    return true;
  }

 private:
  FakePools* const pools_;
  std::deque<FakeCached> entries_;
};

// Takes blocks for ordinals [table.end(), end); all or nothing. Evicts what is cached.
inline bool Grow(FakePools* pools, FakeCache* cache, size_t g, int32_t end, FakeTable* table) {
  BlockPool& blocks = pools->pools[g].blocks;
  while (blocks.free() < end - table->end()) {
    if (!cache->Evict()) return false;
  }
  while (table->end() < end) table->blocks.push_back(*blocks.Allocate());
  return true;
}

inline void Release(FakePools* pools, std::vector<FakeTable>* tables) {
  for (size_t g = 0; g < tables->size(); ++g) {
    for (const BlockId block : (*tables)[g].blocks) pools->pools[g].blocks.Unref(block, StepId(0));
  }
  tables->clear();
}

}  // namespace tandem::testing
