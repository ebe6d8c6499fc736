#include "kv/retention.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// First tokens of the depth levels above the lowest.
constexpr std::array<int64_t, kNumDepthLevels - 1> kDepths = {256, 1024, 4096};

// Beyond this many events a class forgets half of them: a workload that changes is followed, and
// the error of a measured share is about 1 / sqrt(2000).
constexpr double kEventsRemembered = 4096;

}  // namespace

PrefixClass PrefixClass::At(int32_t index) {
  return {index / kNumDepthLevels / 2, index / kNumDepthLevels % 2 != 0, index % kNumDepthLevels};
}

int32_t PrefixClass::first_token_from() const {
  return depth == 0 ? 0 : static_cast<int32_t>(kDepths[static_cast<size_t>(depth) - 1]);
}

RetentionPolicy::RetentionPolicy(int32_t max_nodes, RetentionCosts costs)
    : records_(static_cast<size_t>(max_nodes)), costs_(std::move(costs)) {
  TANDEM_CHECK(costs_.recompute_s != nullptr);
  heads_.fill(-1);
  aside_.reserve(records_.size());
  pairs_.reserve(records_.size());
}

void RetentionPolicy::Advance(TimeNs now) { now_ = std::max(now_, now); }

PrefixClass RetentionPolicy::ClassOf(const Record& record) {
  const auto depth = std::upper_bound(kDepths.begin(), kDepths.end(), record.part.first_token);
  return {std::min(record.reuses, kNumReuseLevels - 1), record.part.continues,
          static_cast<int32_t>(depth - kDepths.begin())};
}

// Powers of two of about a millisecond.
int32_t RetentionPolicy::AgeLevel(TimeNs idle) {
  const auto units = static_cast<uint64_t>(std::max<TimeNs>(0, idle)) >> 20;
  return std::min<int32_t>(static_cast<int32_t>(std::bit_width(units)), kNumAges - 1);
}

void RetentionPolicy::Count(const Record& record, bool hit) {
  const auto c = static_cast<size_t>(ClassOf(record).index());
  const auto level = static_cast<size_t>(AgeLevel(now_ - record.last_use));
  Ages& ages = ages_[c];
  (hit ? ages.hits : ages.evictions)[level] += 1;
  (hit ? stats_.classes[c].hits : stats_.classes[c].evictions) += 1;
  ages.total += 1;
  if (ages.total <= kEventsRemembered) return;
  ages.total /= 2;
  for (double& n : ages.hits) n /= 2;
  for (double& n : ages.evictions) n /= 2;
}

double RetentionPolicy::HitProbability(PrefixClass prefix_class, TimeNs idle) const {
  const Ages& ages = ages_[static_cast<size_t>(prefix_class.index())];
  const auto level = static_cast<size_t>(AgeLevel(idle));
  double hits = 0;
  double all = 0;
  double later_hits = 0;
  double later = 0;
  for (size_t i = 0; i < static_cast<size_t>(kNumAges); ++i) {
    hits += ages.hits[i];
    all += ages.hits[i] + ages.evictions[i];
    if (i < level) continue;
    later_hits += ages.hits[i];
    later += ages.hits[i] + ages.evictions[i];
  }
  // Parts that wait have not been reused so far. Together they weigh as many events at the age in
  // question, each with the probability of the class, as far as the class is hit so late.
  const auto waiting =
      static_cast<double>(stats_.classes[static_cast<size_t>(prefix_class.index())].parts);
  const double of_class = (hits + 0.5) / (all + waiting + 1);
  const double so_late = std::min(1.0, (later_hits + 0.5) / (hits + 0.5));
  return (later_hits + of_class * so_late * (waiting + 1)) / (later + waiting + 1);
}

void RetentionPolicy::Insert(PrefixNodeId node, const RetainedPart& part) {
  Record& r = At(node);
  TANDEM_CHECK(!r.kept);
  TANDEM_CHECK_GT(part.bytes, 0);
  r = Record{};
  r.part = part;
  r.last_use = now_;
  r.kept = true;
  ++stats_.classes[static_cast<size_t>(ClassOf(r).index())].parts;
}

void RetentionPolicy::Hit(PrefixNodeId node) {
  Record& r = At(node);
  TANDEM_CHECK(r.kept && r.list < 0);
  Count(r, true);
  ++stats_.hits;
  stats_.hit_tokens += r.part.num_tokens;
  const int64_t begin = r.part.first_token;
  stats_.saved_s += costs_.recompute_s(begin, begin + r.part.num_tokens) -
                    costs_.fetch_s_per_byte * static_cast<double>(r.part.bytes);
  --stats_.classes[static_cast<size_t>(ClassOf(r).index())].parts;
  r.reuses = std::min(r.reuses + 1, kNumReuseLevels - 1);
  ++stats_.classes[static_cast<size_t>(ClassOf(r).index())].parts;
  r.last_use = now_;
}

void RetentionPolicy::Touch(PrefixNodeId node, uint64_t turn) {
  Record& r = At(node);
  TANDEM_CHECK(r.kept && r.list < 0);
  r.last_use = now_;
  r.turn = turn;
}

double RetentionPolicy::ValueOf(const Record& r) const {
  const auto bytes = static_cast<double>(r.part.bytes);
  const double recompute =
      costs_.recompute_s(r.part.first_token, r.part.first_token + r.part.num_tokens);
  return RetentionValue(HitProbability(ClassOf(r), now_ - r.last_use), recompute,
                        costs_.fetch_s_per_byte * bytes, costs_.upkeep_s_per_byte * bytes);
}

void RetentionPolicy::Offer(PrefixNodeId node) {
  Record& r = At(node);
  TANDEM_CHECK(r.kept && r.list < 0);
  Push(ListOf(r), node.value());
}

