#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "messenger/protocol.h"

// Any bytes are refused or are exactly the bytes of the message that they give.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;  // NOLINT(google-build-using-namespace)
  const std::string_view frame(reinterpret_cast<const char*>(data), size);
  const Result<HandoffMessage> message = DecodeMessage(frame);
  if (message.ok()) TANDEM_CHECK(EncodeMessage(*message) == frame);
  return 0;
}
