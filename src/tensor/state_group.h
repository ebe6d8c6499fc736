// What: StateGroup: the shape of the state that a group of layers keeps per sequence, and where
//   each part of it lies inside a block. Pools, kernels, tiers, prefix cache and network all read
//   this description.
// Not here: which blocks a sequence holds (kv/), memory (exec/).
// Threads: values.
// Invariants: order inside a block is [layer][head][plane][tile], so a head's slice of a page is
//   one contiguous range, and so is a page (one layer of one block). A tile of kF32, kF16 or kBF16
//   is its values. A tile of kQ8_0 is its codes, one signed byte a value, in the order of the
//   layout; then its scales, one f16 for a token and each run of kScaleDims dims (the last may be
//   shorter), [runs, tokens_per_block] in both layouts: kernels take those of neighbouring tokens
//   together. The stored value is code * scale: 34 bytes for 32 of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace tandem {

enum class StateKind : uint8_t {
  kPaged,   // every token's state is kept
  kWindow,  // only the last `window_tokens` tokens are read; older blocks may be given back
};

// Order of a tile's values. The tile belongs to the kernel that reads it and is checked at
// hand-off.
enum class TileLayout : uint8_t {
  kTokenMajor,  // [tokens_per_block, dims]
  kDimMajor,    // [dims, tokens_per_block]: scores of all tokens of a block grow lane by lane
};

// Dims of a token that share a scale in a kQ8_0 plane.
inline constexpr int32_t kScaleDims = 32;
// Runs that `dims` values are cut into.
constexpr int32_t ScaleRuns(int32_t dims) { return (dims + kScaleDims - 1) / kScaleDims; }

// Types that state can be stored in: kF32, kF16, kBF16, kQ8_0.
bool IsStateType(DType dtype);

struct StatePlane {
  std::string name;  // "k", "v"
  DType dtype = DType::kF32;
  TileLayout tile = TileLayout::kTokenMajor;
  int32_t dims = 0;  // values per token and head
};

// This part of the heads lives here (tensor parallelism); {0, 1} is all of them.
struct Shard {
  int32_t rank = 0;
  int32_t world = 1;
  bool operator==(const Shard&) const = default;
};

struct StateGroup {
  StateKind kind = StateKind::kPaged;
  std::vector<int32_t> layers;  // model layers in this group, ascending
  int32_t num_heads = 0;        // KV heads of this shard
  std::vector<StatePlane> planes;
  int32_t tokens_per_block = 0;
  int32_t window_tokens = 0;  // > 0 for kWindow
  Shard shard;

  // Names the first field that makes no sense.
  Status Validate() const;

  int64_t PlaneBytes(size_t plane) const;  // one head, one layer, one block: a tile
  // Where the scales of a kQ8_0 tile begin: behind its codes, at an even offset.
  int64_t ScalesOffset(size_t plane) const;
  int64_t HeadBytes() const;   // all planes of one head
  int64_t PageBytes() const;   // one layer of one block
  int64_t BlockBytes() const;  // all layers
  // `layer` counts within the group.
  int64_t OffsetInBlock(int32_t layer, int32_t head, size_t plane) const;
  // Blocks that hold `tokens` consecutive tokens from position 0.
  int64_t BlocksFor(int64_t tokens) const {
    return (tokens + tokens_per_block - 1) / tokens_per_block;
  }
};

// A pool's memory seen through its group's geometry. Owns nothing.
struct PagedStateView {
  std::byte* base = nullptr;  // [num_blocks, BlockBytes()]
  const StateGroup* group = nullptr;
  int32_t num_blocks = 0;

  std::byte* Tile(BlockId block, int32_t layer, int32_t head, size_t plane) const {
    return base + block.value() * group->BlockBytes() + group->OffsetInBlock(layer, head, plane);
  }
};

}  // namespace tandem
