// What: EvalModel: a model's logits at every position of a text, in one way of computing them.
// Not here: sampling and scheduling (the engine); what the logits are compared with.
// Threads: one.
// Cost: state for one sequence; the logits of one Append.
#pragma once

#include <cstdint>
#include <memory>
#include <semaphore>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/model_spec.h"
#include "device/device.h"
#include "exec/device_executor.h"
#include "exec/in_process_group.h"
#include "model/weights.h"

namespace tandem {

class EvalModel {
 public:
  // `weights`, of all of the model, must outlive it. Texts have at most `max_tokens` tokens.
  static Result<std::unique_ptr<EvalModel>> Create(const ModelSpec& spec,
                                                   const ModelWeights& weights, Numerics numerics,
                                                   int32_t num_threads, int32_t max_tokens);
  EvalModel(const EvalModel&) = delete;
  EvalModel& operator=(const EvalModel&) = delete;

  // The next Append begins a new text.
  void Restart() { position_ = 0; }
  // Runs `tokens`, at least one, behind those before. The logits after each of them, [tokens,
  // vocab_size], stay until the next call. OUT_OF_RANGE beyond max_tokens.
  Result<std::span<const float>> Append(std::span<const TokenId> tokens);

 private:
  explicit EvalModel(int32_t max_tokens) : max_tokens_(max_tokens) {}
  void PlanStart(StepPlan* plan);

  const int32_t max_tokens_;
  std::vector<int32_t> num_blocks_;  // per state group
  int32_t position_ = 0;
  uint64_t steps_ = 0;
  bool joined_ = false;
  StepResult result_;
  std::counting_semaphore<> finished_{0};  // steps that have finished
  std::unique_ptr<Device> device_;
  SingleRank rank_;
  std::unique_ptr<DeviceExecutor> executor_;  // destroyed first
};

}  // namespace tandem
