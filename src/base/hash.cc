#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"

namespace tandem {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

std::string Hash128::ToHex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hasher::Hasher() : state_(std::make_unique<State>()) {
  TANDEM_CHECK(state_->xxh != nullptr);
  XXH3_128bits_reset(state_->xxh);
}
Hasher::~Hasher() = default;

void Hasher::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}
void Hasher::Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
void Hasher::Update(uint64_t value) { Update(std::as_bytes(std::span(&value, 1))); }

Hash128 Hasher::Digest() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->xxh);
  return {h.high64, h.low64};
}

Hash128 HashBytes(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

}  // namespace tandem
