#include "core/step_plan.h"

#include <fmt/format.h>

#include <iterator>

namespace tandem {

int32_t StepPlan::NumTokens() const {
  int32_t n = 0;
  for (const PlanRow& row : rows) n += row.num_tokens;
  return n;
}

void StepPlan::Clear() {
  step = StepId();
  leaves.clear();
  joins.clear();
  appends.clear();
  copies.clear();
  rows.clear();
  tokens.clear();
}

std::string StepPlan::ToText() const {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "step {}\n", step);
  for (SlotId slot : leaves) fmt::format_to(to, "leave slot={}\n", slot);
  for (const SlotJoin& j : joins)
    fmt::format_to(to, "join slot={} request={}\n", j.slot, j.request);
  for (const BlockAppend& a : appends) {
    fmt::format_to(to, "append slot={} group={} block={}", a.slot, a.group, a.block);
    if (a.entry >= 0) fmt::format_to(to, " entry={}", a.entry);
    out += '\n';
  }
  for (const BlockCopy& c : copies) {
    fmt::format_to(to, "copy group={} from={} to={}\n", c.group, c.from, c.to);
  }
  for (const PlanRow& r : rows) {
    fmt::format_to(to, "row slot={} pos={} n={}", r.slot, r.position, r.num_tokens);
    if (r.token_is_output()) fmt::format_to(to, " from={}:{}", r.from_step, r.from_row);
    if (r.score > 0) fmt::format_to(to, " score={}", r.score);
    fmt::format_to(to, "{}\n", r.sample ? " sample" : "");
  }
  return out;
}

}  // namespace tandem
