#include "exec/slot_table.h"

#include <algorithm>

namespace tandem {

SlotTable::SlotTable(int32_t num_slots, std::span<const StateGroup> groups,
                     std::span<const int32_t> num_blocks, int32_t max_context)
    : groups_(groups.begin(), groups.end()),
      num_blocks_(num_blocks.begin(), num_blocks.end()),
      max_context_(max_context),
      slots_(static_cast<size_t>(num_slots)),
      shadow_(static_cast<size_t>(num_slots)) {
  TANDEM_CHECK_EQ(groups_.size(), num_blocks_.size());
  for (Slot& slot : slots_) {
    slot.blocks.resize(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {  // so that a steady-state step allocates nothing
      slot.blocks[g].reserve(static_cast<size_t>(groups_[g].BlocksFor(max_context)));
    }
  }
  for (Shadow& shadow : shadow_) shadow.num_blocks.resize(groups_.size());
}

Status SlotTable::Validate(const StepPlan& plan) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Shadow& shadow = shadow_[i];
    shadow.joined = slots_[i].joined;
    shadow.has_row = false;
    shadow.length = slots_[i].length;
    shadow.sampled_step = slots_[i].sampled_step;
    shadow.sampled_row = slots_[i].sampled_row;
    shadow.wants_logprobs = slots_[i].sampling.wants_logprobs();
    for (size_t g = 0; g < groups_.size(); ++g) {
      shadow.num_blocks[g] = static_cast<int64_t>(slots_[i].blocks[g].size());
    }
  }
  TANDEM_RETURN_IF_ERROR(ValidateDelta(plan));
  for (const PlanRow& row : plan.rows) TANDEM_RETURN_IF_ERROR(ValidateRow(plan, row));
  return OkStatus();
}

Status SlotTable::ValidateDelta(const StepPlan& plan) {
  for (SlotId id : plan.leaves) {
    if (!InRange(id) || !shadow_[static_cast<size_t>(id.value())].joined) {
      return InvalidArgumentError("step {}: slot {} leaves but is empty", plan.step, id);
    }
    shadow_[static_cast<size_t>(id.value())].joined = false;
  }
  for (const SlotJoin& join : plan.joins) TANDEM_RETURN_IF_ERROR(ValidateJoin(plan, join));
  return ValidateBlocks(plan);
}

Status SlotTable::ValidateJoin(const StepPlan& plan, const SlotJoin& join) {
  if (!InRange(join.slot) || shadow_[static_cast<size_t>(join.slot.value())].joined) {
    return InvalidArgumentError("step {}: slot {} is joined but is taken or does not exist",
                                plan.step, join.slot);
  }
  if (join.logit_bias.size() > static_cast<size_t>(kMaxLogitBias) ||
      join.stop_tokens.size() > static_cast<size_t>(kMaxStopTokens) ||
      join.sampling.top_logprobs > kMaxTopLogprobs || join.prompt_tokens < 0) {
    return InvalidArgumentError(
        "step {}: slot {} is joined with {} biases, {} stop tokens, {} likeliest tokens and {} "
        "prompt tokens",
        plan.step, join.slot, join.logit_bias.size(), join.stop_tokens.size(),
        join.sampling.top_logprobs, join.prompt_tokens);
  }
  const auto num_tokens = static_cast<int64_t>(plan.tokens.size());
  if (join.restored_begin < 0 || join.num_restored < 0 || join.num_restored > max_context_ ||
      int64_t{join.restored_begin} + join.num_restored > num_tokens) {
    return InvalidArgumentError("step {}: restored tokens of slot {} lie outside the plan",
                                plan.step, join.slot);
  }
  Shadow& shadow = shadow_[static_cast<size_t>(join.slot.value())];
  shadow.joined = true;
  shadow.length = join.num_restored;
  shadow.sampled_row = -1;
  shadow.wants_logprobs = join.sampling.wants_logprobs();
  for (int64_t& n : shadow.num_blocks) n = 0;
  return OkStatus();
}

Status SlotTable::ValidateBlocks(const StepPlan& plan) {
  const auto valid_block = [&](GroupId group, BlockId block) {
    return group.value() >= 0 && static_cast<size_t>(group.value()) < groups_.size() &&
           block.value() >= 0 && block.value() < num_blocks_[static_cast<size_t>(group.value())];
  };
  for (const BlockAppend& append : plan.appends) {
    if (!InRange(append.slot) || !shadow_[static_cast<size_t>(append.slot.value())].joined ||
        !valid_block(append.group, append.block) ||
        append.entry >=
            groups_[static_cast<size_t>(append.group.value())].BlocksFor(max_context_)) {
      return InvalidArgumentError(
          "step {}: block {} of group {} cannot be appended to slot {} (entry {})", plan.step,
          append.block, append.group, append.slot, append.entry);
    }
    int64_t& num_blocks = shadow_[static_cast<size_t>(append.slot.value())]
                              .num_blocks[static_cast<size_t>(append.group.value())];
    num_blocks = std::max(num_blocks + (append.entry < 0 ? 1 : 0), int64_t{append.entry} + 1);
  }
  for (const BlockCopy& copy : plan.copies) {
    if (!valid_block(copy.group, copy.from) || !valid_block(copy.group, copy.to)) {
      return InvalidArgumentError("step {}: copy of block {} to {} of group {}", plan.step,
                                  copy.from, copy.to, copy.group);
    }
  }
  for (const SlotJoin& join : plan.joins) {
    const Shadow& shadow = shadow_[static_cast<size_t>(join.slot.value())];
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (shadow.num_blocks[g] >= groups_[g].BlocksFor(join.num_restored)) continue;
      return InvalidArgumentError(
          "step {}: blocks of group {} end before the {} restored "
          "positions of slot {}",
          plan.step, g, join.num_restored, join.slot);
    }
  }
  return OkStatus();
}

