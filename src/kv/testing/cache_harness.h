// What: small groups, tokens and a CacheHarness (pools, prefix cache, requests that run alone) for
//   the tests of kv/.
// Not here: cases.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/cost.h"
#include "core/model_spec.h"
#include "kv/prefix_cache.h"
#include "kv/state_pools.h"

namespace tandem::testing {

inline StateGroupBlocks Group(int32_t tokens_per_block, int32_t num_blocks, int32_t window = 0) {
  StateGroup group;
  group.kind = window > 0 ? StateKind::kWindow : StateKind::kPaged;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"k", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = tokens_per_block;
  group.window_tokens = window;
  return {group, num_blocks};
}

// `count` tokens first, first + 1, ...
inline std::vector<TokenId> Range(int32_t first, int64_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.emplace_back(first + i);
  return tokens;
}

inline std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline PrefixIdentity Tenant(std::string salt) {
  PrefixIdentity identity;
  identity.model = {1, 2};
  identity.tenant_salt = std::move(salt);
  return identity;
}

// Qwen3-8B, and seconds from the engine's own count of operations at a rate per second.
inline ModelSpec ChapterModel() {
  ModelSpec spec;
  spec.num_layers = 36;
  spec.hidden_dim = 4096;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.ffn_dim = 12288;
  spec.vocab_size = 151936;
  return spec;
}

inline StateGroupBlocks ChapterGroup(int32_t num_blocks) {
  const ModelSpec spec = ChapterModel();
  StateGroup group;
  for (int32_t l = 0; l < spec.num_layers; ++l) group.layers.push_back(l);
  group.num_heads = spec.num_kv_heads;
  group.planes = {{"k", DType::kBF16, TileLayout::kTokenMajor, spec.head_dim},
                  {"v", DType::kBF16, TileLayout::kTokenMajor, spec.head_dim}};
  group.tokens_per_block = 16;
  return {group, num_blocks};
}

inline StepCost ChapterCost(int64_t begin, int64_t end) {
  const StateGroup groups[] = {ChapterGroup(1).group};
  static const ModelCost model = CostOfModel(ChapterModel(), groups, 0, 0);
  static StepPlan plan{.rows = {PlanRow{}}};
  plan.rows[0].position = static_cast<int32_t>(begin);
  plan.rows[0].num_tokens = static_cast<int32_t>(end - begin);
  return CostOfStep(model, plan);
}

inline RetentionCosts ChapterCosts(double flops_per_s) {
  RetentionCosts costs;
  costs.recompute_s = [flops_per_s](int64_t begin, int64_t end) {
    return ChapterCost(begin, end).flops / flops_per_s;
  };
  return costs;
}

// One nanosecond per causal pair and a thousand per token.
inline double TestRecomputeS(int64_t begin, int64_t end) {
  const auto n = static_cast<double>(end - begin);
  const auto h = static_cast<double>(begin);
  return 1e-6 * n + 1e-9 * (n * h + n * (n + 1) / 2);
}

inline PrefixCache::Options TestOptions(RetentionKind kind = RetentionKind::kLru) {
  PrefixCache::Options options;
  options.retention = kind;
  options.costs.recompute_s = &TestRecomputeS;
  options.key = {11, 13};
  return options;
}

// A sequence that runs.
struct RunningSequence {
  SequenceBlocks blocks;
  std::vector<TokenId> tokens;
  PrefixHit hit;
  SlotId slot;
};

class CacheHarness {
 public:
  explicit CacheHarness(std::vector<StateGroupBlocks> groups,
                        PrefixCache::Options options = TestOptions(),
                        int32_t max_uncommitted = 1 << 20)
      : pools(groups, max_uncommitted, 2), cache(&pools, std::move(options)) {}

  // Starts a request and computes all its tokens, as far as `computed` (-1: all); null when the
  // pools have too few blocks.
  std::unique_ptr<RunningSequence> Start(const PrefixIdentity& identity,
                                         std::vector<TokenId> tokens, int64_t computed = -1,
                                         uint64_t owner = 0) {
    auto s = std::make_unique<RunningSequence>(RunningSequence{
        pools.MakeSequence(static_cast<int64_t>(tokens.size()) + 4096), std::move(tokens), {}, {}});
    const auto all = static_cast<int64_t>(s->tokens.size());
    s->slot = SlotId(next_slot_++);
    s->hit = cache.Find(identity, s->tokens);
    plan.Clear();
    plan.step = StepId(step_ + 1);
    if (!cache.Admit(identity, s->hit, s->tokens, all, owner, s->slot, &s->blocks, &plan)) {
      return nullptr;
    }
    Compute(s.get(), computed < 0 ? all : computed);
    return s;
  }

  // Computes and commits tokens up to position `end`, in one step.
  void Compute(RunningSequence* s, int64_t end) {
    plan.step = StepId(++step_);
    TANDEM_CHECK(pools.Grow(&s->blocks, end, s->slot, &plan) == Growth::kDone);
    pools.CompleteSteps(StepId(step_));
    cache.Commit(&s->blocks, s->tokens, end, StepId(step_));
  }

  void Finish(std::unique_ptr<RunningSequence> s) {
    cache.Release(&s->blocks, s->tokens, StepId(step_));
  }

  // A whole request and its outputs, of which the last one's state is never computed; what it
  // found.
  PrefixHit Run(const PrefixIdentity& identity, std::vector<TokenId> tokens,
                const std::vector<TokenId>& outputs = {}) {
    std::unique_ptr<RunningSequence> s = Start(identity, std::move(tokens));
    TANDEM_CHECK(s != nullptr);
    const PrefixHit hit = s->hit;
    if (!outputs.empty()) {
      s->tokens = Join(std::move(s->tokens), outputs);
      Compute(s.get(), static_cast<int64_t>(s->tokens.size()) - 1);
    }
    Finish(std::move(s));
    return hit;
  }

  uint64_t step() const { return step_; }

  StatePools pools;
  PrefixCache cache;
  StepPlan plan;  // of the last start or step

 private:
  uint64_t step_ = 0;
  int32_t next_slot_ = 0;
};

}  // namespace tandem::testing
