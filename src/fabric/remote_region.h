// What: RemoteRegion: what a peer must know to write into a region: how large it is, and its
//   address, key and endpoint at each NIC of its owner. As bytes it crosses the control connection.
// Not here: registration (transfer_engine.h).
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

struct RemoteRegion {
  struct Nic {
    uint64_t base = 0;  // what offset 0 is called there
    uint64_t key = 0;
    // Where its writes go, as the NIC's provider names it; empty: the NIC's own address. An
    // endpoint of the region's own can be closed with it, and with it what is half written.
    std::string endpoint;
    bool operator==(const Nic&) const = default;
  };
  uint64_t bytes = 0;
  std::vector<Nic> nics;  // 1 to kMaxNics, in the order of the owner's address
  bool operator==(const RemoteRegion&) const = default;

  static constexpr size_t kMaxNics = 16;
  static constexpr size_t kMaxEndpointBytes = 64;

  // Requires the limits above.
  std::string Encode() const;
  // INVALID_ARGUMENT for bytes that Encode does not make.
  static Result<RemoteRegion> Decode(std::string_view bytes);
};

}  // namespace tandem
