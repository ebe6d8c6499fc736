// What: RandomDriver: bytes -> a small configuration and operations on pools and prefix cache
//   (admit, fork, grow, commit, end, asynchronous uses, steps that complete late), checked against
//   a model that knows tokens only (content_model.h); the same for the random test and for the
//   fuzzer.
// Not here: fixed cases.
// Threads: one.
// Invariants: any bytes are a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/testing/cache_harness.h"
#include "kv/testing/content_model.h"
#include "kv/testing/random_input.h"

namespace tandem::testing {

class RandomDriver {
 public:
  static constexpr int32_t kSequences = 6;
  static constexpr int32_t kUncommitted = 8;
  static constexpr int32_t kStepsInFlight = 3;

  explicit RandomDriver(std::span<const uint8_t> bytes)
      : bytes_(bytes),
        groups_(DrawGroups(&bytes_)),
        pools_(groups_, kUncommitted, kStepsInFlight),
        content_(&pools_) {
    PrefixCache::Options options =
        TestOptions(bytes_.Next(2) == 0 ? RetentionKind::kLru : RetentionKind::kValue);
    options.max_ghosts = bytes_.Next(2) == 0 ? -1 : bytes_.Next(4);
    if (bytes_.Next(4) == 0) {
      options.hash = [](HashKey, uint64_t seed, std::span<const std::byte>) { return seed % 3; };
    }
    cache_ = std::make_unique<PrefixCache>(&pools_, std::move(options));
    for (int32_t i = 0; i < kSequences; ++i) {
      sequences_.push_back({.blocks = pools_.MakeSequence(kLongest + kUncommitted)});
    }
  }

  // Runs all bytes; CheckIntegrity after every `check_every`-th operation. Then ends everything and
  // checks that nothing is left.
  DriverReport Run(int32_t check_every) {
    while (!bytes_.empty()) {
      Step();
      ++report_.operations;
      if (report_.operations % check_every == 0) Check();
    }
    for (Sequence& s : sequences_) {
      if (s.running) End(&s);
    }
    while (!uses_.empty()) EndUse(0);
    Complete(submitted_);
    Check();
    TANDEM_CHECK_EQ(pools_.busy_blocks(), 0);
    for (int32_t g = 0; g < pools_.num_groups(); ++g) {
      TANDEM_CHECK_EQ(pools_.pool(GroupId(g)).reserved(), 0);
    }
    report_.cache = cache_->stats();
    return report_;
  }

 private:
  static constexpr int64_t kLongest = 40;

  struct Sequence {
    SequenceBlocks blocks;
    bool running = false;
    bool stated = false;  // all its tokens are promised
    std::vector<TokenId> tokens;
    std::vector<History> histories;  // [tokens]: of the tokens up to each, and the tenant
    int64_t committed = 0;
    int64_t limit = 0;
    int32_t tenant = 0;
    // Rows in flight: positions up to `end` with step `step`.
    std::deque<std::pair<StepId, int64_t>> rows;
    StepId last_step;
  };
  struct Use {
    GroupId group;
    BlockId block;
    UseAgent agent;
  };
  void Append(Sequence* s, int32_t token) {
    const History before =
        s->histories.empty() ? static_cast<History>(s->tenant) + 1 : s->histories.back();
    s->tokens.emplace_back(token);
    s->histories.push_back((before * 0x9E3779B97F4A7C15ULL) ^ (static_cast<uint64_t>(token) + 7));
  }

