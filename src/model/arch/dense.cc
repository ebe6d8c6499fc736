#include "model/arch/dense.h"

#include <cmath>

#include "base/check.h"

namespace tandem {

Result<std::unique_ptr<Model>> DenseTransformer::Create(const ModelSpec& spec,
                                                        const ModelWeights& weights,
                                                        Numerics numerics, Shard shard) {
  std::unique_ptr<DenseTransformer> model(new DenseTransformer(spec, numerics, shard));
  TANDEM_RETURN_IF_ERROR(model->Bind(weights));
  return std::unique_ptr<Model>(std::move(model));
}

DenseTransformer::DenseTransformer(const ModelSpec& spec, Numerics numerics, Shard shard)
    : spec_(spec),
      numerics_(numerics),
      shard_(shard),
      num_heads_(spec.num_heads / shard.world),
      num_kv_heads_(spec.num_kv_heads / shard.world) {
  for (int32_t i = 0; i < spec.rope.dims / 2; ++i) {
    double frequency = std::pow(spec.rope.theta, -2.0 * i / spec.rope.dims);
    if (!spec.rope.divisors.empty()) frequency /= spec.rope.divisors[static_cast<size_t>(i)];
    rope_frequencies_.push_back(static_cast<float>(frequency));
  }
}

namespace {

Status BindMatrix(const ModelWeights& weights, std::string name, Linear* out) {
  TANDEM_ASSIGN_OR_RETURN(out->weight, weights.Matrix(name));
  out->name = std::move(name);
  return OkStatus();
}

Status BindVector(const ModelWeights& weights, const std::string& name, const float** out) {
  TANDEM_ASSIGN_OR_RETURN(const std::span<const float> values, weights.Vector(name));
  *out = values.data();
  return OkStatus();
}

}  // namespace

Status DenseTransformer::Bind(const ModelWeights& weights) {
  TANDEM_RETURN_IF_ERROR(BindMatrix(weights, "token_embd.weight", &embedding_));
  TANDEM_RETURN_IF_ERROR(BindVector(weights, "output_norm.weight", &output_norm_));
  TANDEM_RETURN_IF_ERROR(
      BindMatrix(weights, spec_.tied_embeddings ? "token_embd.weight" : "output.weight", &output_));
  layers_.resize(static_cast<size_t>(spec_.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const auto name = [i](const char* part) { return fmt::format("blk.{}.{}.weight", i, part); };
    TANDEM_RETURN_IF_ERROR(BindAttention(weights, i));
    TANDEM_RETURN_IF_ERROR(BindVector(weights, name("ffn_norm"), &layer.ffn_norm));
    TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("ffn_gate"), &layer.gate));
    TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("ffn_up"), &layer.up));
    TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("ffn_down"), &layer.down));
  }
  return OkStatus();
}

Status DenseTransformer::BindAttention(const ModelWeights& weights, size_t index) {
  Layer& layer = layers_[index];
  const auto name = [index](const char* part) { return fmt::format("blk.{}.{}", index, part); };
  TANDEM_RETURN_IF_ERROR(BindVector(weights, name("attn_norm.weight"), &layer.attention_norm));
  TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("attn_q.weight"), &layer.q));
  TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("attn_k.weight"), &layer.k));
  TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("attn_v.weight"), &layer.v));
  TANDEM_RETURN_IF_ERROR(BindMatrix(weights, name("attn_output.weight"), &layer.o));
  if (spec_.qkv_bias) {
    TANDEM_RETURN_IF_ERROR(BindVector(weights, name("attn_q.bias"), &layer.q_bias));
    TANDEM_RETURN_IF_ERROR(BindVector(weights, name("attn_k.bias"), &layer.k_bias));
    TANDEM_RETURN_IF_ERROR(BindVector(weights, name("attn_v.bias"), &layer.v_bias));
  }
  if (spec_.qk_norm) {
    TANDEM_RETURN_IF_ERROR(BindVector(weights, name("attn_q_norm.weight"), &layer.q_norm));
    TANDEM_RETURN_IF_ERROR(BindVector(weights, name("attn_k_norm.weight"), &layer.k_norm));
  }
  return OkStatus();
}

