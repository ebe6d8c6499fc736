// What: requests whose prompts begin alike by family, and the configuration of the engine that the
//   tests of sharing and hand-off run them on.
// Not here: the driver (driver.h).
// Threads: values.
#pragma once

#include "engine/engine.h"
#include "engine/testing/driver.h"

namespace tandem::testing {

inline constexpr int32_t kFamilyVocab = 1000;

inline EngineConfig CachingConfig(int32_t blocks = 400) {
  EngineConfig config;
  config.groups = {PagedGroup(16, blocks)};
  config.context_length = 2048;
  config.vocab_size = kFamilyVocab;
  config.pipeline_depth = 1;
  config.max_running = 16;
  config.token_budget = 256;
  config.chunk_tokens = 256;
  config.prefix_cache = PrefixCaching{.key = {1, 2}};
  return config;
}

// `shared` tokens that depend on `family`, then `own` that depend on `id`.
inline Request Prompt(uint64_t id, int32_t family, int32_t shared, int32_t own, int32_t limit = 4) {
  Request request;
  request.id = RequestId(id);
  request.max_output_tokens = limit;
  for (int32_t i = 0; i < shared; ++i) {
    request.prompt.push_back(TokenId((family * 7 + i * 13) % kFamilyVocab));
  }
  for (int32_t i = 0; i < own; ++i) {
    request.prompt.push_back(TokenId((static_cast<int32_t>(id) * 31 + i) % kFamilyVocab));
  }
  return request;
}

}  // namespace tandem::testing
