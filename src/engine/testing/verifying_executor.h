// What: VerifyingExecutor: a StepExecutor for tests that "samples" a hash of the sequence's history
//   and checks everything that a plan promises: order, slots, tokens, block tables, and that no
//   block is handed out while a submitted step still touches it. Steps finish when the test says
//   so.
// Not here: what is sampled and reported (fake_model.h), arithmetic, devices, time.
// Threads: one.
// Invariants: every state entry holds the hash of the tokens up to its position, and each row
//   checks what it may read; so a block that two write, or that was lost or reused, is found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/step_executor.h"
#include "engine/testing/fake_model.h"
#include "engine/testing/fake_state.h"
#include "kv/state_pools.h"

namespace tandem::testing {

class VerifyingExecutor final : public StepExecutor {
 public:
  VerifyingExecutor(std::span<const StateGroupBlocks> groups, ExecutorLimits limits, int32_t vocab)
      : limits_(limits),
        vocab_(vocab),
        state_(groups),
        slots_(static_cast<size_t>(limits.num_slots)) {
    for (Slot& slot : slots_) slot.tables.resize(state_.num_groups());
  }

  ExecutorLimits limits() const override { return limits_; }
  void SetOnFinished(std::function<void()>) override {}

  Status Submit(const StepPlan& plan) override {
    if (refuse_next_) {
      refuse_next_ = false;
      return UnavailableError("refused by the test");
    }
    Check(in_flight() < limits_.max_in_flight, "too many plans in flight");
    Check(plan.step.value() == last_step_ + 1, "steps out of order");
    last_step_ = plan.step.value();
    Step step;
    step.result.step = plan.step;
    ApplyDelta(plan);
    CopyBlocks(plan, &step);
    for (const PlanRow& row : plan.rows) RunRow(plan, row, &step);
    for (Slot& slot : slots_) slot.ran = false;
    steps_.push_back(std::move(step));
    if (on_plan_) on_plan_(plan);
    tokens_run_ += plan.NumTokens();
    return OkStatus();
  }

  bool Poll(StepResult* result) override {
    if (num_finished_ == 0) return false;
    *result = std::move(steps_.front().result);
    steps_.pop_front();
    --num_finished_;
    return true;
  }

  // The oldest running step finishes. False when none runs.
  bool FinishOne(TimeNs now) {
    if (num_finished_ == static_cast<int32_t>(steps_.size())) return false;
    Step& step = steps_[static_cast<size_t>(num_finished_++)];
    step.result.finished = step.result.started = now;
    step.touched.clear();
    step.written.clear();
    if (fail_next_) {
      fail_next_ = false;
      step.result.status = InternalError("failed by the test");
      step.result.rows.clear();
    }
    return true;
  }

  // `on_plan` sees every accepted plan.
  void SetOnPlan(std::function<void(const StepPlan&)> on_plan) { on_plan_ = std::move(on_plan); }
  void RefuseNext() { refuse_next_ = true; }
  void FailNext() { fail_next_ = true; }

  // What a peer writes into, and reads from.
  FakeState& state() { return state_; }

  int32_t in_flight() const { return static_cast<int32_t>(steps_.size()); }
  int64_t tokens_run() const { return tokens_run_; }
  // The first broken promise; empty while all is well.
  const std::string& violation() const { return violation_; }

 private:
  struct Slot {
    bool joined = false;
    bool ran = false;
    SamplingParams sampling;
    std::vector<uint64_t> hashes;  // [i]: of the tokens 0..i
    int32_t restored = 0;          // positions that other sequences have computed
    std::vector<std::vector<BlockId>> tables;
    StepId output_step;  // where the last chosen token came from
    int32_t output_row = 0;
    TokenId output;
    std::optional<TokenId> announced;  // by the row before: it scored the token that comes next
  };
  struct Step {
    StepResult result;
    std::vector<std::pair<size_t, int32_t>> touched;  // group, block
    std::vector<std::pair<size_t, int32_t>> written;  // of these
  };

  void Check(bool condition, const std::string& what) {
    if (condition || !violation_.empty()) return;
    violation_ = "step " + std::to_string(last_step_) + ": " + what;
  }

