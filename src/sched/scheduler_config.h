// What: SchedulerConfig: every number that scheduling decisions depend on, apart from the events.
// Not here: reading flags (cli/), sizes in bytes (cli/ turns the KV budget into blocks).
// Threads: values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kv/state_pools.h"

namespace tandem {

struct SchedulerConfig {
  // The model's state groups in GroupId order, each with the blocks of its pool.
  std::vector<StateGroupBlocks> groups;

  // The most tokens (prompt + output) of one request that the model allows.
  int32_t context_length = 0;
  // Prompts may hold token ids 0 .. vocab_size-1.
  int32_t vocab_size = 0;

  // Steps that are submitted before the tokens of their predecessor are known: 0 waits for every
  // result; 1 hides the host's work behind the device's and wastes one row per request that stops
  // by itself.
  int32_t pipeline_depth = 1;

  // The three limits of a step (spec S2), independent of each other. 16 rows keep the weights'
  // reads of a small CPU model amortised; 512 tokens are a step of tens of ms there; a chunk may
  // take the whole budget.
  int32_t max_running = 16;
  int32_t token_budget = 512;  // at least max_running: every running request decodes in every step
  int32_t chunk_tokens = 512;

  // A request without a stated limit is promised its prompt and this many tokens more; beyond them
  // it grows on demand and may be preempted (spec S6). 0: blocks for the known tokens only.
  int32_t reserve_tokens = 1024;

  // Arrivals are refused while this many requests wait.
  int32_t max_queue = 1024;

  // Names the first field that makes no sense.
  Status Validate() const;
};

// A request may name at most this many stop tokens: they are compared one by one for every token.
inline constexpr int32_t kMaxStopTokens = 64;

}  // namespace tandem
