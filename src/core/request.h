// What: Request: one inference job as it enters the engine, and what comes out of it.
// Not here: text, chat messages, stop strings: the engine sees tokens only (server/ turns them into
//   text).
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
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
  TimeNs arrival = 0;  // times of the request count from here
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
  Status status;                       // not ok only with kFailed
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;  // in total so far
  RequestTimes times;
};

}  // namespace tandem
