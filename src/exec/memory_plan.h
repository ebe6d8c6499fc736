// What: MemoryPlan: the terms M_w + M_KV + M_a + M_u of a configuration against the memory it may
//   use, before anything is allocated.
// Not here: allocation (Rank), reading the machine's limits (os/memory.h).
// Threads: values.
// Based on: spec S5.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/state_group.h"

namespace tandem {

struct MemoryPlan {
  int64_t limit = 0;        // C, bytes
  int64_t weights = 0;      // M_w: packed weights resident for all ranks
  int64_t kv = 0;           // M_KV: block pools
  int64_t activations = 0;  // M_a: workspaces, logits
  int64_t runtime = 0;  // M_u: prepared buffers, tables, and a fixed share for program and threads
  std::string_view kv_type = {};  // "f16": what M_KV is stored in

  int64_t total() const { return weights + kv + activations + runtime; }
  // RESOURCE_EXHAUSTED names the first term, in the order above, that no longer fits, with the
  // numbers and the flags that change it.
  Status Check() const;
  // "memory: weights 98.0 MiB + f16 KV 360.0 MiB + activations 12.1 MiB + runtime 32.0 MiB = 502.1
  // MiB of 23.4 GiB"
  std::string ToText() const;
};

// Program text, tokenizer, stacks, HTTP buffers: what no formula of ours counts. Measured 40 MiB
// with SmolLM2.
inline constexpr int64_t kProcessBytes = int64_t{64} << 20;

// "1.5 GiB", "12.0 MiB", "640 B".
std::string FormatBytes(int64_t bytes);
// "8GiB", "512M", "1.5g", "1000000": binary multiples. INVALID_ARGUMENT shows the form.
Result<int64_t> ParseBytes(const std::string& text);

// Blocks per group so that `sequences` contexts of `max_context` tokens fit, but no more bytes than
// `kv_bytes` (shared over the groups in proportion to their bytes per token). RESOURCE_EXHAUSTED
// when `kv_bytes` does not hold even one sequence of `min_context` tokens.
Result<std::vector<int32_t>> ChooseBlocks(std::span<const StateGroup> groups, int64_t kv_bytes,
                                          int32_t sequences, int32_t max_context,
                                          int32_t min_context);

}  // namespace tandem