  Slot& SlotAt(SlotId id) {
    const bool exists = id.value() >= 0 && id.value() < limits_.num_slots;
    Check(exists, "no such slot");
    return slots_[exists ? static_cast<size_t>(id.value()) : 0];
  }

  bool Touched(size_t group, int32_t block) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
      return std::count(step.touched.begin(), step.touched.end(), std::pair(group, block)) > 0;
    });
  }

  bool Written(size_t group, int32_t block) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
      return std::count(step.written.begin(), step.written.end(), std::pair(group, block)) > 0;
    });
  }
  // Another slot that is taken has the block in its table.
  bool SharedWithOther(size_t group, BlockId block, const Slot& but) const {
    return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
      return &slot != &but && slot.joined &&
             std::count(slot.tables[group].begin(), slot.tables[group].end(), block) > 0;
    });
  }

  void ApplyDelta(const StepPlan& plan) {
    for (SlotId id : plan.leaves) {
      Slot& slot = SlotAt(id);
      Check(slot.joined, "an empty slot leaves");
      slot.joined = false;
    }
    for (const SlotJoin& join : plan.joins) {
      Slot& slot = SlotAt(join.slot);
      Check(!slot.joined, "a taken slot is joined");
      slot = Slot();
      slot.joined = true;
      slot.sampling = join.sampling;
      slot.tables.resize(state_.num_groups());
      for (int32_t i = 0; i < join.num_restored; ++i) {
        Extend(&slot, plan.tokens.at(static_cast<size_t>(join.restored_begin + i)));
      }
      slot.restored = join.num_restored;
    }
    for (const BlockAppend& append : plan.appends) {
      Slot& slot = SlotAt(append.slot);
      const auto group = static_cast<size_t>(append.group.value());
      Check(slot.joined, "an empty slot gets a block");
      Check(state_.Exists(group, append.block), "no such block");
      auto& table = slot.tables[group];
      const auto entry = append.entry < 0 ? table.size() : static_cast<size_t>(append.entry);
      const bool restored =
          state_.group(group).BlocksFor(slot.restored) > static_cast<int64_t>(entry);
      Check(
          restored ? !Written(group, append.block.value()) : !Touched(group, append.block.value()),
          "a block is handed out while a step touches it");
      if (entry >= table.size()) table.resize(entry + 1, BlockId(-1));
      table[entry] = append.block;
    }
  }

  void CopyBlocks(const StepPlan& plan, Step* step) {
    for (const BlockCopy& copy : plan.copies) {
      const auto group = static_cast<size_t>(copy.group.value());
      if (!state_.Exists(group, copy.from) || !state_.Exists(group, copy.to)) {
        return Check(false, "no such block");
      }
      Check(!Touched(group, copy.to.value()), "a copy's target is touched by a step");
      state_.Copy(group, copy.from, copy.to);
      step->touched.emplace_back(group, copy.from.value());
      step->touched.emplace_back(group, copy.to.value());
      step->written.emplace_back(group, copy.to.value());
    }
  }

  static void Extend(Slot* slot, TokenId token) {
    const uint64_t before = slot->hashes.empty() ? 1 : slot->hashes.back();
    slot->hashes.push_back(MixHash(before, static_cast<uint64_t>(token.value())));
  }

  void RunRow(const StepPlan& plan, const PlanRow& row, Step* step) {
    Slot& slot = SlotAt(row.slot);
    Check(slot.joined && !slot.ran, "a row of an empty slot, or its second");
    slot.ran = true;
    Check(row.num_tokens > 0, "a row without tokens");
    Check(row.position == static_cast<int32_t>(slot.hashes.size()), "a row out of order");
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      TokenId token = slot.output;
      if (row.token_is_output()) {
        Check(row.num_tokens == 1 && row.from_step == slot.output_step &&
                  row.from_row == slot.output_row,
              "a token that is not the slot's last output");
      } else {
        token = plan.tokens.at(static_cast<size_t>(row.tokens_begin + i));
      }
      if (i == 0 && slot.announced) {
        Check(token == *slot.announced, "a row begins with another token than its slot's next");
      }
      Extend(&slot, token);
    }
    slot.announced.reset();
    for (size_t g = 0; g < state_.num_groups(); ++g) AccessState(g, row, slot, step);
    StepResult::Row result{row.slot, row.sample, TokenId()};
    if (row.sample) {
      result.token = slot.output = FakeToken(slot.hashes.back(), slot.sampling, vocab_);
      slot.output_step = plan.step;
      slot.output_row = static_cast<int32_t>(step->result.rows.size());
    }
    Report(plan, row, &slot, &result, &step->result.logprobs);
    step->result.rows.push_back(result);
  }

  // The log probabilities that the row asks for.
  void Report(const StepPlan& plan, const PlanRow& row, Slot* slot, StepResult::Row* result,
              std::vector<TokenLogprob>* out) {
    result->logprobs_begin = static_cast<int32_t>(out->size());
    const int32_t end = row.num_tokens - (row.sample ? 1 : 0);
    Check(row.score >= 0 && row.score <= end, "a row scores positions that it does not have");
    Check(row.score == 0 || slot->sampling.wants_logprobs(), "a row scores what nobody wants");
    const int32_t num_top = slot->sampling.top_logprobs;
    for (int32_t i = end - row.score; i < end; ++i) {
      const bool inside = i + 1 < row.num_tokens;
      if (!inside) slot->announced = row.next_token;
      const TokenId next =
          inside ? plan.tokens.at(static_cast<size_t>(row.tokens_begin + i + 1)) : row.next_token;
      const uint64_t hash = slot->hashes[static_cast<size_t>(row.position + i)];
      AppendFakeLogprobs(hash, next, num_top, vocab_, out);
    }
    if (row.sample && slot->sampling.wants_logprobs()) {
      AppendFakeLogprobs(slot->hashes.back(), slot->output, num_top, vocab_, out);
    }
    result->num_logprobs = static_cast<int32_t>(out->size()) - result->logprobs_begin;
  }

  // Writes the row's entries of one group and checks all that its positions read.
  void AccessState(size_t g, const PlanRow& row, const Slot& slot, Step* step) {
    const StateGroup& group = state_.group(g);
    const int32_t end = row.position + row.num_tokens;
    const bool window = group.kind == StateKind::kWindow;
    const int32_t begin = window ? std::max(0, row.position - group.window_tokens + 1) : 0;
    const auto& table = slot.tables[g];
    if (group.BlocksFor(end) > static_cast<int64_t>(table.size())) {
      return Check(false, "a row reaches beyond its block table");
    }
    Check(group.BlocksFor(end) == static_cast<int64_t>(table.size()), "a block too many");
    for (int32_t p = begin; p < end; ++p) {
      const int32_t block = table[static_cast<size_t>(p / group.tokens_per_block)].value();
      uint64_t& entry = state_.At(g, BlockId(block), p % group.tokens_per_block);
      if (p >= row.position) {
        entry = slot.hashes[static_cast<size_t>(p)];
        if (step->written.empty() || step->written.back() != std::pair(g, block)) {
          step->written.emplace_back(g, block);
          Check(window || !SharedWithOther(g, BlockId(block), slot),
                "a row writes into a shared block");
        }
      }
      Check(entry == slot.hashes[static_cast<size_t>(p)], "a row reads another sequence's state");
      if (step->touched.empty() || step->touched.back() != std::pair(g, block)) {
        step->touched.emplace_back(g, block);
      }
    }
  }

  const ExecutorLimits limits_;
  const int32_t vocab_;
  FakeState state_;
  std::vector<Slot> slots_;
  std::deque<Step> steps_;  // submitted, not polled; the first num_finished_ have finished
  int32_t num_finished_ = 0;
  uint64_t last_step_ = 0;
  int64_t tokens_run_ = 0;
  bool refuse_next_ = false;
  bool fail_next_ = false;
  std::function<void(const StepPlan&)> on_plan_;
  std::string violation_;
};

}  // namespace tandem::testing
