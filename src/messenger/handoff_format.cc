#include "messenger/handoff_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace tandem {
namespace {

std::string_view NameOfKind(StateKind kind) {
  return kind == StateKind::kPaged ? "paged" : "window";
}
std::string_view NameOfTile(TileLayout tile) {
  return tile == TileLayout::kTokenMajor ? "token-major" : "dim-major";
}

template <typename T>
Status Same(std::string_view what, const T& mine, const T& theirs) {
  if (mine == theirs) return OkStatus();
  return FailedPreconditionError("another {}: {} here, {} there", what, mine, theirs);
}

Status CheckSamePlane(const StatePlane& mine, const StatePlane& theirs) {
  TANDEM_RETURN_IF_ERROR(Same("name", mine.name, theirs.name));
  TANDEM_RETURN_IF_ERROR(Same("type of values", NameOf(mine.dtype), NameOf(theirs.dtype)));
  TANDEM_RETURN_IF_ERROR(Same("tile", NameOfTile(mine.tile), NameOfTile(theirs.tile)));
  return Same("number of values per token and head", mine.dims, theirs.dims);
}

Status CheckSameGroup(const StateGroup& mine, const StateGroup& theirs) {
  TANDEM_RETURN_IF_ERROR(Same("kind", NameOfKind(mine.kind), NameOfKind(theirs.kind)));
  TANDEM_RETURN_IF_ERROR(Same("split of the heads (shards)", mine.shard.world, theirs.shard.world));
  TANDEM_RETURN_IF_ERROR(Same("shard", mine.shard.rank, theirs.shard.rank));
  if (mine.layers != theirs.layers) {
    return FailedPreconditionError("other layers: {} here, {} there", fmt::join(mine.layers, " "),
                                   fmt::join(theirs.layers, " "));
  }
  TANDEM_RETURN_IF_ERROR(Same("number of heads", mine.num_heads, theirs.num_heads));
  TANDEM_RETURN_IF_ERROR(
      Same("number of tokens per block", mine.tokens_per_block, theirs.tokens_per_block));
  TANDEM_RETURN_IF_ERROR(Same("window", mine.window_tokens, theirs.window_tokens));
  TANDEM_RETURN_IF_ERROR(Same("number of planes", mine.planes.size(), theirs.planes.size()));
  for (size_t p = 0; p < mine.planes.size(); ++p) {
    const Status same = CheckSamePlane(mine.planes[p], theirs.planes[p]);
    if (!same.ok()) return same.WithContext(fmt::format("plane '{}'", mine.planes[p].name));
  }
  return OkStatus();
}

}  // namespace

Status HandoffFormat::Validate() const {
  if (groups.empty() || groups.size() > kMaxGroups) {
    return InvalidArgumentError("{} state groups; a hand-off takes 1 to {}", groups.size(),
                                kMaxGroups);
  }
  if (model.size() > kMaxNameBytes || numerics.size() > kMaxNameBytes) {
    return InvalidArgumentError("the names of model and numerics have at most {} bytes",
                                kMaxNameBytes);
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const StateGroup& group = groups[g];
    const std::string context = fmt::format("state group {}", g);
    if (const Status valid = group.Validate(); !valid.ok()) return valid.WithContext(context);
    if (group.layers.size() > kMaxLayers || group.planes.size() > kMaxPlanes) {
      return InvalidArgumentError("{} has {} layers and {} planes; at most {} and {}", context,
                                  group.layers.size(), group.planes.size(), kMaxLayers, kMaxPlanes);
    }
    for (const int32_t layer : group.layers) {
      if (layer < 0 || static_cast<size_t>(layer) >= kMaxLayers) {
        return InvalidArgumentError("{} has a layer {}", context, layer);
      }
    }
    for (const StatePlane& plane : group.planes) {
      if (plane.name.size() > kMaxNameBytes) {
        return InvalidArgumentError("{} has a plane with a name of {} bytes", context,
                                    plane.name.size());
      }
    }
    if (!std::is_sorted(group.layers.begin(), group.layers.end())) {
      return InvalidArgumentError("{} has its layers in no order", context);
    }
  }
  return OkStatus();
}

Status CheckSameFormat(const HandoffFormat& mine, const HandoffFormat& theirs) {
  if (mine.identity != theirs.identity) {
    return FailedPreconditionError("another model: {} ({}) here, {} ({}) there", mine.model,
                                   mine.identity.ToHex(), theirs.model, theirs.identity.ToHex());
  }
  TANDEM_RETURN_IF_ERROR(Same("numerics", mine.numerics, theirs.numerics));
  TANDEM_RETURN_IF_ERROR(Same("number of state groups", mine.groups.size(), theirs.groups.size()));
  for (size_t g = 0; g < mine.groups.size(); ++g) {
    const Status same = CheckSameGroup(mine.groups[g], theirs.groups[g]);
    if (!same.ok()) return same.WithContext(fmt::format("state group {}", g));
  }
  return OkStatus();
}

}  // namespace tandem
