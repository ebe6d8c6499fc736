// What: chat completions as JSON text: the whole object, and the chunks of a stream as server-sent
//   events.
// Not here: when they are sent (chat_completion.h), errors (api_error.h).
// Threads: values and pure functions.
// Cost: of a chunk: one escaped copy of its delta; everything else is rendered once for the stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/request.h"
#include "server/generation.h"

namespace tandem {

// What every object of one answer repeats.
struct AnswerIdentity {
  std::string id;
  int64_t created_s = 0;
  std::string model;
  std::string system_fingerprint;
};

// "stop" or "length"; requires one of those two reasons.
std::string_view OpenAiFinishReason(FinishReason reason);

std::string ChatCompletionJson(const AnswerIdentity& identity, std::string_view text,
                               FinishReason reason, const Usage& usage);

// "data: JSON\n\n"
std::string ServerSentEvent(std::string_view json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// Each method returns one event.
class ChatChunks {
 public:
  // With `include_usage` every chunk has "usage": null, and Usage() is to follow Finish().
  ChatChunks(const AnswerIdentity& identity, bool include_usage);

  std::string Role() const;
  std::string Content(std::string_view delta) const;
  std::string Finish(FinishReason reason) const;
  std::string UsageChunk(const Usage& usage) const;

 private:
  std::string Chunk(std::string_view delta_json, std::string_view finish_json) const;

  std::string head_;  // up to and with "choices":
  std::string_view tail_;
};

}  // namespace tandem
