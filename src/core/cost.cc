#include "core/cost.h"

namespace tandem {

ModelCost CostOfModel(const ModelSpec& spec, std::span<const StateGroup> groups,
                      int64_t layer_weight_bytes, int64_t output_weight_bytes) {
  const int64_t q_dim = int64_t{spec.num_heads} * spec.head_dim;
  const int64_t kv_dim = int64_t{spec.num_kv_heads} * spec.head_dim;
  const int64_t layer_macs = int64_t{spec.hidden_dim} * (2 * q_dim + 2 * kv_dim) +  // q, o, k, v
                             int64_t{3} * spec.hidden_dim * spec.ffn_dim;  // gate, up, down
  ModelCost cost;
  cost.layer_weight_bytes = layer_weight_bytes;
  cost.output_weight_bytes = output_weight_bytes;
  cost.macs_per_token = layer_macs * spec.num_layers;
  cost.macs_per_logits = int64_t{spec.hidden_dim} * spec.vocab_size;
  cost.macs_per_pair = 2 * q_dim * spec.num_layers;  // scores and weighted sum
  for (const StateGroup& group : groups) {
    cost.kv_bytes_per_token += group.BlockBytes() / group.tokens_per_block;
  }
  return cost;
}

StepCost& StepCost::operator+=(const StepCost& other) {
  new_tokens += other.new_tokens;
  logit_rows += other.logit_rows;
  causal_pairs += other.causal_pairs;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  flops += other.flops;
  return *this;
}

StepCost CostOfStep(const ModelCost& model, const StepPlan& plan) {
  StepCost cost;
  for (const PlanRow& row : plan.rows) {
    const int64_t c = row.num_tokens;
    const int64_t h = row.position;
    cost.new_tokens += c;
    cost.logit_rows += row.num_logits();
    cost.causal_pairs += CausalPairs(c, h);
    cost.kv_bytes +=
        (h + 2 * c) * model.kv_bytes_per_token;  // history and chunk read, chunk written
  }
  if (cost.new_tokens > 0) cost.weight_bytes += model.layer_weight_bytes;
  if (cost.logit_rows > 0) cost.weight_bytes += model.output_weight_bytes;
  const double macs = static_cast<double>(cost.new_tokens * model.macs_per_token) +
                      static_cast<double>(cost.logit_rows * model.macs_per_logits) +
                      static_cast<double>(cost.causal_pairs * model.macs_per_pair);
  cost.flops = 2.0 * macs;
  return cost;
}

}  // namespace tandem
