#include "tensor/state_group.h"

namespace tandem {

Status StateGroup::Validate() const {
  if (layers.empty()) return InvalidArgumentError("state group has no layers");
  if (num_heads <= 0) return InvalidArgumentError("state group has {} heads", num_heads);
  if (planes.empty()) return InvalidArgumentError("state group has no planes");
  if (tokens_per_block <= 0) {
    return InvalidArgumentError("tokens per block must be positive, not {}", tokens_per_block);
  }
  if ((kind == StateKind::kWindow) != (window_tokens > 0)) {
    return InvalidArgumentError("window of {} tokens does not fit the group's kind", window_tokens);
  }
  if (shard.world <= 0 || shard.rank < 0 || shard.rank >= shard.world) {
    return InvalidArgumentError("shard {} of {}", shard.rank, shard.world);
  }
  for (const StatePlane& plane : planes) {
    const int32_t row = plane.tile == TileLayout::kTokenMajor ? plane.dims : tokens_per_block;
    if (plane.dims <= 0 || row % InfoOf(plane.dtype).block_elements != 0) {
      return InvalidArgumentError("plane '{}' of {} values does not fit {}", plane.name, plane.dims,
                                  NameOf(plane.dtype));
    }
  }
  return OkStatus();
}

int64_t StateGroup::PlaneBytes(size_t plane) const {
  return BytesOf(planes[plane].dtype, int64_t{tokens_per_block} * planes[plane].dims);
}

int64_t StateGroup::HeadBytes() const {
  int64_t bytes = 0;
  for (size_t p = 0; p < planes.size(); ++p) bytes += PlaneBytes(p);
  return bytes;
}

int64_t StateGroup::PageBytes() const { return HeadBytes() * num_heads; }

int64_t StateGroup::BlockBytes() const { return PageBytes() * static_cast<int64_t>(layers.size()); }

int64_t StateGroup::OffsetInBlock(int32_t layer, int32_t head, size_t plane) const {
  int64_t offset = layer * PageBytes() + head * HeadBytes();
  for (size_t p = 0; p < plane; ++p) offset += PlaneBytes(p);
  return offset;
}

}  // namespace tandem
