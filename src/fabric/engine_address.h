// What: EngineAddress: who an engine is and where its NICs are; the bytes of
//   TransferEngine::address().
// Not here: what a NIC's address means (the NIC).
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

struct EngineAddress {
  struct NicAddress {
    std::string kind;     // Nic::kind()
    std::string address;  // Nic::address()
    bool operator==(const NicAddress&) const = default;
  };
  uint64_t engine = 0;  // drawn at random when it started: another process is another engine
  std::vector<NicAddress> nics;  // 1 to RemoteRegion::kMaxNics
  bool operator==(const EngineAddress&) const = default;

  static constexpr size_t kMaxKindBytes = 15;

  std::string Encode() const;
  // INVALID_ARGUMENT for bytes that Encode does not make.
  static Result<EngineAddress> Decode(std::string_view bytes);
};

}  // namespace tandem
