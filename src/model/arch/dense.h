// What: the dense decoder: pre-norm transformer with rotary positions, grouped-query attention and
//   SwiGLU. Llama; Qwen2, which adds biases to q, k and v; Qwen3, which normalises each head of q
//   and k. One graph for the three, since they differ only between the projections and attention,
//   in what one op does (RopeStore) with weights that are there or not: a graph per family would
//   be the same text three times.
// Not here: batching, blocks, sampling, files; which family has what (model/family.h).
// Threads: as Model.
// Based on: Touvron et al., "LLaMA" (2302.13971) and "Llama 2" (2307.09288); the Qwen2 (2407.10671)
//   and Qwen3 (2505.09388) technical reports; names of tensors as in GGUF files.
#pragma once

#include <memory>
#include <vector>

#include "model/arena.h"
#include "model/linear.h"
#include "model/model.h"

namespace tandem {

class DenseTransformer final : public Model {
 public:
  static Result<std::unique_ptr<Model>> Create(const ModelSpec& spec, const ModelWeights& weights,
                                               Numerics numerics, Shard shard);

  size_t WorkspaceBytes(const WorkspaceLimits& limits) const override;
  void Forward(Stream& stream, Communicator& comm, const WorkspaceLimits& limits,
               const ForwardArgs& args) override;
  void Logits(Stream& stream, const WorkspaceLimits& limits, const LogitsArgs& args) override;

 private:
  struct Layer {
    const float* attention_norm = nullptr;
    Linear q, k, v, o;
    const float* q_bias = nullptr;  // [heads * head_dim]; null without biases, as k's and v's
    const float* k_bias = nullptr;  // [kv_heads * head_dim]
    const float* v_bias = nullptr;  // [kv_heads * head_dim]
    const float* q_norm = nullptr;  // [head_dim]; null without norms, as k's
    const float* k_norm = nullptr;  // [head_dim]
    const float* ffn_norm = nullptr;
    Linear gate, up, down;
  };
  // Activations of one pass; the comments give shapes (P = tokens of the pass, T = of a slab, R =
  // rows that need logits).
  struct Workspace {
    float* hidden = nullptr;   // [P, hidden] the residual stream
    Activation normed;         // [T, hidden]
    float* q = nullptr;        // [T, heads * head_dim]
    float* k = nullptr;        // [T, kv_heads * head_dim]
    float* v = nullptr;        // [T, kv_heads * head_dim]
    float* scratch = nullptr;  // of Attention
    Activation attended;       // [T, heads * head_dim]
    float* gate = nullptr;     // [T, ffn]
    float* up = nullptr;       // [T, ffn]
    Activation activated;      // [T, ffn]
    float* partial = nullptr;  // [T, hidden], only with several ranks
    float* last = nullptr;     // [R, hidden]
    Activation last_normed;    // [R, hidden]
  };

  DenseTransformer(const ModelSpec& spec, Numerics numerics, Shard shard);
  Status Bind(const ModelWeights& weights);
  Status BindAttention(const ModelWeights& weights, size_t index);
  Workspace Carve(const WorkspaceLimits& limits, ArenaLayout& arena) const;

  // RopeStoreArgs but for the activations: what the layer and the batch say.
  RopeStoreArgs RopeOf(int32_t layer, const GroupBatch& group) const;
  // The blocks work on one slab; `hidden` is its part of the residual stream.
  void AttentionBlock(Stream& stream, Communicator& comm, const Workspace& ws, int32_t layer,
                      const SlabArgs& slab, float* hidden);
  void FeedForwardBlock(Stream& stream, Communicator& comm, const Workspace& ws, int32_t layer,
                        int32_t num_tokens, float* hidden);
  // hidden += all ranks' sum of x * W^T.
  void AddProjection(Stream& stream, Communicator& comm, const Workspace& ws, const Linear& linear,
                     const Activation& x, int32_t num_tokens, float* hidden);

  const ModelSpec spec_;
  const Numerics numerics_;
  const Shard shard_;
  const int32_t num_heads_;     // of this shard
  const int32_t num_kv_heads_;  // of this shard
  std::vector<float> rope_frequencies_;
  Linear embedding_;
  std::vector<Layer> layers_;
  const float* output_norm_ = nullptr;
  Linear output_;
};

}  // namespace tandem