  void Step() {
    Sequence* s = &sequences_[static_cast<size_t>(bytes_.Next(kSequences))];
    switch (bytes_.Next(12)) {
      case 0:
        if (submitted_ > completed_) Complete(completed_ + 1 + Below(submitted_ - completed_));
        return;
      case 1: {
        if (!s->running) return;
        Sequence* child = &sequences_[static_cast<size_t>(bytes_.Next(kSequences))];
        if (!child->running) Fork(s, child);
        return;
      }
      case 2:
        if (s->running && bytes_.Next(2) == 0) End(s);
        return;
      case 3: BeginUse(); return;
      case 4:
        if (!uses_.empty()) EndUse(static_cast<size_t>(Below(uses_.size())));
        return;
      case 5: cache_->Advance(now_ += bytes_.Next(250) * kNsPerMs); return;
      default:
        if (s->running) {
          Row(s);
        } else {
          Admit(s);
        }
    }
  }

  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>(bytes_.Next(static_cast<int32_t>(std::min<uint64_t>(bound, 256))));
  }

  // Starts a plan; its step is submitted at once.
  bool BeginPlan() {
    if (submitted_ - completed_ >= static_cast<uint64_t>(kStepsInFlight)) return false;
    plan_.Clear();
    plan_.step = StepId(submitted_ + 1);
    return true;
  }

  SlotId SlotOf(const Sequence& s) const {
    return SlotId(static_cast<int32_t>(&s - sequences_.data()));
  }

  void Admit(Sequence* s) {
    if (!BeginPlan()) return;
    s->tokens.clear();
    s->histories.clear();
    s->tenant = bytes_.Next(2);
    // Prompts of few shapes, so that beginnings are common.
    const int32_t shape = bytes_.Next(3);
    const int64_t length = 1 + bytes_.Next(24);
    const int64_t own = bytes_.Next(26);
    for (int64_t i = 0; i < length; ++i) Append(s, i < own ? shape : 3 + bytes_.Next(2));
    s->limit = length + bytes_.Next(static_cast<int32_t>(kLongest - length));
    s->stated = bytes_.Next(3) > 0;
    const PrefixIdentity identity = Tenant(s->tenant == 0 ? "a" : "b");
    PrefixHit hit;
    if (bytes_.Next(8) > 0) hit = cache_->Find(identity, s->tokens);
    TANDEM_CHECK_LT(hit.tokens, length);
    const int64_t reserve = s->stated ? s->limit : length;
    const uint64_t owner = bytes_.Next(2) == 0 ? 0 : ++owners_;
    if (!cache_->Admit(identity, hit, s->tokens, reserve, owner, SlotOf(*s), &s->blocks, &plan_)) {
      ++report_.refused;
      TANDEM_CHECK(plan_.appends.empty() && plan_.copies.empty());
      Sequence* other = &sequences_[static_cast<size_t>(bytes_.Next(kSequences))];
      if (other->running) End(other);
      return;
    }
    ++report_.admitted;
    TANDEM_CHECK_EQ(s->blocks.tokens(), hit.tokens);
    Begin(s, hit.tokens);
    Submit();
    CheckContent(*s);
  }

  void Begin(Sequence* s, int64_t tokens) {
    s->running = true;
    s->committed = tokens;
    s->rows.clear();
    s->last_step = plan_.step;
  }

  void Fork(Sequence* parent, Sequence* child) {
    if (!BeginPlan()) return;
    // At the committed position: a window may not have moved on.
    const int64_t tokens = parent->committed;
    child->limit = std::max(tokens + 1, parent->limit);
    child->stated = bytes_.Next(2) == 0;
    const int64_t reserve = child->stated ? child->limit : 0;
    if (!cache_->Fork(&parent->blocks, &child->blocks, tokens, reserve, SlotOf(*child), &plan_)) {
      TANDEM_CHECK(plan_.appends.empty() && plan_.copies.empty());
      ++report_.refused;
      return;
    }
    ++report_.forks;
    child->tenant = parent->tenant;
    child->tokens.assign(parent->tokens.begin(), parent->tokens.begin() + tokens);
    child->histories.assign(parent->histories.begin(), parent->histories.begin() + tokens);
    Append(child, 3 + bytes_.Next(2));
    Begin(child, tokens);
    Submit();
    CheckContent(*child);
  }

