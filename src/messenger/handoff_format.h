// What: HandoffFormat: what two nodes must have in common before state of one means anything to the
//   other: model, numerics, and every state group with its planes, tiles and shard (spec K12, H3).
// Not here: which page lies where (page_map.h), the bytes of the hello (protocol.h).
// Threads: values.
#pragma once

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "tensor/state_group.h"

namespace tandem {

struct HandoffFormat {
  std::string model;     // its name, for people; not compared
  Hash128 identity;      // of its content
  std::string numerics;  // the numerics id
  std::vector<StateGroup> groups;

  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxLayers = 4095;  // what the layer counter counts to
  static constexpr size_t kMaxPlanes = 8;
  static constexpr size_t kMaxNameBytes = 256;

  // Names the first thing that makes no sense or exceeds a limit.
  Status Validate() const;
};

// FAILED_PRECONDITION with the first difference by name and both values.
Status CheckSameFormat(const HandoffFormat& mine, const HandoffFormat& theirs);

}  // namespace tandem
