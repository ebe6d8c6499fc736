// What: RetentionPolicy: which cached part of a prefix is given up first, and the measurements that
//   the choice rests on. One object decides; LruRetention (the baseline) and ValueRetention differ
//   in two functions only.
// Not here: the tree and who uses a part (prefix_cache.h), which offers no part where a sequence
//   stands or on which others hang; lower tiers, which join with their own fetch and upkeep cost.
// Threads: the engine's thread. No clock: time is what Advance says.
// Invariants (CheckIntegrity): every offered part is in exactly one heap, ordered by (time of last
//   use, deeper first).
// Cost: O(log n) amortised per operation; Choose also O(kNumPrefixClasses) and O(log n) for each
//   part that may not go yet. Nothing is allocated after construction.
// Based on: V = p_h (T_r - T_f) - T_m per byte (the chapter, 8.3.4); conditional hit probability by
//   age as in LHD (Beckmann et al., NSDI'18); pairing heaps (Fredman et al. 1986).
//
// Prefix classes. What a part's history says about its future: how often it has been reused (0, 1,
// 2, more), whether it continues a prefix that had been reused when it was stored (a conversation
// or an agent that goes on) or is a fresh one (a scan), and how deep it lies (from token 0, 256,
// 1024, 4096). Tenants share classes: a class needs many events to be worth anything.
// p_h of a class at an age is measured: of the parts of the class whose last use was at least so
// long ago, the share that was reused before it was evicted. Reuse after eviction does not count;
// parts that wait count as not reused so far, so a scan is known for one before any of it is
// evicted.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace tandem {

// A node of the prefix tree.
using PrefixNodeId = StrongId<struct PrefixNodeTag, int32_t>;

inline constexpr int32_t kNumReuseLevels = 4;
inline constexpr int32_t kNumDepthLevels = 4;
inline constexpr int32_t kNumPrefixClasses = kNumReuseLevels * 2 * kNumDepthLevels;

struct PrefixClass {
  int32_t reuses = 0;      // 3: three or more
  bool continues = false;  // stored behind a prefix that had been reused
  int32_t depth = 0;       // level of the first token

  static PrefixClass At(int32_t index);
  // Of the first tokens of its parts, the least possible.
  int32_t first_token_from() const;
  int32_t index() const { return (reuses * 2 + (continues ? 1 : 0)) * kNumDepthLevels + depth; }
};

struct RetentionCosts {
  // T_r: seconds to compute positions [begin, end) once those before them are there; from the
  // calibrated cost model, or measured. Must stay valid as long as the policy.
  std::function<double(int64_t begin, int64_t end)> recompute_s;
  // T_f and T_m of the tier that the parts are in: until their state can be used, and to keep it.
  // Zero in device memory.
  double fetch_s_per_byte = 0;
  double upkeep_s_per_byte = 0;
};

// V: the seconds that keeping a part is expected to save.
inline double RetentionValue(double hit_probability, double recompute_s, double fetch_s,
                             double upkeep_s) {
  return hit_probability * (recompute_s - fetch_s) - upkeep_s;
}

struct RetainedPart {
  int64_t first_token = 0;
  int32_t num_tokens = 0;
  int64_t bytes = 0;
  bool continues = false;
};

struct PrefixClassStats {
  int64_t hits = 0;       // parts reused
  int64_t evictions = 0;  // parts evicted
  int64_t parts = 0;      // kept now
  double hit_probability = 0;
};

struct RetentionStats {
  int64_t hits = 0;
  int64_t evictions = 0;
  int64_t hit_tokens = 0;
  double saved_s = 0;         // T_r - T_f of all hits
  double evicted_loss_s = 0;  // V of all parts at their eviction: what was expected to be lost
  std::array<PrefixClassStats, kNumPrefixClasses> classes;
};

class RetentionPolicy {
 public:
  // For nodes 0 .. max_nodes-1.
  RetentionPolicy(int32_t max_nodes, RetentionCosts costs);
  virtual ~RetentionPolicy() = default;
  RetentionPolicy(const RetentionPolicy&) = delete;
  RetentionPolicy& operator=(const RetentionPolicy&) = delete;

  virtual std::string_view name() const = 0;

  // It is `now`; an earlier time than the last changes nothing.
  void Advance(TimeNs now);

