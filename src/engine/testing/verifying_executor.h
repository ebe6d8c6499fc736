// What: VerifyingExecutor: a StepExecutor for tests that "samples" a hash of the sequence's history
//   and checks everything that a plan promises: order, slots, tokens, block tables, and that no
//   block is handed out while a submitted step still touches it. Steps finish when the test says
//   so. Also the two-group model that goes with it, and what a request's answer must be.
// Not here: arithmetic, devices, time.
// Threads: one.
// Invariants: every state entry holds the hash of the tokens up to its position, and each row
//   checks the entries that it may read; so a block that two sequences write, or that was lost or
//   reused, is found by its content.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/request.h"
#include "core/step_executor.h"
#include "kv/state_pools.h"

namespace tandem::testing {

inline uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 33);
}

inline uint64_t HashTokens(std::span<const TokenId> tokens) {
  uint64_t hash = 1;
  for (TokenId t : tokens) hash = MixHash(hash, static_cast<uint64_t>(t.value()));
  return hash;
}

// The token after a history with this hash.
inline TokenId FakeToken(uint64_t history_hash, const SamplingParams& sampling, int32_t vocab) {
  const uint64_t draw = MixHash(history_hash, sampling.seed);
  return TokenId(static_cast<int32_t>(draw % static_cast<uint64_t>(vocab)));
}

// What `request` must answer when it runs alone, and whatever else runs.
inline std::vector<TokenId> ExpectedAnswer(const Request& request, int32_t max_context,
                                           int32_t vocab) {
  std::vector<TokenId> answer;
  uint64_t hash = HashTokens(request.prompt);
  const int32_t room = max_context - static_cast<int32_t>(request.prompt.size());
  const int32_t most = request.max_output_tokens.value_or(room);
  while (static_cast<int32_t>(answer.size()) < most) {
    const TokenId token = FakeToken(hash, request.sampling, vocab);
    if (std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token) > 0) break;
    answer.push_back(token);
    hash = MixHash(hash, static_cast<uint64_t>(token.value()));
  }
  return answer;
}

inline StateGroupBlocks PagedGroup(int32_t tokens_per_block, int32_t num_blocks) {
  StateGroup group;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"k", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = tokens_per_block;
  return {group, num_blocks};
}

inline StateGroupBlocks WindowGroup(int32_t tokens_per_block, int32_t num_blocks, int32_t window) {
  StateGroupBlocks blocks = PagedGroup(tokens_per_block, num_blocks);
  blocks.group.kind = StateKind::kWindow;
  blocks.group.window_tokens = window;
  return blocks;
}

class VerifyingExecutor final : public StepExecutor {
 public:
  VerifyingExecutor(std::span<const StateGroupBlocks> groups, ExecutorLimits limits, int32_t vocab)
      : limits_(limits), vocab_(vocab), slots_(static_cast<size_t>(limits.num_slots)) {
    for (const StateGroupBlocks& g : groups) {
      groups_.push_back(g.group);
      state_.emplace_back(static_cast<size_t>(g.num_blocks) *
                          static_cast<size_t>(g.group.tokens_per_block));
    }
    for (Slot& slot : slots_) slot.tables.resize(groups_.size());
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
    std::vector<std::vector<BlockId>> tables;
    StepId output_step;  // where the last chosen token came from
    int32_t output_row = 0;
    TokenId output;
  };
  struct Step {
    StepResult result;
    std::vector<std::pair<size_t, int32_t>> touched;  // group, block
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
      slot.tables.resize(groups_.size());
    }
    for (const BlockAppend& append : plan.appends) {
      Slot& slot = SlotAt(append.slot);
      const auto group = static_cast<size_t>(append.group.value());
      const int64_t offset = int64_t{append.block.value()} * groups_.at(group).tokens_per_block;
      Check(slot.joined, "an empty slot gets a block");
      Check(offset >= 0 && offset < static_cast<int64_t>(state_[group].size()), "no such block");
      Check(!Touched(group, append.block.value()), "a block is handed out while a step touches it");
      slot.tables[group].push_back(append.block);
    }
    Check(plan.copies.empty(), "no copies are expected");
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
      const uint64_t before = slot.hashes.empty() ? 1 : slot.hashes.back();
      slot.hashes.push_back(MixHash(before, static_cast<uint64_t>(token.value())));
    }
    for (size_t g = 0; g < groups_.size(); ++g) AccessState(g, row, slot, step);
    StepResult::Row result{row.slot, row.sample, TokenId()};
    if (row.sample) {
      result.token = slot.output = FakeToken(slot.hashes.back(), slot.sampling, vocab_);
      slot.output_step = plan.step;
      slot.output_row = static_cast<int32_t>(step->result.rows.size());
    }
    step->result.rows.push_back(result);
  }

  // Writes the row's entries of one group and checks all that its positions read.
  void AccessState(size_t g, const PlanRow& row, const Slot& slot, Step* step) {
    const StateGroup& group = groups_[g];
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
      uint64_t& entry =
          state_[g]
                [static_cast<size_t>(block * group.tokens_per_block + p % group.tokens_per_block)];
      if (p >= row.position) entry = slot.hashes[static_cast<size_t>(p)];
      Check(entry == slot.hashes[static_cast<size_t>(p)], "a row reads another sequence's state");
      if (step->touched.empty() || step->touched.back() != std::pair(g, block)) {
        step->touched.emplace_back(g, block);
      }
    }
  }

  const ExecutorLimits limits_;
  const int32_t vocab_;
  std::vector<StateGroup> groups_;
  std::vector<std::vector<uint64_t>> state_;  // [group][block * tokens_per_block + offset]
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
