// What: random prompts and requests of mixed length for tests of numbers: request 0 is the one
//   under test, the others keep it company.
// Not here: models and engines (model_under_test.h).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "tests/support/model_under_test.h"

namespace tandem {

inline std::vector<TokenId> RandomPrompt(uint64_t seed, int32_t vocab, int32_t length) {
  SplitMix64 random(seed);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) {
    prompt.push_back(TokenId(static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab)))));
  }
  return prompt;
}

// `first` and count - 1 others with its parameters, which differ in length, so that rows of every
// kind meet in a step.
inline std::vector<TestRequest> WithCompany(const TestRequest& first, int32_t count,
                                            int32_t vocab) {
  std::vector<TestRequest> requests = {first};
  const auto length = static_cast<int32_t>(first.prompt.size());
  for (int32_t i = 1; i < count; ++i) {
    TestRequest other = first;
    other.prompt = RandomPrompt(static_cast<uint64_t>(i) + 1, vocab, 1 + (i * 13) % length);
    other.output_tokens = first.output_tokens == 0 ? 0 : 1 + (i * 7) % first.output_tokens;
    requests.push_back(std::move(other));
  }
  return requests;
}

}  // namespace tandem
