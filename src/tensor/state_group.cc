#include "tensor/state_group.h"

namespace tandem {
namespace {

constexpr int64_t kScaleBytes = 2;  // f16

}  // namespace

bool IsStateType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kQ8_0;
}

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
    if (plane.dims <= 0) {
      return InvalidArgumentError("plane '{}' has {} values a token", plane.name, plane.dims);
    }
    if (!IsStateType(plane.dtype)) {
      return InvalidArgumentError("plane '{}' cannot be stored as {}: F32, F16, BF16 or Q8_0",
                                  plane.name, NameOf(plane.dtype));
    }
  }
  return OkStatus();
}

int64_t StateGroup::PlaneBytes(size_t plane) const {
  const StatePlane& p = planes[plane];
  if (p.dtype != DType::kQ8_0) return BytesOf(p.dtype, int64_t{tokens_per_block} * p.dims);
  return ScalesOffset(plane) + int64_t{tokens_per_block} * ScaleRuns(p.dims) * kScaleBytes;
}

int64_t StateGroup::ScalesOffset(size_t plane) const {
  const int64_t codes = int64_t{tokens_per_block} * planes[plane].dims;
  return (codes + kScaleBytes - 1) / kScaleBytes * kScaleBytes;
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
