#include "fabric/remote_region.h"

#include <cstddef>

namespace tandem {
namespace {

constexpr size_t kHeader = 8 + 1;
constexpr size_t kNicBytes = 16;

void Put(uint64_t value, std::string* out) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

uint64_t Take(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

}  // namespace

std::string RemoteRegion::Encode() const {
  std::string out;
  Put(bytes, &out);
  out.push_back(static_cast<char>(nics.size()));
  for (const Nic& nic : nics) {
    Put(nic.base, &out);
    Put(nic.key, &out);
  }
  return out;
}

Result<RemoteRegion> RemoteRegion::Decode(std::string_view bytes) {
  if (bytes.size() < kHeader) return InvalidArgumentError("a remote region is cut short");
  const auto count = static_cast<uint8_t>(bytes[8]);
  if (count == 0 || count > kMaxNics || bytes.size() != kHeader + count * kNicBytes) {
    return InvalidArgumentError("a remote region of {} NICs has {} bytes", count, bytes.size());
  }
  RemoteRegion region;
  region.bytes = Take(bytes, 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = kHeader + i * kNicBytes;
    region.nics.push_back({Take(bytes, at), Take(bytes, at + 8)});
  }
  return region;
}

}  // namespace tandem
