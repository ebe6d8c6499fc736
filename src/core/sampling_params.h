// What: how one request's next token is chosen from its logits, and what is reported about the
//   choice.
// Not here: the mathematics (sampling/), when to stop (core/request.h).
// Threads: values.
// Invariants: SamplingParams is trivially copyable: it travels to the device as bytes.
// Based on: the parameters of the OpenAI API and vLLM's extensions of it.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tandem {

// The likeliest tokens that one request may ask for at each position.
inline constexpr int32_t kMaxTopLogprobs = 20;
// Entries of one request's logit bias: OpenAI's documented use is a few, its clients send hundreds.
inline constexpr int32_t kMaxLogitBias = 1024;
// Stop tokens of one request: they are compared one by one for every token.
inline constexpr int32_t kMaxStopTokens = 64;

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy (the lowest token id wins a tie)
  int32_t top_k = 0;         // 0: no limit
  double top_p = 1.0;        // keep the smallest set whose probability reaches this
  double min_p = 0.0;        // drop what is less likely than this times the likeliest
  // Over tokens of prompt and output: a positive logit is divided by it, a negative one multiplied.
  double repetition_penalty = 1.0;
  // Over tokens of the output: subtracted once, and once per occurrence.
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  // None of the request's stop tokens is chosen before so many outputs.
  int32_t min_tokens = 0;
  // Log probabilities (of the raw logits, before anything above) of each chosen token and of this
  // many likeliest ones; at most kMaxTopLogprobs. Below 0: none at all.
  int32_t top_logprobs = -1;
  uint64_t seed = 0;  // same seed, same request: same text

  bool greedy() const { return temperature == 0.0; }
  bool wants_logprobs() const { return top_logprobs >= 0; }
  // Tokens that came before change the choice.
  bool uses_history() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
  bool operator==(const SamplingParams&) const = default;
};

// Added to the raw logit of one token.
struct LogitBias {
  TokenId token;
  float bias = 0;
  bool operator==(const LogitBias&) const = default;
};

// One token's natural log probability under a row's raw logits.
struct TokenLogprob {
  TokenId token;
  float logprob = 0;
  int32_t rank = 0;  // 1: the likeliest
  bool operator==(const TokenLogprob&) const = default;
};

}  // namespace tandem
