#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/openai_request.h"
#include "text/unicode.h"

// Any bytes give a request within its limits or an error that can be sent.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  ApiResult<ChatRequest> result =
      ParseChatRequest(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!result.ok()) {
    TANDEM_CHECK_EQ(result.error().http_status, 400);
    TANDEM_CHECK(!result.error().message.empty());
    TANDEM_CHECK(IsValidUtf8(ToJson(result.error())));
    return 0;
  }
  const ChatRequest& request = result.value();
  TANDEM_CHECK(!request.messages.empty());
  TANDEM_CHECK_LE(request.stop.size(), kStopStringsMax);
  TANDEM_CHECK(!request.max_tokens || *request.max_tokens >= 1);
  TANDEM_CHECK(!request.top_p || (*request.top_p > 0 && *request.top_p <= 1));
  TANDEM_CHECK(!request.temperature || (*request.temperature >= 0 && *request.temperature <= 2));
  return 0;
}
