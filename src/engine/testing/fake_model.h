// What: the model of the engine's tests: every token and every log probability is a hash of the
//   history before it; so what a request must answer and report is known without running it. Also
//   state groups of two kinds.
// Not here: who runs it (verifying_executor.h).
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/request.h"
#include "kv/state_pools.h"

namespace tandem::testing {

inline uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 33);
}

inline uint64_t HashTokens(std::span<const TokenId> tokens) {
  uint64_t hash = 1;
  for (TokenId t : tokens) hash = MixHash(hash, static_cast<uint64_t>(t.value()));
  return hash;
}

// The token after a history with this hash.
inline TokenId FakeToken(uint64_t history_hash, const SamplingParams& sampling, int32_t vocab) {
  const uint64_t draw = MixHash(history_hash, sampling.seed);
  return TokenId(static_cast<int32_t>(draw % static_cast<uint64_t>(vocab)));
}

// What `request` must answer when it runs alone, and whatever else runs.
inline std::vector<TokenId> ExpectedAnswer(const Request& request, int32_t max_context,
                                           int32_t vocab) {
  std::vector<TokenId> answer;
  uint64_t hash = HashTokens(request.prompt);
  const int32_t room = max_context - static_cast<int32_t>(request.prompt.size());
  const int32_t most = request.max_output_tokens.value_or(room);
  while (static_cast<int32_t>(answer.size()) < most) {
    const TokenId token = FakeToken(hash, request.sampling, vocab);
    if (std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token) > 0) break;
    answer.push_back(token);
    hash = MixHash(hash, static_cast<uint64_t>(token.value()));
  }
  return answer;
}

// The entries for `token` behind a history with this hash.
inline void AppendFakeLogprobs(uint64_t history_hash, TokenId token, int32_t num_top, int32_t vocab,
                               std::vector<TokenLogprob>* out) {
  const uint64_t draw = MixHash(history_hash, static_cast<uint64_t>(token.value()) + 7);
  out->push_back({token, -static_cast<float>(draw % 1000) / 8, 1 + static_cast<int32_t>(draw % 9)});
  for (int32_t i = 0; i < num_top; ++i) {
    const uint64_t id = (history_hash + static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab);
    out->push_back({TokenId(static_cast<int32_t>(id)), static_cast<float>(-i), i + 1});
  }
}

struct ExpectedLogprobs {
  std::vector<TokenLogprob> prompt;
  std::vector<TokenLogprob> answer;
};
// What `request` must report about its prompt and about `answer`, a beginning of its answer.
inline ExpectedLogprobs LogprobsOf(const Request& request, std::span<const TokenId> answer,
                                   int32_t vocab) {
  ExpectedLogprobs out;
  const int32_t num_top = request.sampling.top_logprobs;
  if (num_top < 0) return out;
  uint64_t hash = HashTokens(std::span(request.prompt).first(1));
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    if (request.prompt_logprobs) {
      AppendFakeLogprobs(hash, request.prompt[i], num_top, vocab, &out.prompt);
    }
    hash = MixHash(hash, static_cast<uint64_t>(request.prompt[i].value()));
  }
  for (const TokenId token : answer) {
    AppendFakeLogprobs(hash, token, num_top, vocab, &out.answer);
    hash = MixHash(hash, static_cast<uint64_t>(token.value()));
  }
  return out;
}

inline StateGroupBlocks PagedGroup(int32_t tokens_per_block, int32_t num_blocks) {
  StateGroup group;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"k", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = tokens_per_block;
  return {group, num_blocks};
}

inline StateGroupBlocks WindowGroup(int32_t tokens_per_block, int32_t num_blocks, int32_t window) {
  StateGroupBlocks blocks = PagedGroup(tokens_per_block, num_blocks);
  blocks.group.kind = StateKind::kWindow;
  blocks.group.window_tokens = window;
  return blocks;
}

}  // namespace tandem::testing
