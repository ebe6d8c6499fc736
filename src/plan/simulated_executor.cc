#include "plan/simulated_executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {

WideInt FlopsOf(const ModelFigures& model, const SimulatedRow& row) {
  return WideInt{row.new_tokens} * model.flops_per_token +
         WideInt{CausalPairs(row.new_tokens, row.history_tokens)} * model.flops_per_pair +
         WideInt{row.emits_token} * model.flops_per_logit_row;
}

SimulatedExecutor::SimulatedExecutor(const Scenario* scenario)
    : scenario_(scenario), slots_(static_cast<size_t>(scenario->max_sequences)) {}

ExecutorLimits SimulatedExecutor::limits() const {
  return {scenario_->max_sequences, scenario_->pipeline_depth + 1};
}

Status SimulatedExecutor::Submit(const StepPlan& plan) {
  for (SlotId slot : plan.leaves) slots_[static_cast<size_t>(slot.value())] = Slot();
  for (const SlotJoin& join : plan.joins) {
    slots_[static_cast<size_t>(join.slot.value())] = {
        static_cast<int32_t>(join.request.value()) - 1, join.prompt_tokens};
  }
  StepResult result;
  if (!spare_.empty()) {
    result = std::move(spare_.back());
    spare_.pop_back();
  }
  result.step = plan.step;
  result.rows.clear();
  rows_.clear();
  for (const PlanRow& row : plan.rows) {
    const Slot& slot = slots_[static_cast<size_t>(row.slot.value())];
    TANDEM_CHECK_GE(slot.request, 0);
    const int32_t end = row.position + row.num_tokens;
    const int32_t outputs = end - slot.prompt_tokens + 1;
    const bool over =
        outputs > scenario_->requests[static_cast<size_t>(slot.request)].output_tokens;
    result.rows.push_back({row.slot, row.sample, over ? kStopToken : kToken});
    const bool prefill = row.position < slot.prompt_tokens || row.num_tokens > 1;
    rows_.push_back({slot.request, row.position, row.num_tokens, prefill, row.sample});
  }
  cost_ = CostOfStep(ModelCost(), plan);
  const StepTimes& law = scenario_->step;
  const int64_t tokens = PaddedTokens(scenario_->prepared_tokens, cost_.new_tokens);
  const WideInt time = WideInt{law.base_ns} + WideInt{law.token_ns} * tokens +
                       WideInt{law.pair_ns} * cost_.causal_pairs;
  started_ = std::max(now_, finished_);
  finished_ = started_ + static_cast<TimeNs>(std::min<WideInt>(time, kMaxSimulatedTime));
  result.started = started_;
  result.finished = finished_;
  in_flight_.push_back(std::move(result));
  ++steps_;
  if (on_submit_) on_submit_();
  return OkStatus();
}

bool SimulatedExecutor::Poll(StepResult* result) {
  if (in_flight_.empty() || in_flight_.front().finished > now_) return false;
  std::swap(*result, in_flight_.front());
  spare_.push_back(std::move(in_flight_.front()));
  in_flight_.pop_front();
  return true;
}

std::optional<TimeNs> SimulatedExecutor::next_finish() const {
  if (in_flight_.empty()) return std::nullopt;
  return in_flight_.front().finished;
}

}  // namespace tandem
