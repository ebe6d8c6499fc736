// Descriptions of regions and engines as peers send them.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fabric/engine_address.h"
#include "fabric/remote_region.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto region = tandem::RemoteRegion::Decode(bytes);
  if (region.ok()) TANDEM_CHECK(region->Encode() == bytes);
  const auto address = tandem::EngineAddress::Decode(bytes);
  if (address.ok()) TANDEM_CHECK(address->Encode() == bytes);
  return 0;
}
