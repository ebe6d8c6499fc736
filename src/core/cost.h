// What: what a step costs in bytes and operations: one function for every prediction, budget and
//   bench.
// Not here: seconds (a calibrated model turns these terms into time), how fast a machine is.
// Threads: pure functions.
// Based on: the chapter's accounting: D_w bytes of weights a step must read, N = c*h + c(c+1)/2
//   attention pairs of a chunk of c tokens behind h.
#pragma once

#include <cstdint>
#include <span>

#include "core/model_spec.h"
#include "core/step_plan.h"

namespace tandem {

// Constants of a loaded model.
struct ModelCost {
  int64_t layer_weight_bytes = 0;  // of all layers: read once per pass whatever the batch
  int64_t output_weight_bytes =
      0;                           // of the output projection: read once per pass that needs logits
  int64_t macs_per_token = 0;      // multiply-adds of the projections of all layers
  int64_t macs_per_logits = 0;     // of one row of logits
  int64_t macs_per_pair = 0;       // of one (query, key) pair, all layers and heads
  int64_t kv_bytes_per_token = 0;  // stored state of one position, all groups
};

// Byte counts come from the packed weights; the rest follows from the shapes.
ModelCost CostOfModel(const ModelSpec& spec, std::span<const StateGroup> groups,
                      int64_t layer_weight_bytes, int64_t output_weight_bytes);

struct StepCost {
  int64_t new_tokens = 0;
  int64_t logit_rows = 0;
  int64_t causal_pairs = 0;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;  // read and written
  double flops = 0;      // two per multiply-add

  int64_t bytes() const { return weight_bytes + kv_bytes; }
  StepCost& operator+=(const StepCost& other);
};

StepCost CostOfStep(const ModelCost& model, const StepPlan& plan);

// (query, key) pairs of a chunk of `tokens` tokens behind `history` tokens.
constexpr int64_t CausalPairs(int64_t tokens, int64_t history) {
  return tokens * history + tokens * (tokens + 1) / 2;
}

}  // namespace tandem
