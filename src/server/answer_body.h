// What: AnswerBody: the outputs of a request's choices to the JSON of its answer, whole or as the
//   events of a stream; AnswerFrame: what all objects of one answer have in common.
// Not here: the shapes of the endpoints (chat_answer.h, completion_answer.h), when it is sent
//   (answer.h). Included by the server's .cc files only.
// Threads: an AnswerBody belongs to one thread.
// Invariants: a stream's pieces join to what the whole answer says, for every cut of the outputs.
// Cost: of a chunk: its own JSON; what all chunks repeat is rendered once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/generation.h"
#include "server/generation_fields.h"
#include "server/json_body.h"

namespace tandem {

// What every object of one answer repeats.
struct AnswerIdentity {
  std::string id;
  int64_t created_s = 0;
  std::string model;
  std::string system_fingerprint;
};

// "data: JSON\n\n"
std::string ServerSentEvent(std::string_view json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// "stop" or "length"; requires one of those two reasons.
std::string_view OpenAiFinishReason(FinishReason reason);
// vLLM's "stop_reason": a text, a token id or null.
Json StopReasonJson(const StopReason& reason);

// Where the time of a request went, all its choices taken together.
struct RequestTiming {
  TimeNs queue = 0;    // from its arrival to the first choice's leaving the queue
  TimeNs prefill = 0;  // from there to the first token
  TimeNs decode = 0;   // from there to the last choice's end
  int32_t recomputed_tokens = 0;
};

// What an answer has used, once it is complete.
struct FinalUsage {
  Usage usage;
  RequestTiming timing;
};

class AnswerFrame {
 public:
  AnswerFrame(const AnswerIdentity& identity, std::string_view object,
              std::string_view chunk_object, UsageMode usage_mode);

  std::string Whole(Json choices, const FinalUsage& usage, const Json& more) const;
  // One event with one choice, and more members of the object (empty: none).
  std::string Chunk(const Json& choice, const Usage& so_far, const Json& more) const;
  // The chunk without choices.
  std::string UsageChunk(const FinalUsage& usage) const;

 private:
  const Json identity_;
  const std::string object_;
  std::string chunk_head_;  // up to and with "choices":
  const UsageMode usage_mode_;
};

class AnswerBody {
 public:
  virtual ~AnswerBody() = default;

  // Takes the next output of a choice; the last has finish kStop or kLength. `so_far` counts all
  // choices. Returns a stream's events, which may be none; nothing for a whole answer.
  virtual std::string Append(size_t choice, const TextOutput& output, const Usage& so_far) = 0;
  // Of a stream with usage at its end.
  virtual std::string UsageEvent(const FinalUsage& usage) const = 0;
  // The whole answer, once each choice has had its last output.
  virtual std::string Whole(const FinalUsage& usage) = 0;
};

}  // namespace tandem
