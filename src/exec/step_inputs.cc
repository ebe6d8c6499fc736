#include "exec/step_inputs.h"

#include <algorithm>
#include <limits>

namespace tandem {
namespace {

constexpr size_t kIntsPerRow = sizeof(BatchRow) / sizeof(int32_t);

}  // namespace

StepInputs::StepInputs(const SlabLimits& limits, std::span<const StateGroup> groups)
    : limits_(limits), groups_(groups.begin(), groups.end()), copies_(groups.size()) {
  TANDEM_CHECK_GT(limits.max_tokens, 0);
  TANDEM_CHECK_GT(limits.max_logits, 0);
  TANDEM_CHECK_GT(limits.max_pass_tokens, 0);
}

void StepInputs::Build(const StepPlan& plan, const SlotTable& table) {
  TakeDeltas(plan);
  num_passes_ = 0;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    for (int32_t offset = 0; offset < row.num_tokens;) {
      if (num_passes_ == 0 || pass().num_tokens == limits_.max_pass_tokens) {
        if (num_passes_ > 0) Pack(plan, table);
        NewPass();
      }
      std::vector<Pass::Slab>& slabs = pass().slabs;
      if (slabs.empty() || slabs.back().tokens.count == limits_.max_tokens) {
        slabs.push_back({{pass().num_tokens, 0}, {static_cast<int32_t>(pieces_.size()), 0}});
      }
      const int32_t n =
          std::min({row.num_tokens - offset, limits_.max_tokens - slabs.back().tokens.count,
                    limits_.max_pass_tokens - pass().num_tokens});
      AddPiece(plan, table, {static_cast<int32_t>(r), offset, n});
      offset += n;
    }
  }
  if (num_passes_ > 0) Pack(plan, table);
}

void StepInputs::TakeDeltas(const StepPlan& plan) {
  for (Copies& c : copies_) {
    c.from.clear();
    c.to.clear();
  }
  for (const BlockCopy& copy : plan.copies) {
    copies_[static_cast<size_t>(copy.group.value())].from.push_back(copy.from.value());
    copies_[static_cast<size_t>(copy.group.value())].to.push_back(copy.to.value());
  }
  restored_.clear();
  restored_tokens_.clear();
  for (const SlotJoin& join : plan.joins) {
    if (join.num_restored == 0 || !join.sampling.uses_history()) continue;
    restored_.push_back(
        {join.slot.value(), 0, static_cast<int32_t>(restored_tokens_.size()), join.num_restored});
    for (int32_t i = 0; i < join.num_restored; ++i) {
      restored_tokens_.push_back(plan.tokens[static_cast<size_t>(join.restored_begin + i)].value());
    }
  }
}

void StepInputs::NewPass() {
  if (num_passes_ == passes_.size()) passes_.emplace_back();
  Pass& pass = passes_[num_passes_++];
  pass.num_tokens = 0;
  pass.slabs.clear();
  pass.chunks.clear();
  pass.known_tokens.clear();
  pass.history.clear();
  pass.logit_tokens.clear();
  pass.return_rows.clear();
  pass.samples.clear();
  pass.biases.clear();
  pass.logprobs.clear();
  pieces_.clear();
}

void StepInputs::AddPiece(const StepPlan& plan, const SlotTable& table, const Piece& piece) {
  const PlanRow& row = plan.rows[static_cast<size_t>(piece.row)];
  const SlotTable::Slot& slot = table.slot(row.slot);
  Pass& pass = this->pass();
  if (slot.sampling.uses_history()) {
    const int32_t first = row.token_is_output()
                              ? row.slot.value()
                              : table.num_slots() + static_cast<int32_t>(pass.known_tokens.size());
    pass.history.push_back(
        {row.slot.value(), row.position + piece.offset, first, piece.num_tokens});
  }
  const int32_t first_logit = row.num_tokens - row.num_logits();
  for (int32_t offset = piece.offset; offset < piece.offset + piece.num_tokens; ++offset) {
    if (!row.token_is_output()) {
      pass.known_tokens.push_back(
          plan.tokens[static_cast<size_t>(row.tokens_begin + offset)].value());
    }
    if (offset >= first_logit) AddLogits(plan, slot, row, offset, pass.num_tokens);
    ++pass.num_tokens;
  }
  pass.slabs.back().tokens.count += piece.num_tokens;
  ++pass.slabs.back().rows.count;
  pieces_.push_back(piece);
}

void StepInputs::AddLogits(const StepPlan& plan, const SlotTable::Slot& slot, const PlanRow& row,
                           int32_t offset, int32_t token) {
  Pass& pass = this->pass();
  if (pass.chunks.empty() || pass.chunks.back().logits.count == limits_.max_logits) {
    const auto begin = [](const auto& list) {
      return IndexRange{static_cast<int32_t>(list.size()), 0};
    };
    pass.chunks.push_back({begin(pass.logit_tokens), begin(pass.return_rows), begin(pass.samples),
                           begin(pass.biases), begin(pass.logprobs), 0});
  }
  Pass::Chunk& chunk = pass.chunks.back();
  const int32_t logits_row = chunk.logits.count++;
  pass.logit_tokens.push_back(token);
  if (row.return_logits > 0) {
    pass.return_rows.push_back(logits_row);
    ++chunk.returned.count;
  }
  if (row.sample && offset == row.num_tokens - 1) {
    AddSample(slot, row, logits_row);
    if (slot.sampling.wants_logprobs()) {
      AddLogprob(slot, {.logits_row = logits_row, .token_index = row.slot.value()});
    }
  } else if (row.score > 0) {
    const bool inside = offset + 1 < row.num_tokens;
    const TokenId next =
        inside ? plan.tokens[static_cast<size_t>(row.tokens_begin + offset + 1)] : row.next_token;
    AddLogprob(slot, {.logits_row = logits_row, .token = next.value()});
  }
}