void RetentionPolicy::Withdraw(PrefixNodeId node) {
  TANDEM_CHECK(offered(node));
  Remove(node.value());
}

std::optional<PrefixNodeId> RetentionPolicy::Choose(
    const std::function<bool(PrefixNodeId)>& may_go) {
  aside_.clear();
  std::optional<PrefixNodeId> best;
  double best_loss = 0;
  for (int32_t list = 0; list < kNumPrefixClasses; ++list) {
    int32_t& head = heads_[static_cast<size_t>(list)];
    while (head >= 0 && !may_go(PrefixNodeId(head))) {
      const int32_t skipped = head;
      aside_.push_back(skipped);
      Remove(skipped);
    }
    if (head < 0) continue;
    const double loss = LossPerByte(Rec(head));
    if (!best || loss < best_loss || (loss == best_loss && Before(head, best->value()))) {
      best = PrefixNodeId(head);
      best_loss = loss;
    }
  }
  for (int32_t node : aside_) Push(ListOf(Rec(node)), node);
  return best;
}

void RetentionPolicy::Evict(PrefixNodeId node) {
  TANDEM_CHECK(offered(node));
  Record& r = At(node);
  Count(r, false);
  ++stats_.evictions;
  stats_.evicted_loss_s += ValueOf(r);
  --stats_.classes[static_cast<size_t>(ClassOf(r).index())].parts;
  Remove(node.value());
  r.kept = false;
}

RetentionStats RetentionPolicy::stats() const {
  RetentionStats stats = stats_;
  for (int32_t i = 0; i < kNumPrefixClasses; ++i) {
    stats.classes[static_cast<size_t>(i)].hit_probability = HitProbability(PrefixClass::At(i), 0);
  }
  return stats;
}

bool RetentionPolicy::Before(int32_t a, int32_t b) const {
  const Record& x = records_[static_cast<size_t>(a)];
  const Record& y = records_[static_cast<size_t>(b)];
  if (x.turn != y.turn) return x.turn < y.turn;
  if (x.part.first_token != y.part.first_token) return x.part.first_token > y.part.first_token;
  return a < b;
}

// The heap of two roots without siblings.
int32_t RetentionPolicy::Meld(int32_t a, int32_t b) {
  if (a < 0) return b;
  if (b < 0) return a;
  if (Before(b, a)) std::swap(a, b);
  Record& parent = Rec(a);
  Record& child = Rec(b);
  child.sibling = parent.child;
  if (parent.child >= 0) Rec(parent.child).previous = b;
  child.previous = a;
  parent.child = b;
  return a;
}

// The heap of a node's children, melded in pairs from the left and then from the right.
int32_t RetentionPolicy::MeldChildren(int32_t node) {
  pairs_.clear();
  int32_t next = Rec(node).child;
  Rec(node).child = -1;
  while (next >= 0) {
    const int32_t a = next;
    const int32_t b = Rec(a).sibling;
    next = b >= 0 ? Rec(b).sibling : -1;
    Rec(a).sibling = Rec(a).previous = -1;
    if (b >= 0) Rec(b).sibling = Rec(b).previous = -1;
    pairs_.push_back(Meld(a, b));
  }
  int32_t root = -1;
  for (; !pairs_.empty(); pairs_.pop_back()) root = Meld(root, pairs_.back());
  return root;
}

void RetentionPolicy::Push(int32_t list, int32_t node) {
  Record& r = Rec(node);
  r.list = list;
  r.child = r.sibling = r.previous = -1;
  int32_t& head = heads_[static_cast<size_t>(list)];
  head = Meld(head, node);
}

void RetentionPolicy::Remove(int32_t node) {
  Record& r = Rec(node);
  int32_t& head = heads_[static_cast<size_t>(r.list)];
  r.list = -1;
  const int32_t rest = MeldChildren(node);
  if (head == node) {
    head = rest;
    return;
  }
  Record& previous = Rec(r.previous);
  (previous.child == node ? previous.child : previous.sibling) = r.sibling;
  if (r.sibling >= 0) Rec(r.sibling).previous = r.previous;
  r.sibling = r.previous = -1;
  head = Meld(head, rest);
}

Status RetentionPolicy::CheckIntegrity() const {
  std::vector<int32_t> stack;
  size_t listed = 0;
  for (int32_t list = 0; list < kNumPrefixClasses; ++list) {
    if (heads_[static_cast<size_t>(list)] >= 0) stack.push_back(heads_[static_cast<size_t>(list)]);
    while (!stack.empty()) {
      const int32_t i = stack.back();
      stack.pop_back();
      const Record& r = records_[static_cast<size_t>(i)];
      if (++listed > records_.size() || r.list != list || !r.kept || ListOf(r) != list) {
        return InternalError("cached part {} is in the wrong heap", i);
      }
      for (int32_t c = r.child; c >= 0; c = records_[static_cast<size_t>(c)].sibling) {
        if (Before(c, i)) return InternalError("cached part {} lies above an older one", i);
        stack.push_back(c);
      }
    }
  }
  size_t offered = 0;
  for (const Record& r : records_) offered += r.list >= 0;
  if (offered != listed) return InternalError("{} parts offered, {} listed", offered, listed);
  return OkStatus();
}

std::unique_ptr<RetentionPolicy> MakeRetention(RetentionKind kind, int32_t max_nodes,
                                               RetentionCosts costs) {
  if (kind == RetentionKind::kLru) return std::make_unique<LruRetention>(max_nodes, costs);
  return std::make_unique<ValueRetention>(max_nodes, std::move(costs));
}

}  // namespace tandem
