#include "plan/scenario.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "core/cost.h"
#include "plan/wide_int.h"

namespace tandem {
namespace {

constexpr int64_t kMaxBlocks = int64_t{1} << 24;
// Block tables are allocated at their largest: 1 GiB.
constexpr int64_t kMaxTableEntries = int64_t{1} << 28;

// The positions that a request ever stores: its last output is never run.
int64_t StoredTokens(const ScenarioRequest& r) {
  const int64_t outputs = r.max_tokens.value_or(r.output_tokens + 1);
  return int64_t{r.prompt_tokens} + outputs - 1;
}

int64_t LongestContext(const Scenario& s) {
  int64_t longest = 1;
  for (const ScenarioRequest& r : s.requests) longest = std::max(longest, StoredTokens(r));
  return longest + 1;
}

StateGroup GroupOf(const Scenario& s) {
  // Nobody reads the bytes: one layer and plane that has the model's size per token. A value that
  // no number of 4-byte values has is rounded up; all figures in bytes come from ModelFigures.
  StateGroup group;
  group.layers = {0};
  group.num_heads = 1;
  group.tokens_per_block = s.block_tokens;
  group.planes = {{"kv", DType::kF32, TileLayout::kTokenMajor,
                   static_cast<int32_t>((s.model.kv_bytes_per_token + 3) / 4)}};
  return group;
}

}  // namespace

TimeNs UnloadedTime(const Scenario& s, const ScenarioRequest& r) {
  const bool chunked = s.policy == Policy::kChunked;
  const int64_t chunk = chunked ? std::min(s.chunk_tokens, s.token_budget) : r.prompt_tokens;
  const int64_t whole = r.prompt_tokens / chunk;
  const int64_t rest = r.prompt_tokens % chunk;
  const int64_t decodes = r.output_tokens - 1;
  const int64_t steps = whole + (rest > 0) + decodes;
  const int64_t tokens = whole * PaddedTokens(s.prepared_tokens, chunk) +
                         PaddedTokens(s.prepared_tokens, rest) +
                         decodes * PaddedTokens(s.prepared_tokens, 1);
  // However a prompt is cut, it has the same pairs; an answer's tokens go on where it ends.
  const int64_t pairs = CausalPairs(int64_t{r.prompt_tokens} + decodes, 0);
  const WideInt time = WideInt{steps} * s.step.base_ns + WideInt{tokens} * s.step.token_ns +
                       WideInt{pairs} * s.step.pair_ns;
  return static_cast<TimeNs>(std::min<WideInt>(time, kMaxSimulatedTime));
}

void AddWorkload(const Workload& w, Scenario* s) {
  TANDEM_CHECK_GT(w.rate_per_s, 0);
  SplitMix64 random(w.seed);
  double at_s = 0;
  const auto uniform = [&](int32_t least, int32_t most) {
    TANDEM_CHECK_LE(least, most);
    return least + static_cast<int32_t>(random.Below(static_cast<uint64_t>(most - least) + 1));
  };
  s->requests.reserve(s->requests.size() + static_cast<size_t>(w.count));
  for (int32_t i = 0; i < w.count; ++i) {
    at_s += -std::log(1 - random.NextDouble()) / w.rate_per_s;
    ScenarioRequest r;
    r.id = fmt::format("w{}", i);
    r.arrival =
        static_cast<TimeNs>(std::min(at_s * kNsPerS, static_cast<double>(kMaxSimulatedTime)));
    r.prompt_tokens = uniform(w.prompt_tokens_min, w.prompt_tokens_max);
    r.output_tokens = uniform(w.output_tokens_min, w.output_tokens_max);
    r.max_tokens = r.output_tokens;
    if (w.deadline_factor > 0) {
      const double due = w.deadline_factor * static_cast<double>(UnloadedTime(*s, r));
      r.deadline = static_cast<TimeNs>(std::min(due, static_cast<double>(kMaxSimulatedTime)));
    }
    s->requests.push_back(std::move(r));
  }
}

Result<SchedulerConfig> ConfigOf(const Scenario& s) {
  SchedulerConfig config;
  const int64_t block_bytes = s.model.kv_bytes_per_token * s.block_tokens;
  const int64_t context = LongestContext(s);
  const int64_t per_request = (context - 1 + s.block_tokens - 1) / s.block_tokens;
  const int64_t together = std::min<int64_t>(
      s.max_sequences, std::max<int64_t>(1, static_cast<int64_t>(s.requests.size())));
  int64_t blocks = per_request * together;
  if (s.kv_capacity_bytes) {
    blocks = *s.kv_capacity_bytes / block_bytes - s.reserved_blocks;
    if (blocks <= 0) {
      return ResourceExhaustedError("kv_capacity_bytes {} hold no block of {} bytes",
                                    *s.kv_capacity_bytes, block_bytes);
    }
  }
  if (blocks > kMaxBlocks) {
    return OutOfRangeError(
        "{} blocks of KV, at most {} can be simulated; larger block_tokens make "
        "them fewer",
        blocks, kMaxBlocks);
  }
  if (together * per_request > kMaxTableEntries) {
    return OutOfRangeError(
        "{} sequences of up to {} blocks, at most {} blocks can be listed; larger block_tokens or "
        "fewer max_sequences make them fewer",
        together, per_request, kMaxTableEntries);
  }
  if (s.policy == Policy::kChunked && s.token_budget < together) {
    return InvalidArgumentError(
        "token_budget is {}, but {} sequences may run (max_sequences), and each of them takes a "
        "token "
        "in every step: make it at least as many",
        s.token_budget, together);
  }
  config.groups = {{GroupOf(s), static_cast<int32_t>(blocks)}};
  config.context_length = static_cast<int32_t>(context);
  config.vocab_size = 1 << 24;
  config.pipeline_depth = s.pipeline_depth;
  config.policy = s.policy;
  config.max_running = static_cast<int32_t>(together);
  config.token_budget = s.token_budget;
  config.chunk_tokens = s.chunk_tokens;
  config.itl_target = s.itl_target;
  if (!s.learn_cost) config.cost = s.step.law();
  config.prepared_tokens = s.prepared_tokens;
  config.reservation = s.reservation;
  config.reserve_tokens = s.reserve_tokens;
  config.preemption = s.preemption;
  config.heed_deadlines = s.heed_deadlines;
  config.max_queue = s.max_queue;
  TANDEM_RETURN_IF_ERROR(config.Validate());
  return config;
}

}  // namespace tandem
