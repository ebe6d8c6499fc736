// What: PlanTerms: what the plans of one run do as far as time is concerned, from the plans alone.
// Not here: how long that takes (sched/cost_model.h).
// Threads: one.
#pragma once

#include <vector>

#include "core/step_plan.h"
#include "sched/cost_model.h"

namespace tandem {

class PlanTerms {
 public:
  explicit PlanTerms(int32_t num_slots) : prompt_tokens_(static_cast<size_t>(num_slots)) {}

  // Of the next plan; each plan of the run once, in order.
  StepTerms Of(const StepPlan& plan) {
    for (const SlotJoin& join : plan.joins) Prompt(join.slot) = join.prompt_tokens;
    StepTerms terms;
    for (const PlanRow& row : plan.rows) {
      if (row.num_tokens == 1 && row.position >= Prompt(row.slot)) {
        terms.AddDecode(row.position);
      } else {
        terms.AddPrefill(row.position, row.num_tokens);
      }
    }
    return terms;
  }

 private:
  int32_t& Prompt(SlotId slot) { return prompt_tokens_[static_cast<size_t>(slot.value())]; }

  std::vector<int32_t> prompt_tokens_;  // per slot
};

}  // namespace tandem
