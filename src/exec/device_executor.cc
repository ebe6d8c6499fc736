#include "exec/device_executor.h"

namespace tandem {

Result<std::unique_ptr<DeviceExecutor>> DeviceExecutor::Create(std::span<const RankConfig> ranks,
                                                               const RankShape& shape) {
  TANDEM_CHECK(!ranks.empty());
  std::unique_ptr<DeviceExecutor> executor(new DeviceExecutor(shape));
  for (const RankConfig& config : ranks) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Rank> rank, Rank::Create(config, shape));
    rank->SetOnFinished([e = executor.get()](InFlightStep* step) { e->OnRankFinished(step); });
    executor->ranks_.push_back(std::move(rank));
  }
  // The groups of all ranks have the same block structure; the lead's stand for them.
  const std::vector<StateGroup>& groups = executor->ranks_[0]->groups();
  executor->table_ =
      std::make_unique<SlotTable>(shape.num_slots, groups, shape.num_blocks, shape.max_context);
  for (int32_t i = 0; i < shape.max_in_flight; ++i) {
    auto step = std::make_unique<InFlightStep>(shape.slab, groups);
    step->sampled.resize(static_cast<size_t>(shape.num_slots));
    executor->steps_.push_back(std::move(step));
  }
  return executor;
}

DeviceExecutor::DeviceExecutor(const RankShape& shape) : shape_(shape) {
  TANDEM_CHECK_GT(shape.max_in_flight, 0);
}

DeviceExecutor::~DeviceExecutor() = default;

ExecutorLimits DeviceExecutor::limits() const { return {shape_.num_slots, shape_.max_in_flight}; }

void DeviceExecutor::SetOnFinished(std::function<void()> callback) {
  on_finished_ = std::move(callback);
}

void DeviceExecutor::SetTap(int32_t rank, LayerTap* tap) {
  ranks_[static_cast<size_t>(rank)]->SetTap(tap);
}

const std::vector<StateGroup>& DeviceExecutor::groups(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)]->groups();
}

std::span<std::byte> DeviceExecutor::state(int32_t rank, GroupId group) {
  return ranks_[static_cast<size_t>(rank)]->state(group);
}

Status DeviceExecutor::Submit(const StepPlan& plan) {
  TANDEM_CHECK_LT(in_flight_, steps_.size());
  TANDEM_RETURN_IF_ERROR(table_->Validate(plan));
  TANDEM_RETURN_IF_ERROR(CheckTokens(plan));
  table_->Apply(plan);
  InFlightStep& step = *steps_[next_];
  step.inputs.Build(plan, *table_);
  PrepareResult(plan, &step.result);
  step.started.store(0);
  step.finished.store(0);
  step.counter = counter_;
  step.ranks_left.store(static_cast<int32_t>(ranks_.size()));
  next_ = (next_ + 1) % steps_.size();
  ++in_flight_;
  for (const auto& rank : ranks_) rank->Start(&step);
  return OkStatus();
}

Status DeviceExecutor::CheckTokens(const StepPlan& plan) const {
  Status status;
  const auto check = [&](TokenId token) {
    if (token.value() >= 0 && token.value() < shape_.spec.vocab_size) return;
    status = InvalidArgumentError("step {}: token {} is not in the vocabulary of {}", plan.step,
                                  token, shape_.spec.vocab_size);
  };
  for (const TokenId token : plan.tokens) check(token);
  for (const SlotJoin& join : plan.joins) {
    for (const LogitBias& bias : join.logit_bias) check(bias.token);
    for (const TokenId token : join.stop_tokens) check(token);
  }
  for (const PlanRow& row : plan.rows) {
    if (row.score > 0 && !row.sample) check(row.next_token);
  }
  return status;
}

void DeviceExecutor::PrepareResult(const StepPlan& plan, StepResult* result) const {
  result->step = plan.step;
  result->status = OkStatus();
  result->rows.clear();
  size_t logits = 0;
  int32_t logprobs = 0;
  for (const PlanRow& row : plan.rows) {
    const SamplingParams& sampling = table_->slot(row.slot).sampling;
    const bool reports_choice = row.sample && sampling.wants_logprobs();
    const int32_t entries =
        sampling.wants_logprobs() ? (row.score + reports_choice) * (1 + sampling.top_logprobs) : 0;
    result->rows.push_back({row.slot, row.sample, TokenId(), logprobs, entries});
    logits += static_cast<size_t>(row.return_logits);
    logprobs += entries;
  }
  result->logits.resize(logits * static_cast<size_t>(shape_.spec.vocab_size));
  result->logprobs.resize(static_cast<size_t>(logprobs));
}

void DeviceExecutor::OnRankFinished(InFlightStep* step) {
  if (step->ranks_left.fetch_sub(1) != 1) return;
  step->finished.store(clock_.Now(), std::memory_order_release);
  if (on_finished_) on_finished_();
}

bool DeviceExecutor::Poll(StepResult* result) {
  if (in_flight_ == 0) return false;
  InFlightStep& step = *steps_[(next_ + steps_.size() - in_flight_) % steps_.size()];
  const TimeNs finished = step.finished.load(std::memory_order_acquire);
  if (finished == 0) return false;
  for (StepResult::Row& row : step.result.rows) {
    if (row.sampled) row.token = TokenId(step.sampled[static_cast<size_t>(row.slot.value())]);
  }
  step.result.started = step.started.load();
  step.result.finished = finished;
  std::swap(*result, step.result);
  --in_flight_;
  return true;
}

}  // namespace tandem