Status SlotTable::ValidateRow(const StepPlan& plan, const PlanRow& row) {
  if (!InRange(row.slot) || !shadow_[static_cast<size_t>(row.slot.value())].joined) {
    return InvalidArgumentError("step {}: row of slot {}, which is empty", plan.step, row.slot);
  }
  Shadow& shadow = shadow_[static_cast<size_t>(row.slot.value())];
  if (shadow.has_row) {
    return InvalidArgumentError("step {}: slot {} has two rows", plan.step, row.slot);
  }
  shadow.has_row = true;
  if (row.num_tokens <= 0 || row.num_tokens > max_context_ || row.position < 0 ||
      row.position > max_context_ - row.num_tokens || row.position > shadow.length) {
    return InvalidArgumentError("step {}: slot {} of length {} cannot run {} tokens at position {}",
                                plan.step, row.slot, shadow.length, row.num_tokens, row.position);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (shadow.num_blocks[g] < groups_[g].BlocksFor(row.position + row.num_tokens)) {
      return InvalidArgumentError("step {}: blocks of group {} end before position {} of slot {}",
                                  plan.step, g, row.position + row.num_tokens, row.slot);
    }
  }
  TANDEM_RETURN_IF_ERROR(ValidateReported(plan, row));
  if (row.token_is_output()) {
    if (row.num_tokens != 1 || shadow.sampled_row < 0 || row.from_step != shadow.sampled_step ||
        row.from_row != shadow.sampled_row) {
      return InvalidArgumentError("step {}: slot {} reads output {}:{}, which is not its last",
                                  plan.step, row.slot, row.from_step, row.from_row);
    }
  } else if (static_cast<size_t>(row.tokens_begin) + static_cast<size_t>(row.num_tokens) >
             plan.tokens.size()) {
    return InvalidArgumentError("step {}: tokens of slot {} lie outside the plan", plan.step,
                                row.slot);
  }
  return OkStatus();
}

Status SlotTable::ValidateReported(const StepPlan& plan, const PlanRow& row) const {
  if (row.return_logits < 0 || row.return_logits > row.num_tokens) {
    return InvalidArgumentError("step {}: {} logits of a row of {} tokens", plan.step,
                                row.return_logits, row.num_tokens);
  }
  if (row.score == 0) return OkStatus();
  if (row.score < 0 || row.score > row.num_tokens - (row.sample ? 1 : 0) || row.return_logits > 0 ||
      !shadow_[static_cast<size_t>(row.slot.value())].wants_logprobs) {
    return InvalidArgumentError(
        "step {}: {} log probabilities of a row of {} tokens of slot {}{}{}", plan.step, row.score,
        row.num_tokens, row.slot, row.sample ? ", which samples" : "",
        row.return_logits > 0 ? ", which returns logits" : "");
  }
  return OkStatus();
}

void SlotTable::Apply(const StepPlan& plan) {
  for (SlotId id : plan.leaves) slots_[static_cast<size_t>(id.value())].joined = false;
  for (const SlotJoin& join : plan.joins) {
    Slot& slot = slots_[static_cast<size_t>(join.slot.value())];
    slot.joined = true;
    slot.request = join.request;
    slot.sample_index = join.sample_index;
    slot.sampling = join.sampling;
    slot.logit_bias = join.logit_bias;
    slot.stop_tokens = join.stop_tokens;
    slot.prompt_tokens = join.prompt_tokens;
    slot.length = join.num_restored;
    slot.sampled_row = -1;
    for (auto& blocks : slot.blocks) blocks.clear();
  }
  for (const BlockAppend& append : plan.appends) {
    std::vector<int32_t>& blocks = slots_[static_cast<size_t>(append.slot.value())]
                                       .blocks[static_cast<size_t>(append.group.value())];
    if (append.entry < 0) {
      blocks.push_back(append.block.value());
      continue;
    }
    const auto entry = static_cast<size_t>(append.entry);
    if (entry >= blocks.size()) blocks.resize(entry + 1, kNoBlock);
    blocks[entry] = append.block.value();
  }
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    Slot& slot = slots_[static_cast<size_t>(row.slot.value())];
    slot.length = row.position + row.num_tokens;
    if (row.sample) {
      slot.sampled_step = plan.step;
      slot.sampled_row = static_cast<int32_t>(i);
    }
  }
}

}  // namespace tandem
