// What: Request: one inference job as it enters the engine, and what comes out of it.
// Not here: text, chat messages, stop strings: the engine sees tokens only (server/ turns them into
//   text).
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/handoff_port.h"
#include "core/sampling_params.h"

namespace tandem {

struct Request {
  RequestId id;
  std::vector<TokenId> prompt;  // at least one token
  // The most tokens to generate. A stated limit is reserved in full and never preempted (spec S6).
  std::optional<int32_t> max_output_tokens;
  std::vector<TokenId>
      stop_tokens;  // generation ends after any of these; it is not part of the output
  SamplingParams sampling;
  uint32_t sample_index = 0;  // tells requests apart that are samples of one prompt and seed
  std::vector<LogitBias> logit_bias;  // each token at most once
  // Log probabilities of the prompt's own tokens but the first, in the shape that
  // sampling.top_logprobs gives, which must not be below 0.
  bool prompt_logprobs = false;
  // Only requests with the same salt share what they have computed; "" is a salt like any other.
  std::string cache_salt;
  TimeNs arrival = 0;  // times of the request count from here
  // Due so long after the arrival (spec S8): the whole answer, and its first token. What is
  // predicted to be late is refused at once; what is accepted runs to its end all the same.
  std::optional<TimeNs> deadline;
  std::optional<TimeNs> ttft_target;
  // Set: the prompt is computed for a decode node. All its tokens are run and nothing is sampled;
  // of the fields above only prompt, cache_salt and arrival count. It ends with kLength once the
  // whole state has been delivered, with kFailed when it cannot be.
  std::optional<SendId> send;
};

// Why an arrival was refused for its deadline. Durations from the arrival.
struct DeadlineRefusal {
  bool first_token = false;  // the first token's target, not the whole answer's
  TimeNs predicted = 0;
  TimeNs allowed = 0;
};

enum class FinishReason : uint8_t {
  kStop,       // a stop token was chosen
  kLength,     // max_output_tokens, or the context is full
  kCancelled,  // by its owner
  kFailed,     // see the status
};

std::string_view NameOf(FinishReason reason);

// All in ns on the engine's clock; 0 when not reached.
struct RequestTimes {
  TimeNs arrival = 0;
  TimeNs admitted = 0;     // first left the queue
  TimeNs first_token = 0;  // committed
  TimeNs finished = 0;
};

// Tokens that a request gained in one commit, and its end.
struct RequestOutput {
  RequestId id;
  std::vector<TokenId> tokens;
  // For each of `tokens` 1 + top_logprobs entries: the token itself, then the likeliest tokens in
  // falling order. Empty when none were asked for.
  std::vector<TokenLogprob> logprobs;
  // The same for prompt tokens 1, 2, ... in their order: what has been run since the last output.
  std::vector<TokenLogprob> prompt_logprobs;
  std::optional<FinishReason> finish;  // set once, in the last output
  std::optional<TokenId> stop_token;   // with kStop: the one of Request::stop_tokens that ended it
  Status status;                       // not ok only with kFailed
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;      // in total so far
  int32_t cached_tokens = 0;      // of the prompt, not computed but found in the prefix cache
  int32_t preemptions = 0;        // so far
  int32_t recomputed_tokens = 0;  // run again after a preemption, so far
  RequestTimes times;
  // Of an arrival that was refused for its deadline, beside a status of RESOURCE_EXHAUSTED.
  std::optional<DeadlineRefusal> refusal;
};

}  // namespace tandem