namespace {

ActivationNeeds Union(ActivationNeeds a, ActivationNeeds b) {
  return {a.f32 || b.f32, a.q8 || b.q8};
}

}  // namespace

DenseTransformer::Workspace DenseTransformer::Carve(const WorkspaceLimits& limits,
                                                    ArenaLayout& arena) const {
  ActivationNeeds normed, attended, activated;
  for (const Layer& layer : layers_) {
    normed =
        Union(normed, NeedsOf(numerics_, {&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up}));
    attended = Union(attended, NeedsOf(numerics_, {&layer.o}));
    activated = Union(activated, NeedsOf(numerics_, {&layer.down}));
  }
  const int64_t tokens = limits.max_slab_tokens;
  const int32_t q_dim = num_heads_ * spec_.head_dim;
  const int32_t kv_dim = num_kv_heads_ * spec_.head_dim;
  const int32_t ffn_dim = spec_.ffn_dim / shard_.world;
  Workspace ws;
  ws.hidden = arena.Take<float>(int64_t{limits.max_pass_tokens} * spec_.hidden_dim);
  ws.normed = arena.TakeActivation(normed, tokens, spec_.hidden_dim, /*refine=*/true);
  ws.q = arena.Take<float>(tokens * q_dim);
  ws.k = arena.Take<float>(tokens * kv_dim);
  ws.v = arena.Take<float>(tokens * kv_dim);
  ws.scratch = arena.Take<float>(AttentionScratchFloats(
      limits.max_slab_tokens, limits.max_context, num_heads_, spec_.head_dim, limits.num_threads));
  ws.attended = arena.TakeActivation(attended, tokens, q_dim, /*refine=*/true);
  ws.gate = arena.Take<float>(tokens * ffn_dim);
  ws.up = arena.Take<float>(tokens * ffn_dim);
  ws.activated = arena.TakeActivation(activated, tokens, ffn_dim, /*refine=*/true);
  if (shard_.world > 1) ws.partial = arena.Take<float>(tokens * spec_.hidden_dim);
  ws.last = arena.Take<float>(int64_t{limits.max_logits} * spec_.hidden_dim);
  ws.last_normed = arena.TakeActivation(NeedsOf(numerics_, {&output_}), limits.max_logits,
                                        spec_.hidden_dim, /*refine=*/true);
  return ws;
}

size_t DenseTransformer::WorkspaceBytes(const WorkspaceLimits& limits) const {
  ArenaLayout arena(nullptr);
  Carve(limits, arena);
  return arena.bytes();
}

void DenseTransformer::Forward(Stream& stream, Communicator& comm, const WorkspaceLimits& limits,
                               const ForwardArgs& args) {
  TANDEM_CHECK_LE(args.num_tokens, limits.max_pass_tokens);
  ArenaLayout arena(args.workspace);
  const Workspace ws = Carve(limits, arena);

  Embed(stream,
        {embedding_.weight, args.token_table, args.token_index, args.num_tokens, ws.hidden});
  for (int32_t layer = 0; layer < spec_.num_layers; ++layer) {
    for (const SlabArgs& slab : args.slabs) {
      TANDEM_CHECK_LE(slab.num_tokens, limits.max_slab_tokens);
      float* hidden = ws.hidden + int64_t{slab.first_token} * spec_.hidden_dim;
      AttentionBlock(stream, comm, ws, layer, slab, hidden);
      const bool last = &slab == &args.slabs.back();
      if (last && args.progress != nullptr) args.progress->AfterState(stream, layer);
      FeedForwardBlock(stream, comm, ws, layer, slab.num_tokens, hidden);
    }
    if (args.tap != nullptr) args.tap->AfterLayer(stream, layer, ws.hidden, args.num_tokens);
  }
}

RopeStoreArgs DenseTransformer::RopeOf(int32_t layer, const GroupBatch& group) const {
  const Layer& w = layers_[static_cast<size_t>(layer)];
  RopeStoreArgs rope;
  rope.batch = group.batch;
  rope.state = group.state;
  rope.layer = layer;
  rope.num_heads = num_heads_;
  rope.num_kv_heads = num_kv_heads_;
  rope.head_dim = spec_.head_dim;
  rope.rope_dims = spec_.rope.dims;
  rope.interleaved = spec_.rope.style == RopeStyle::kInterleaved;
  rope.frequencies = rope_frequencies_.data();
  rope.q_bias = w.q_bias;
  rope.k_bias = w.k_bias;
  rope.v_bias = w.v_bias;
  rope.q_norm = w.q_norm;
  rope.k_norm = w.k_norm;
  rope.norm_epsilon = static_cast<float>(spec_.rms_epsilon);
  return rope;
}

