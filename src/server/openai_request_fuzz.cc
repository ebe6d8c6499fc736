#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/tokenize_request.h"
#include "text/unicode.h"

namespace tandem {
namespace {

template <typename Request>
bool IsParsed(ApiResult<Request>& result) {
  if (result.ok()) return true;
  TANDEM_CHECK_EQ(result.error().http_status, 400);
  TANDEM_CHECK(!result.error().message.empty());
  TANDEM_CHECK(IsValidUtf8(ToJson(result.error())));
  return false;
}

void CheckShared(const GenerationFields& fields) {
  TANDEM_CHECK_LE(fields.stop.size(), kStopStringsMax);
  TANDEM_CHECK(fields.n >= 1 && fields.n <= kSamplesMax);
  TANDEM_CHECK(!fields.top_p || (*fields.top_p > 0 && *fields.top_p <= 1));
  TANDEM_CHECK(!fields.temperature || (*fields.temperature >= 0 && *fields.temperature <= 2));
  TANDEM_CHECK(!fields.repetition_penalty || *fields.repetition_penalty > 0);
  TANDEM_CHECK_LE(fields.logit_bias.size(), static_cast<size_t>(kMaxLogitBias));
}

}  // namespace
}  // namespace tandem

// Any bytes give a request within its limits or an error that can be sent.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  if (auto chat = ParseChatRequest(body); IsParsed(chat)) {
    CheckShared(chat.value());
    TANDEM_CHECK(!chat.value().messages.empty());
    TANDEM_CHECK(!chat.value().max_tokens || *chat.value().max_tokens >= 1);
  }
  if (auto completion = ParseCompletionRequest(body); IsParsed(completion)) {
    const CompletionRequest& request = completion.value();
    CheckShared(request);
    TANDEM_CHECK(!request.prompts.empty());
    TANDEM_CHECK_LE(request.prompts.size() * static_cast<size_t>(request.n),
                    static_cast<size_t>(kChoicesMax));
  }
  if (auto tokenize = ParseTokenizeRequest(body); IsParsed(tokenize)) {
    TANDEM_CHECK_EQ(tokenize.value().prompt.has_value(), tokenize.value().messages.empty());
  }
  auto detokenize = ParseDetokenizeRequest(body);
  (void)IsParsed(detokenize);
  return 0;
}
