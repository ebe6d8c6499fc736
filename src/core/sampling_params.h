// What: how one request's next token is chosen from its logits.
// Not here: the mathematics (sampling/), when to stop (core/request.h).
// Threads: values.
#pragma once

#include <cstdint>

namespace tandem {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy (the lowest token id wins a tie)
  int32_t top_k = 0;         // 0: no limit
  double top_p = 1.0;        // keep the smallest set whose probability reaches this
  uint64_t seed = 0;         // same seed, same request: same text

  bool greedy() const { return temperature == 0.0; }
  bool operator==(const SamplingParams&) const = default;
};

}  // namespace tandem
