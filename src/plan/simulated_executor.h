// What: SimulatedExecutor: a StepExecutor whose steps take the time that a scenario's law says and
//   "sample" each request's tokens up to its length, on a clock that the simulator moves.
// Not here: who runs (sched/), events (simulator.h).
// Threads: one.
// Invariants: steps run one after the other, each from its submission or its predecessor's end,
//   whichever is later.
// Cost: O(rows) per step; nothing is allocated once the buffers have grown.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/cost.h"
#include "core/step_executor.h"
#include "plan/scenario.h"
#include "plan/wide_int.h"

namespace tandem {

// A row as the timeline shows it.
struct SimulatedRow {
  int32_t request = 0;  // index into the scenario's requests
  int32_t history_tokens = 0;
  int32_t new_tokens = 0;
  bool prefill = false;
  bool emits_token = false;
};

class SimulatedExecutor final : public StepExecutor {
 public:
  // The token that ends an answer without a limit, and every other one.
  static constexpr TokenId kStopToken{1};
  static constexpr TokenId kToken{0};

  // `scenario` outlives the executor. The request with id n is its n-th, from 1.
  explicit SimulatedExecutor(const Scenario* scenario);

  ExecutorLimits limits() const override;
  Status Submit(const StepPlan& plan) override;
  // Finished means: at or before the time that SetNow gave last.
  bool Poll(StepResult* result) override;
  void SetOnFinished(std::function<void()>) override {}

  // `callback` is called at the end of each Submit. Set before the first.
  void SetOnSubmit(std::function<void()> callback) { on_submit_ = std::move(callback); }
  void SetNow(TimeNs now) { now_ = now; }
  // When the oldest step in flight ends; none when none is.
  std::optional<TimeNs> next_finish() const;

  // Of the step submitted last: its times, what it costs, its rows.
  TimeNs started() const { return started_; }
  TimeNs finished() const { return finished_; }
  const StepCost& cost() const { return cost_; }
  std::span<const SimulatedRow> rows() const { return rows_; }
  int64_t steps() const { return steps_; }

 private:
  struct Slot {
    int32_t request = -1;
    int32_t prompt_tokens = 0;
  };

  const Scenario* const scenario_;
  std::vector<Slot> slots_;
  std::deque<StepResult> in_flight_;
  std::vector<StepResult> spare_;  // finished ones, for their memory
  std::vector<SimulatedRow> rows_;
  StepCost cost_;
  TimeNs now_ = 0;
  TimeNs started_ = 0;
  TimeNs finished_ = 0;
  int64_t steps_ = 0;
  std::function<void()> on_submit_;
};

// Multiply-adds count as two.
WideInt FlopsOf(const ModelFigures& model, const SimulatedRow& row);

}  // namespace tandem
