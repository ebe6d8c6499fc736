#include "cli/eval_model.h"

#include <thread>

#include "device/cpu_device.h"

namespace tandem {
namespace {

const SlotId kSlot(0);  // the only one

}  // namespace

Result<std::unique_ptr<EvalModel>> EvalModel::Create(const ModelSpec& spec,
                                                     const ModelWeights& weights, Numerics numerics,
                                                     int32_t num_threads, int32_t max_tokens) {
  std::unique_ptr<EvalModel> model(new EvalModel(max_tokens));
  RankShape shape;
  shape.spec = spec;
  shape.numerics = numerics;
  shape.num_slots = 1;
  shape.max_context = max_tokens;
  shape.max_in_flight = 1;
  shape.num_threads = num_threads;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StateGroup> groups,
                          MakeStateGroups(spec, numerics, shape.tokens_per_block, {}));
  for (const StateGroup& group : groups) {
    shape.num_blocks.push_back(static_cast<int32_t>(group.BlocksFor(max_tokens)));
  }
  model->num_blocks_ = shape.num_blocks;
  model->device_ = MakeCpuDevice({num_threads, {}});
  const RankConfig rank{model->device_.get(), &weights, &model->rank_};
  TANDEM_ASSIGN_OR_RETURN(model->executor_, DeviceExecutor::Create({&rank, 1}, shape));
  model->executor_->SetOnFinished([raw = model.get()] { raw->finished_.release(); });
  return model;
}

// The text before leaves the slot, the new one takes it and all blocks.
void EvalModel::PlanStart(StepPlan* plan) {
  if (joined_) plan->leaves.push_back(kSlot);
  plan->joins.push_back({kSlot, RequestId(1), 0, {}});
  for (size_t g = 0; g < num_blocks_.size(); ++g) {
    for (int32_t b = 0; b < num_blocks_[g]; ++b) {
      plan->appends.push_back({kSlot, GroupId(static_cast<int32_t>(g)), BlockId(b)});
    }
  }
  joined_ = true;
}

Result<std::span<const float>> EvalModel::Append(std::span<const TokenId> tokens) {
  if (tokens.size() > static_cast<size_t>(max_tokens_ - position_)) {
    return OutOfRangeError("a text of more than {} tokens", max_tokens_);
  }
  StepPlan plan;
  plan.step = StepId(++steps_);
  if (position_ == 0) PlanStart(&plan);
  plan.tokens.assign(tokens.begin(), tokens.end());
  PlanRow row;
  row.slot = kSlot;
  row.position = position_;
  row.num_tokens = static_cast<int32_t>(tokens.size());
  row.return_logits = row.num_tokens;
  plan.rows.push_back(row);
  TANDEM_RETURN_IF_ERROR(executor_->Submit(plan));
  finished_.acquire();
  while (!executor_->Poll(&result_)) std::this_thread::yield();
  TANDEM_RETURN_IF_ERROR(result_.status);
  position_ += row.num_tokens;
  return std::span<const float>(result_.logits);
}

}  // namespace tandem
