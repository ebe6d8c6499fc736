#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int32_t kNone = -1;

// Shows a vocabulary's text in an error: bounded, and free of control characters.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60)) out += static_cast<uint8_t>(c) < 0x20 ? '?' : c;
  return out + (text.size() > 60 ? "...'" : "'");
}

struct Resolved {
  int32_t left, right, merged;
};

Result<Resolved> Resolve(std::string_view merge, size_t rank, const TokenIndex& index) {
  const auto error = [&](std::string_view what) {
    return InvalidArgumentError("vocabulary: merge {} {} {}", rank, Quoted(merge), what);
  };
  const size_t space = merge.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos) {
    return error("is not two tokens with one space between");
  }
  const auto left = index.Find(merge.substr(0, space));
  if (!left) return error("has a left part that is not a token");
  const auto right = index.Find(merge.substr(space + 1));
  if (!right) return error("has a right part that is not a token");
  std::string joined(merge.substr(0, space));
  joined += merge.substr(space + 1);
  const auto merged = index.Find(joined);
  if (!merged) return error("makes a text that is not a token");
  return Resolved{left->value(), right->value(), merged->value()};
}

}  // namespace

Result<BpeMerger> BpeMerger::Create(const std::vector<std::string>& merges, const TokenIndex& index,
                                    size_t vocab_size) {
  BpeMerger merger;
  merger.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Result<Resolved> merge = Resolve(merges[rank], rank, index);
    if (!merge.ok()) return merge.status();
    merger.merges_.push_back({merge->left, merge->right, merge->merged});
  }
  std::vector<int32_t> order(merges.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&merger](int32_t rank) {
    return std::tuple(merger.merges_[rank].left, merger.merges_[rank].right, rank);
  };
  std::sort(order.begin(), order.end(), [&key](int32_t a, int32_t b) { return key(a) < key(b); });
  merger.first_rule_.assign(vocab_size + 1, 0);
  merger.rules_.reserve(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Merged& m = merger.merges_[order[i]];
    if (i > 0) {
      const Merged& before = merger.merges_[order[i - 1]];
      if (before.left == m.left && before.right == m.right) {
        return InvalidArgumentError("vocabulary: merges {} and {} are the same pair", order[i - 1],
                                    order[i]);
      }
    }
    merger.rules_.push_back({m.right, order[i]});
    ++merger.first_rule_[m.left + 1];
  }
  for (size_t t = 0; t < vocab_size; ++t) merger.first_rule_[t + 1] += merger.first_rule_[t];
  return merger;
}

int32_t BpeMerger::FindRank(int32_t left, int32_t right) const {
  const Rule* const first = rules_.data() + first_rule_[left];
  const Rule* const last = rules_.data() + first_rule_[left + 1];
  const Rule* const rule = std::lower_bound(
      first, last, right, [](const Rule& r, int32_t token) { return r.right < token; });
  return rule == last || rule->right != right ? kNone : rule->rank;
}

bool BpeMerger::QueuePair(Scratch& scratch, int32_t left) const {
  const Scratch::Node& l = scratch.nodes[left];
  if (l.next == kNone) return false;
  const int32_t rank = FindRank(l.token, scratch.nodes[l.next].token);
  if (rank == kNone) return false;
  scratch.queue.push_back((static_cast<uint64_t>(rank) << 32) | static_cast<uint32_t>(left));
  return true;
}

void BpeMerger::Merge(Scratch& scratch, std::vector<TokenId>& out) const {
  TANDEM_CHECK_LT(scratch.symbols.size(), size_t{std::numeric_limits<int32_t>::max()});
  const int32_t count = static_cast<int32_t>(scratch.symbols.size());
  if (count == 0) return;
  auto& nodes = scratch.nodes;
  auto& queue = scratch.queue;
  nodes.resize(count);
  for (int32_t i = 0; i < count; ++i) {
    nodes[i] = {scratch.symbols[i], i - 1, i + 1 < count ? i + 1 : kNone};
  }
  queue.clear();
  for (int32_t i = 0; i < count; ++i) QueuePair(scratch, i);
  // The heap's top is the lowest rank, and the left-most pair among equals.
  constexpr std::greater<> kLater;
  std::make_heap(queue.begin(), queue.end(), kLater);
  const auto push_pair = [&](int32_t left) {
    if (QueuePair(scratch, left)) std::push_heap(queue.begin(), queue.end(), kLater);
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), kLater);
    const int32_t at = static_cast<int32_t>(static_cast<uint32_t>(queue.back()));
    const Merged& merge = merges_[queue.back() >> 32];
    queue.pop_back();
    // Stale when either side has been merged since: a swallowed node's token is kNone.
    Scratch::Node& left = nodes[at];
    if (left.token != merge.left || left.next == kNone) continue;
    Scratch::Node& right = nodes[left.next];
    if (right.token != merge.right) continue;
    left.token = merge.token;
    right.token = kNone;
    left.next = right.next;
    if (left.next != kNone) nodes[left.next].previous = at;
    push_pair(at);
    if (left.previous != kNone) push_pair(left.previous);
  }
  for (int32_t i = 0; i != kNone; i = nodes[i].next) out.push_back(TokenId(nodes[i].token));
}

}  // namespace tandem
