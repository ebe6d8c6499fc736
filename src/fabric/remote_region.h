// What: RemoteRegion: what a peer must know to write into a region: how large it is, and its address
//   and key at each NIC of its owner. As bytes it crosses the control connection.
// Not here: registration (transfer_engine.h).
// Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

struct RemoteRegion {
  struct Nic {
    uint64_t base = 0;  // what offset 0 is called there
    uint64_t key = 0;
    bool operator==(const Nic&) const = default;
  };
  uint64_t bytes = 0;
  std::vector<Nic> nics;  // 1 to kMaxNics, in the order of the owner's address
  bool operator==(const RemoteRegion&) const = default;

  static constexpr size_t kMaxNics = 16;

  std::string Encode() const;
  // INVALID_ARGUMENT for bytes that Encode does not make.
  static Result<RemoteRegion> Decode(std::string_view bytes);
};

}  // namespace tandem