  void Row(Sequence* s) {
    const int64_t next = s->blocks.tokens();
    const int64_t end =
        std::min(next + 1 + bytes_.Next(4), std::min(s->limit, s->committed + kUncommitted));
    if (end <= next || !BeginPlan()) return;
    while (static_cast<int64_t>(s->tokens.size()) < end) Append(s, 3 + bytes_.Next(2));
    const Growth growth = pools_.Grow(&s->blocks, end, SlotOf(*s), &plan_);
    if (growth != Growth::kDone) {
      TANDEM_CHECK(plan_.appends.empty() && plan_.copies.empty());
      TANDEM_CHECK(growth == Growth::kWait || !s->stated);
      ++(growth == Growth::kWait ? report_.waits : report_.shorts);
      if (growth == Growth::kShort && bytes_.Next(2) == 0) End(s);
      return;
    }
    s->rows.emplace_back(plan_.step, end);
    s->last_step = plan_.step;
    Submit();
    content_.Write(s->blocks, s->histories, next, end, submitted_);
    CheckContent(*s);
  }

  void Submit() {
    submitted_ = plan_.step.value();
    report_.copies += static_cast<int64_t>(plan_.copies.size());
    content_.Run(plan_, completed_);
  }

  void CheckContent(const Sequence& s) { content_.Check(s.blocks, s.histories, s.committed); }

  void Complete(uint64_t step) {
    if (step <= completed_) return;
    // One step after the other, as the scheduler commits them.
    for (uint64_t done = completed_ + 1; done <= step; ++done) {
      completed_ = done;
      pools_.CompleteSteps(StepId(done));
      for (Sequence& s : sequences_) {
        if (!s.running || s.rows.empty() || s.rows.front().first != StepId(done)) continue;
        s.committed = s.rows.front().second;
        s.rows.pop_front();
        cache_->Commit(&s.blocks, s.tokens, s.committed, StepId(done));
        CheckContent(s);
      }
    }
  }

  void End(Sequence* s) {
    const auto known = static_cast<size_t>(s->committed) + static_cast<size_t>(bytes_.Next(2));
    cache_->Release(&s->blocks, std::span(s->tokens).first(std::min(known, s->tokens.size())),
                    s->last_step);
    s->running = false;
    ++report_.ended;
  }

  void BeginUse() {
    const auto g = static_cast<size_t>(bytes_.Next(static_cast<int32_t>(groups_.size())));
    const GroupId group(static_cast<int32_t>(g));
    const BlockPool& pool = pools_.pool(group);
    const BlockId block(bytes_.Next(pool.total()));
    const bool evictable = pool.is_evictable(block);
    if (uses_.size() >= 3 || (evictable ? pool.available() <= 0 : pool.refs(block) == 0)) return;
    const auto agent = static_cast<UseAgent>(bytes_.Next(kNumUseAgents));
    pools_.BeginUse(group, block, agent);
    content_.BeginUse(group, block);
    uses_.push_back({group, block, agent});
  }

  void EndUse(size_t i) {
    const Use use = uses_[i];
    uses_.erase(uses_.begin() + static_cast<ptrdiff_t>(i));
    content_.EndUse(use.group, use.block);
    pools_.EndUse(use.group, use.block, use.agent);
  }

  void Check() {
    std::vector<const SequenceBlocks*> all;
    for (const Sequence& s : sequences_) all.push_back(&s.blocks);
    TANDEM_CHECK_EQ(cache_->CheckIntegrity(all).ToString(), "OK");
  }

  Bytes bytes_;
  std::vector<StateGroupBlocks> groups_;
  StatePools pools_;
  std::unique_ptr<PrefixCache> cache_;
  std::vector<Sequence> sequences_;
  ContentModel content_;
  std::vector<Use> uses_;
  StepPlan plan_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  uint64_t owners_ = 0;
  TimeNs now_ = 0;
  DriverReport report_;
};

}  // namespace tandem::testing