  // A part is stored, in use. Requires a node that is not kept.
  void Insert(PrefixNodeId node, const RetainedPart& part);
  // A request starts with the part. Requires a kept one.
  void Hit(PrefixNodeId node);
  // One of its users leaves. The parts of a sequence are touched with one `turn`, which grows.
  void Touch(PrefixNodeId node, uint64_t turn);

  // The part may go: nobody uses it and nothing hangs on it. Requires a kept part, not offered.
  void Offer(PrefixNodeId node);
  void Withdraw(PrefixNodeId node);
  bool offered(PrefixNodeId node) const { return At(node).list >= 0; }

  // The offered part whose loss costs least among those that `may_go` accepts; none if there is
  // none. It stays offered.
  std::optional<PrefixNodeId> Choose(const std::function<bool(PrefixNodeId)>& may_go);

  // The part is given up. Requires an offered one.
  void Evict(PrefixNodeId node);

  // p_h of the class for a part whose last use was `idle` ago; 0.5 for a class without history.
  double HitProbability(PrefixClass prefix_class, TimeNs idle) const;
  bool kept(PrefixNodeId node) const { return At(node).kept; }
  // The part has been reused, or continues one that had been.
  bool of_reused_prefix(PrefixNodeId node) const {
    return At(node).reuses > 0 || At(node).part.continues;
  }
  RetentionStats stats() const;

  // O(max_nodes).
  Status CheckIntegrity() const;

 protected:
  struct Record {
    RetainedPart part;
    TimeNs last_use = 0;
    uint64_t turn = 0;
    int32_t reuses = 0;
    // Pairing heap.
    int32_t list = -1;  // -1: not offered
    int32_t child = -1;
    int32_t sibling = -1;
    int32_t previous = -1;  // sibling before, or parent of the first child
    bool kept = false;
  };

  // Which heap an offered part belongs to, below kNumPrefixClasses. Constant while it is offered.
  virtual int32_t ListOf(const Record& record) const = 0;
  // What losing the part costs, per byte. Compared between the least recently used of each heap.
  virtual double LossPerByte(const Record& record) const = 0;

  static PrefixClass ClassOf(const Record& record);
  double ValueOf(const Record& record) const;

 private:
  static constexpr int32_t kNumAges = 24;
  struct Ages {
    std::array<double, kNumAges> hits{};
    std::array<double, kNumAges> evictions{};
    double total = 0;
  };

  Record& At(PrefixNodeId node) { return records_[static_cast<size_t>(node.value())]; }
  const Record& At(PrefixNodeId node) const { return records_[static_cast<size_t>(node.value())]; }
  Record& Rec(int32_t i) { return records_[static_cast<size_t>(i)]; }
  static int32_t AgeLevel(TimeNs idle);
  void Count(const Record& record, bool hit);
  bool Before(int32_t a, int32_t b) const;
  int32_t Meld(int32_t a, int32_t b);
  int32_t MeldChildren(int32_t node);
  void Push(int32_t list, int32_t node);
  void Remove(int32_t node);

  std::vector<Record> records_;
  RetentionCosts costs_;
  TimeNs now_ = 0;
  std::array<int32_t, kNumPrefixClasses> heads_;
  std::vector<int32_t> aside_;  // scratch of Choose
  std::vector<int32_t> pairs_;  // scratch of MeldChildren
  std::array<Ages, kNumPrefixClasses> ages_{};
  RetentionStats stats_;
};

// Least recently used goes first; a sequence's tail before its head.
class LruRetention final : public RetentionPolicy {
 public:
  using RetentionPolicy::RetentionPolicy;
  std::string_view name() const override { return "lru"; }

 private:
  int32_t ListOf(const Record&) const override { return 0; }
  double LossPerByte(const Record&) const override { return 0; }
};

// Least value per byte goes first: of each class the least recently used part, with the p_h of its
// class and age, competes.
class ValueRetention final : public RetentionPolicy {
 public:
  using RetentionPolicy::RetentionPolicy;
  std::string_view name() const override { return "value"; }

 private:
  int32_t ListOf(const Record& record) const override { return ClassOf(record).index(); }
  double LossPerByte(const Record& record) const override {
    return ValueOf(record) / static_cast<double>(record.part.bytes);
  }
};

enum class RetentionKind : uint8_t { kLru, kValue };

std::unique_ptr<RetentionPolicy> MakeRetention(RetentionKind kind, int32_t max_nodes,
                                               RetentionCosts costs);

}  // namespace tandem
