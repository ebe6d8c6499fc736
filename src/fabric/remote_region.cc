#include "fabric/remote_region.h"

#include "base/check.h"
#include "fabric/wire.h"

namespace tandem {
namespace {

constexpr uint32_t kMagic = 0x31475254;  // "TRG1"

}  // namespace

std::string RemoteRegion::Encode() const {
  TANDEM_CHECK(!nics.empty());
  TANDEM_CHECK_LE(nics.size(), kMaxNics);
  std::string out;
  wire::Append(&out, kMagic);
  wire::Append(&out, bytes);
  wire::Append(&out, static_cast<uint8_t>(nics.size()));
  for (const Nic& nic : nics) {
    TANDEM_CHECK_LE(nic.endpoint.size(), kMaxEndpointBytes);
    wire::Append(&out, nic.base);
    wire::Append(&out, nic.key);
    wire::AppendShort(&out, nic.endpoint);
  }
  return out;
}

Result<RemoteRegion> RemoteRegion::Decode(std::string_view bytes) {
  wire::Reader reader(bytes);
  uint32_t magic = 0;
  uint8_t count = 0;
  RemoteRegion region;
  if (!reader.Read(&magic) || magic != kMagic || !reader.Read(&region.bytes) ||
      !reader.Read(&count) || count == 0 || count > kMaxNics) {
    return InvalidArgumentError("not the description of a remote region");
  }
  for (uint8_t i = 0; i < count; ++i) {
    Nic nic;
    reader.Read(&nic.base);
    reader.Read(&nic.key);
    reader.ReadShort(&nic.endpoint);
    if (nic.endpoint.size() > kMaxEndpointBytes) {
      return InvalidArgumentError("the endpoint of a remote region has {} bytes; at most {}",
                                  nic.endpoint.size(), kMaxEndpointBytes);
    }
    region.nics.push_back(std::move(nic));
  }
  if (!reader.done()) return InvalidArgumentError("the description of a remote region is damaged");
  return region;
}

}  // namespace tandem
