#include "fabric/engine_address.h"

#include "base/check.h"
#include "fabric/nic.h"
#include "fabric/wire.h"

namespace tandem {
namespace {

constexpr uint32_t kMagic = 0x31454154;  // "TAE1"

}  // namespace

std::string EngineAddress::Encode() const {
  TANDEM_CHECK(!nics.empty() && nics.size() <= RemoteRegion::kMaxNics);
  std::string out;
  wire::Append(&out, kMagic);
  wire::Append(&out, engine);
  wire::Append(&out, static_cast<uint8_t>(nics.size()));
  for (const NicAddress& nic : nics) {
    TANDEM_CHECK_LE(nic.kind.size(), kMaxKindBytes);
    TANDEM_CHECK_LE(nic.address.size(), Nic::kMaxAddressBytes);
    wire::AppendShort(&out, nic.kind);
    wire::AppendShort(&out, nic.address);
  }
  return out;
}

Result<EngineAddress> EngineAddress::Decode(std::string_view bytes) {
  wire::Reader reader(bytes);
  uint32_t magic = 0;
  uint8_t count = 0;
  EngineAddress out;
  if (!reader.Read(&magic) || magic != kMagic || !reader.Read(&out.engine) ||
      !reader.Read(&count) || count == 0 || count > RemoteRegion::kMaxNics) {
    return InvalidArgumentError("not the address of a transfer engine");
  }
  for (uint8_t i = 0; i < count; ++i) {
    NicAddress nic;
    reader.ReadShort(&nic.kind);
    reader.ReadShort(&nic.address);
    if (nic.kind.size() > kMaxKindBytes || nic.address.size() > Nic::kMaxAddressBytes) {
      return InvalidArgumentError("the address of a transfer engine is damaged");
    }
    out.nics.push_back(std::move(nic));
  }
  if (!reader.done()) return InvalidArgumentError("the address of a transfer engine is damaged");
  return out;
}

}  // namespace tandem
