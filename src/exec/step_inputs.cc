#include "exec/step_inputs.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr size_t kIntsPerRow = sizeof(BatchRow) / sizeof(int32_t);

}  // namespace

StepInputs::StepInputs(const SlabLimits& limits, std::span<const StateGroup> groups)
    : limits_(limits), groups_(groups.begin(), groups.end()), copies_(groups.size()) {
  TANDEM_CHECK_GT(limits.max_tokens, 0);
  TANDEM_CHECK_GT(limits.max_logits, 0);
}

void StepInputs::Build(const StepPlan& plan, const SlotTable& table) {
  num_slabs_ = 0;
  for (Copies& c : copies_) {
    c.from.clear();
    c.to.clear();
  }
  for (const BlockCopy& copy : plan.copies) {
    copies_[static_cast<size_t>(copy.group.value())].from.push_back(copy.from.value());
    copies_[static_cast<size_t>(copy.group.value())].to.push_back(copy.to.value());
  }
  Slab* slab = nullptr;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    for (int32_t offset = 0; offset < row.num_tokens;) {
      const int32_t logits = slab == nullptr ? 0 : static_cast<int32_t>(slab->logit_rows.size());
      int32_t n = slab == nullptr ? 0 : Fitting(row, offset, slab->num_tokens, logits);
      if (n == 0) {
        if (slab != nullptr) Pack(plan, table, *slab);
        slab = &NewSlab();
        n = Fitting(row, offset, 0, 0);
      }
      AddPiece(plan, table, {static_cast<int32_t>(r), offset, n}, *slab);
      offset += n;
    }
  }
  if (slab != nullptr) Pack(plan, table, *slab);
}

int32_t StepInputs::Fitting(const PlanRow& row, int32_t offset, int32_t tokens,
                            int32_t logits) const {
  const int32_t by_tokens = std::min(row.num_tokens - offset, limits_.max_tokens - tokens);
  const int32_t first_logit =
      row.num_tokens - row.num_logits();  // offsets from here on need logits
  const int32_t by_logits = std::max(first_logit - offset, 0) + limits_.max_logits - logits;
  return std::min(by_tokens, by_logits);
}

Slab& StepInputs::NewSlab() {
  if (num_slabs_ == slabs_.size()) slabs_.emplace_back();
  Slab& slab = slabs_[num_slabs_++];
  slab.num_tokens = 0;
  slab.num_rows = 0;
  slab.known_tokens.clear();
  slab.logit_rows.clear();
  slab.return_rows.clear();
  slab.samples.clear();
  pieces_.clear();
  return slab;
}

void StepInputs::AddPiece(const StepPlan& plan, const SlotTable& table, const Piece& piece,
                          Slab& slab) {
  const PlanRow& row = plan.rows[static_cast<size_t>(piece.row)];
  const int32_t first_logit = row.num_tokens - row.num_logits();
  for (int32_t i = 0; i < piece.num_tokens; ++i) {
    const int32_t offset = piece.offset + i;
    if (!row.token_is_output()) {
      slab.known_tokens.push_back(
          plan.tokens[static_cast<size_t>(row.tokens_begin + offset)].value());
    }
    if (offset < first_logit) continue;
    const auto logits_row = static_cast<int32_t>(slab.logit_rows.size());
    slab.logit_rows.push_back(slab.num_tokens + i);
    if (row.return_logits > 0) slab.return_rows.push_back(logits_row);
    if (row.sample && offset == row.num_tokens - 1) {
      const SlotTable::Slot& slot = table.slot(row.slot);
      slab.samples.push_back({slot.sampling, slot.sample_index,
                              int64_t{row.position} + row.num_tokens, logits_row,
                              row.slot.value()});
    }
  }
  slab.num_tokens += piece.num_tokens;
  ++slab.num_rows;
  pieces_.push_back(piece);
}

void StepInputs::Pack(const StepPlan& plan, const SlotTable& table, Slab& slab) {
  std::vector<int32_t>& ints = slab.ints;
  ints.clear();
  slab.positions = ints.size();
  for (const Piece& p : pieces_) {
    const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
    for (int32_t i = 0; i < p.num_tokens; ++i) ints.push_back(row.position + p.offset + i);
  }
  slab.row_of_token = ints.size();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    ints.insert(ints.end(), static_cast<size_t>(pieces_[i].num_tokens), static_cast<int32_t>(i));
  }
  slab.token_index = ints.size();
  int32_t known = 0;
  for (const Piece& p : pieces_) {
    const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
    for (int32_t i = 0; i < p.num_tokens; ++i) {
      ints.push_back(row.token_is_output() ? row.slot.value() : table.num_slots() + known++);
    }
  }
  slab.logit_tokens = ints.size();
  ints.insert(ints.end(), slab.logit_rows.begin(), slab.logit_rows.end());
  slab.rows.resize(groups_.size());
  slab.block_tables.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    slab.rows[g] = ints.size();
    int32_t first_token = 0;
    int32_t table_begin = 0;
    for (const Piece& p : pieces_) {
      const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
      const int32_t position = row.position + p.offset;
      ints.insert(ints.end(), {first_token, p.num_tokens, position, table_begin});
      first_token += p.num_tokens;
      table_begin += static_cast<int32_t>(groups_[g].BlocksFor(position + p.num_tokens));
    }
    slab.block_tables[g] = ints.size();
    for (const Piece& p : pieces_) {
      const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
      const auto& blocks = table.slot(row.slot).blocks[g];
      const int64_t needed = groups_[g].BlocksFor(row.position + p.offset + p.num_tokens);
      ints.insert(ints.end(), blocks.begin(), blocks.begin() + needed);
    }
  }
}

size_t MaxSlabInts(const SlabLimits& limits, int32_t num_slots, int32_t max_context,
                   std::span<const StateGroup> groups) {
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  const size_t rows = std::min(tokens, static_cast<size_t>(num_slots));
  size_t ints = 3 * tokens + static_cast<size_t>(limits.max_logits);
  for (const StateGroup& group : groups) {
    ints += rows * (kIntsPerRow + static_cast<size_t>(group.BlocksFor(max_context)));
  }
  return ints;
}

}  // namespace tandem
