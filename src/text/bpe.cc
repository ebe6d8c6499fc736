#include "text/bpe.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int32_t kEnd = -1;

struct ResolvedMerge {
  int32_t left, right, rank, merged;
};

// Shows a vocabulary's text in an error: bounded, and free of control characters.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60)) out += static_cast<uint8_t>(c) < 0x20 ? '?' : c;
  return out + (text.size() > 60 ? "...'" : "'");
}

Result<ResolvedMerge> Resolve(std::string_view merge, size_t rank, const TokenIndex& index) {
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
  return ResolvedMerge{left->value(), right->value(), static_cast<int32_t>(rank), merged->value()};
}

}  // namespace

Result<BpeMerger> BpeMerger::Create(const std::vector<std::string>& merges, const TokenIndex& index,
                                    size_t vocab_size) {
  std::vector<ResolvedMerge> resolved;
  resolved.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    Result<ResolvedMerge> merge = Resolve(merges[rank], rank, index);
    if (!merge.ok()) return merge.status();
    resolved.push_back(*merge);
  }
  std::sort(resolved.begin(), resolved.end(), [](const ResolvedMerge& a, const ResolvedMerge& b) {
    return std::tie(a.left, a.right, a.rank) < std::tie(b.left, b.right, b.rank);
  });
  BpeMerger merger;
  merger.first_rule_.assign(vocab_size + 1, 0);
  merger.rules_.reserve(resolved.size());
  for (size_t i = 0; i < resolved.size(); ++i) {
    const ResolvedMerge& m = resolved[i];
    if (i > 0 && resolved[i - 1].left == m.left && resolved[i - 1].right == m.right) {
      return InvalidArgumentError("vocabulary: merges {} and {} are the same pair",
                                  resolved[i - 1].rank, m.rank);
    }
    merger.rules_.push_back({m.right, m.rank, m.merged});
    ++merger.first_rule_[m.left + 1];
  }
  for (size_t t = 0; t < vocab_size; ++t) merger.first_rule_[t + 1] += merger.first_rule_[t];
  return merger;
}

const BpeMerger::Rule* BpeMerger::FindRule(int32_t left, int32_t right) const {
  const Rule* const first = rules_.data() + first_rule_[left];
  const Rule* const last = rules_.data() + first_rule_[left + 1];
  const Rule* const rule = std::lower_bound(
      first, last, right, [](const Rule& r, int32_t token) { return r.right < token; });
  return rule == last || rule->right != right ? nullptr : rule;
}

namespace {

// Orders the heap so that its top is the lowest rank, and the left-most pair among equals.
constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
};

}  // namespace

void BpeMerger::PushPair(Scratch& scratch, int32_t left) const {
  const Scratch::Node& l = scratch.nodes[left];
  if (l.next == kEnd) return;
  const int32_t right_token = scratch.nodes[l.next].token;
  const Rule* const rule = FindRule(l.token, right_token);
  if (rule == nullptr) return;
  scratch.queue.push_back({rule->rank, left, l.token, right_token, rule->merged});
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), kLater);
}

void BpeMerger::Merge(Scratch& scratch, std::vector<TokenId>& out) const {
  TANDEM_CHECK_LT(scratch.symbols.size(), size_t{std::numeric_limits<int32_t>::max()});
  const int32_t count = static_cast<int32_t>(scratch.symbols.size());
  if (count == 0) return;
  auto& nodes = scratch.nodes;
  nodes.resize(count);
  for (int32_t i = 0; i < count; ++i) {
    nodes[i] = {scratch.symbols[i], i - 1, i + 1 < count ? i + 1 : kEnd};
  }
  scratch.queue.clear();
  for (int32_t i = 0; i < count; ++i) PushPair(scratch, i);
  while (!scratch.queue.empty()) {
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), kLater);
    const Scratch::Candidate top = scratch.queue.back();
    scratch.queue.pop_back();
    // Stale when either side has been merged since: a swallowed node's token is kEnd.
    Scratch::Node& left = nodes[top.left];
    if (left.token != top.left_token || left.next == kEnd) continue;
    Scratch::Node& right = nodes[left.next];
    if (right.token != top.right_token) continue;
    left.token = top.merged;
    right.token = kEnd;
    left.next = right.next;
    if (left.next != kEnd) nodes[left.next].previous = top.left;
    PushPair(scratch, top.left);
    if (left.previous != kEnd) PushPair(scratch, left.previous);
  }
  for (int32_t i = 0; i != kEnd; i = nodes[i].next) out.push_back(TokenId(nodes[i].token));
}

}  // namespace tandem
