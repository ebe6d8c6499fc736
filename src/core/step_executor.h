// What: the seam between the engine and whatever runs a step: a device executor or a simulator.
// Not here: scheduling; an executor decides nothing about who runs.
// Threads: Submit and Poll from the engine's thread only. The on-finished callback comes from any
//   thread.
// Invariants: results come back in submission order, exactly one per accepted plan.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "core/step_plan.h"

namespace tandem {

struct ExecutorLimits {
  int32_t num_slots = 0;      // slots 0 .. num_slots-1 exist
  int32_t max_in_flight = 1;  // plans submitted and not yet polled
};

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  virtual ExecutorLimits limits() const = 0;

  // Takes over the plan's delta and starts it behind the earlier plans; returns without waiting for
  // the device. The plan may be changed or destroyed afterwards. Requires fewer than max_in_flight
  // plans in flight. An error means that the plan was refused whole and changed nothing.
  virtual Status Submit(const StepPlan& plan) = 0;

  // Moves the next finished step's result to *result; false when the oldest plan still runs or none
  // is in flight.
  virtual bool Poll(StepResult* result) = 0;

  // `callback` is called after each step has finished, so that a sleeping engine loop can wake up;
  // it must not block or call back into the executor. Set before the first Submit.
  virtual void SetOnFinished(std::function<void()> callback) = 0;
};

}  // namespace tandem