// hidden += Wo * Attention(q, k, v), with h = RmsNorm(hidden) and, where the family has biases and
// norms: q = rope(RmsNorm(Wq h + bq)), k = rope(RmsNorm(Wk h + bk)), v = Wv h + bv
void DenseTransformer::AttentionBlock(Stream& stream, Communicator& comm, const Workspace& ws,
                                      int32_t layer, const SlabArgs& slab, float* hidden) {
  const Layer& w = layers_[static_cast<size_t>(layer)];
  const GroupBatch& group = slab.groups[0];
  const int32_t n = slab.num_tokens;
  RmsNorm(stream, {hidden, w.attention_norm, static_cast<float>(spec_.rms_epsilon), n, ws.normed});
  Project(stream, ws.normed, n, {{&w.q, ws.q}, {&w.k, ws.k}, {&w.v, ws.v}});

  RopeStoreArgs rope = RopeOf(layer, group);
  rope.q = ws.q;
  rope.k = ws.k;
  rope.v = ws.v;
  rope.q_stride = w.q.out_dim();
  rope.k_stride = w.k.out_dim();
  rope.v_stride = w.v.out_dim();
  RopeStore(stream, rope);

  AttentionArgs attention;
  attention.batch = group.batch;
  attention.state = group.state;
  attention.layer = layer;
  attention.num_heads = num_heads_;
  attention.num_kv_heads = num_kv_heads_;
  attention.head_dim = spec_.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  attention.q = ws.q;
  attention.q_stride = w.q.out_dim();
  attention.out = ws.attended;
  attention.scratch = ws.scratch;
  Attention(stream, attention);
  AddProjection(stream, comm, ws, w.o, ws.attended, n, hidden);
}

// hidden += Wdown * (silu(Wgate h) . Wup h), with h = RmsNorm(hidden)
void DenseTransformer::FeedForwardBlock(Stream& stream, Communicator& comm, const Workspace& ws,
                                        int32_t layer, int32_t num_tokens, float* hidden) {
  const Layer& w = layers_[static_cast<size_t>(layer)];
  RmsNorm(stream,
          {hidden, w.ffn_norm, static_cast<float>(spec_.rms_epsilon), num_tokens, ws.normed});
  Project(stream, ws.normed, num_tokens, {{&w.gate, ws.gate}, {&w.up, ws.up}});
  SiluMul(stream, {ws.gate, ws.up, num_tokens, ws.activated});
  AddProjection(stream, comm, ws, w.down, ws.activated, num_tokens, hidden);
}

void DenseTransformer::AddProjection(Stream& stream, Communicator& comm, const Workspace& ws,
                                     const Linear& linear, const Activation& x, int32_t num_tokens,
                                     float* hidden) {
  if (shard_.world == 1) {
    Project(stream, x, num_tokens, {{&linear, hidden}}, /*accumulate=*/true);
    return;
  }
  const int64_t count = int64_t{num_tokens} * spec_.hidden_dim;
  Project(stream, x, num_tokens, {{&linear, ws.partial}});
  comm.AllReduce(stream, ws.partial, count);
  Add(stream, {ws.partial, hidden, count});
}

// logits = Wout * RmsNorm(hidden), for the wanted rows only
void DenseTransformer::Logits(Stream& stream, const WorkspaceLimits& limits,
                              const LogitsArgs& args) {
  TANDEM_CHECK_LE(args.num_logits, limits.max_logits);
  ArenaLayout arena(args.workspace);
  const Workspace ws = Carve(limits, arena);
  GatherRows(stream, {ws.hidden, args.tokens, args.num_logits, spec_.hidden_dim, ws.last});
  RmsNorm(stream, {ws.last, output_norm_, static_cast<float>(spec_.rms_epsilon), args.num_logits,
                   ws.last_normed});
  Project(stream, ws.last_normed, args.num_logits, {{&output_, args.logits}});
}

}  // namespace tandem
