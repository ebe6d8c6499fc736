// What: SlotTable: the host's copy of what each slot holds (request, length, block tables), kept up
//   to date by the deltas of plans. Checks a plan against it before anything changes.
// Not here: device memory (rank.h), who gets a slot (sched/).
// Threads: one.
// Invariants: a slot's length counts the positions whose state has been submitted, or was there
//   when it was joined; block tables cover them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "core/step_plan.h"
#include "tensor/state_group.h"

namespace tandem {

class SlotTable {
 public:
  // An entry that no position reads: a window has been restored behind it.
  static constexpr int32_t kNoBlock = -1;

  struct Slot {
    bool joined = false;
    RequestId request;
    uint32_t sample_index = 0;
    SamplingParams sampling;
    std::vector<LogitBias> logit_bias;
    std::vector<TokenId> stop_tokens;
    int32_t prompt_tokens = 0;
    int32_t length = 0;   // positions submitted or restored so far
    StepId sampled_step;  // the last step and row that sampled for this slot
    int32_t sampled_row = -1;
    std::vector<std::vector<int32_t>> blocks;  // [group][logical block]
  };

  // `groups` and `num_blocks` (per group) describe the pools that block ids refer to.
  SlotTable(int32_t num_slots, std::span<const StateGroup> groups,
            std::span<const int32_t> num_blocks, int32_t max_context);

  // INVALID_ARGUMENT says which entry of the plan contradicts the tables. Changes nothing that a
  // later Apply sees.
  Status Validate(const StepPlan& plan);
  // Requires that Validate(plan) was ok.
  void Apply(const StepPlan& plan);

  const Slot& slot(SlotId id) const { return slots_[static_cast<size_t>(id.value())]; }
  int32_t num_slots() const { return static_cast<int32_t>(slots_.size()); }

 private:
  // What a plan makes of a slot before its row runs; scratch of Validate.
  struct Shadow {
    bool joined = false;
    bool has_row = false;
    int32_t length = 0;
    StepId sampled_step;
    int32_t sampled_row = -1;
    bool wants_logprobs = false;
    std::vector<int64_t> num_blocks;  // per group
  };
  bool InRange(SlotId id) const { return id.value() >= 0 && id.value() < num_slots(); }
  Status ValidateDelta(const StepPlan& plan);
  Status ValidateJoin(const StepPlan& plan, const SlotJoin& join);
  Status ValidateBlocks(const StepPlan& plan);
  Status ValidateRow(const StepPlan& plan, const PlanRow& row);
  Status ValidateReported(const StepPlan& plan, const PlanRow& row) const;

  std::vector<StateGroup> groups_;
  std::vector<int32_t> num_blocks_;
  int32_t max_context_;
  std::vector<Slot> slots_;
  std::vector<Shadow> shadow_;
};

}  // namespace tandem