void StepInputs::AddSample(const SlotTable::Slot& slot, const PlanRow& row, int32_t logits_row) {
  Pass& pass = this->pass();
  Pass::Chunk& chunk = pass.chunks.back();
  SampleRow sample;
  sample.params = slot.sampling;
  sample.sample_index = slot.sample_index;
  sample.logits_row = logits_row;
  sample.position = int64_t{row.position} + row.num_tokens;
  sample.out_index = row.slot.value();
  sample.biases_begin = chunk.biases.count;
  sample.history_row = row.slot.value();
  sample.prompt_tokens = slot.prompt_tokens;
  pass.biases.insert(pass.biases.end(), slot.logit_bias.begin(), slot.logit_bias.end());
  if (sample.position - slot.prompt_tokens < slot.sampling.min_tokens) {
    constexpr float kBan = -std::numeric_limits<float>::infinity();
    for (const TokenId stop : slot.stop_tokens) pass.biases.push_back({stop, kBan});
  }
  chunk.biases.count = static_cast<int32_t>(pass.biases.size()) - chunk.biases.begin;
  sample.num_biases = chunk.biases.count - sample.biases_begin;
  pass.samples.push_back(sample);
  ++chunk.samples.count;
}

void StepInputs::AddLogprob(const SlotTable::Slot& slot, LogprobRow row) {
  Pass::Chunk& chunk = pass().chunks.back();
  row.num_top = slot.sampling.top_logprobs;
  row.out_begin = chunk.logprob_entries;
  pass().logprobs.push_back(row);
  ++chunk.logprobs.count;
  chunk.logprob_entries += 1 + row.num_top;
}

void StepInputs::Pack(const StepPlan& plan, const SlotTable& table) {
  Pass& pass = this->pass();
  std::vector<int32_t>& ints = pass.ints;
  ints.clear();
  pass.positions = ints.size();
  for (const Piece& p : pieces_) {
    const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
    for (int32_t i = 0; i < p.num_tokens; ++i) ints.push_back(row.position + p.offset + i);
  }
  pass.row_of_token = ints.size();
  for (const Pass::Slab& slab : pass.slabs) {
    for (int32_t i = 0; i < slab.rows.count; ++i) {
      const Piece& p = pieces_[static_cast<size_t>(slab.rows.begin + i)];
      ints.insert(ints.end(), static_cast<size_t>(p.num_tokens), i);
    }
  }
  pass.token_index = ints.size();
  int32_t known = 0;
  for (const Piece& p : pieces_) {
    const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
    for (int32_t i = 0; i < p.num_tokens; ++i) {
      ints.push_back(row.token_is_output() ? row.slot.value() : table.num_slots() + known++);
    }
  }
  pass.logit_tokens_offset = ints.size();
  ints.insert(ints.end(), pass.logit_tokens.begin(), pass.logit_tokens.end());
  pass.rows.resize(groups_.size());
  pass.block_tables.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) PackGroup(plan, table, g);
}

void StepInputs::PackGroup(const StepPlan& plan, const SlotTable& table, size_t group) {
  Pass& pass = this->pass();
  std::vector<int32_t>& ints = pass.ints;
  pass.rows[group] = ints.size();
  int32_t table_begin = 0;
  for (const Pass::Slab& slab : pass.slabs) {
    int32_t first_token = 0;
    for (int32_t i = 0; i < slab.rows.count; ++i) {
      const Piece& p = pieces_[static_cast<size_t>(slab.rows.begin + i)];
      const int32_t position = plan.rows[static_cast<size_t>(p.row)].position + p.offset;
      ints.insert(ints.end(), {first_token, p.num_tokens, position, table_begin});
      first_token += p.num_tokens;
      table_begin += static_cast<int32_t>(groups_[group].BlocksFor(position + p.num_tokens));
    }
  }
  pass.block_tables[group] = ints.size();
  for (const Piece& p : pieces_) {
    const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
    const auto& blocks = table.slot(row.slot).blocks[group];
    const int64_t needed = groups_[group].BlocksFor(row.position + p.offset + p.num_tokens);
    ints.insert(ints.end(), blocks.begin(), blocks.begin() + needed);
  }
}

int32_t MaxSlabs(const SlabLimits& limits) {
  return (limits.max_pass_tokens + limits.max_tokens - 1) / limits.max_tokens;
}

size_t MaxPassInts(const SlabLimits& limits, int32_t num_slots, int32_t max_context,
                   std::span<const StateGroup> groups) {
  const auto tokens = static_cast<size_t>(limits.max_pass_tokens);
  // A border between slabs cuts at most one row.
  const size_t rows =
      std::min(tokens, static_cast<size_t>(num_slots) + static_cast<size_t>(MaxSlabs(limits)) - 1);
  size_t ints = 4 * tokens;
  for (const StateGroup& group : groups) {
    ints += rows * (kIntsPerRow + static_cast<size_t>(group.BlocksFor(max_context)));
  }
  return ints;
}

}  // namespace tandem
