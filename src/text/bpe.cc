#include "text/bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
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

struct Parts {
  int32_t left, right, token;
};

Result<Parts> Resolve(std::string_view merge, size_t rank, const TokenIndex& index) {
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
  return Parts{left->value(), right->value(), merged->value()};
}

// Normal tokens by falling score; equal scores get equal ranks.
Result<std::vector<std::pair<int32_t, int32_t>>> RankByScore(const Vocabulary& v) {
  std::vector<std::pair<int32_t, int32_t>> ranked;  // token, rank
  for (size_t t = 0; t < v.tokens.size(); ++t) {
    if (v.type(t) != TokenType::kNormal || v.tokens[t].size() > BpeMerger::kMaxScoredBytes)
      continue;
    if (std::isnan(v.scores[t])) {
      return InvalidArgumentError("vocabulary: the score of token {} is not a number", t);
    }
    ranked.emplace_back(static_cast<int32_t>(t), 0);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&v](const auto& a, const auto& b) {
    return v.scores[static_cast<size_t>(a.first)] > v.scores[static_cast<size_t>(b.first)];
  });
  for (size_t i = 1; i < ranked.size(); ++i) {
    const bool equal = v.scores[static_cast<size_t>(ranked[i].first)] ==
                       v.scores[static_cast<size_t>(ranked[i - 1].first)];
    ranked[i].second = ranked[i - 1].second + (equal ? 0 : 1);
  }
  return ranked;
}

}  // namespace

Result<BpeMerger> BpeMerger::Create(const std::vector<std::string>& merges, const TokenIndex& index,
                                    size_t vocab_size) {
  std::vector<Resolved> resolved;
  resolved.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Result<Parts> merge = Resolve(merges[rank], rank, index);
    if (!merge.ok()) return merge.status();
    resolved.push_back({merge->left, merge->right, static_cast<int32_t>(rank), merge->token});
  }
  return FromMerges(std::move(resolved), vocab_size);
}

Result<BpeMerger> BpeMerger::CreateFromScores(const Vocabulary& vocabulary,
                                              const TokenIndex& index) {
  TANDEM_CHECK_EQ(vocabulary.scores.size(), vocabulary.tokens.size());
  const auto ranked = RankByScore(vocabulary);
  if (!ranked.ok()) return ranked.status();
  std::vector<Resolved> resolved;
  const auto find = [&](std::string_view text) -> std::optional<int32_t> {
    const auto id = index.Find(text);
    if (!id || vocabulary.type(static_cast<size_t>(id->value())) != TokenType::kNormal) return {};
    return id->value();
  };
  for (const auto& [token, rank] : *ranked) {
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(token)];
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const auto left = find(text.substr(0, cut));
      if (!left) continue;
      const auto right = find(text.substr(cut));
      if (!right) continue;
      if (resolved.size() == kMaxMerges) {
        return OutOfRangeError("vocabulary: the scores describe more than {} merges", kMaxMerges);
      }
      resolved.push_back({*left, *right, rank, token});
    }
  }
  return FromMerges(std::move(resolved), vocabulary.tokens.size());
}

Result<BpeMerger> BpeMerger::FromMerges(std::vector<Resolved> merges, size_t vocab_size) {
  std::sort(merges.begin(), merges.end(), [](const Resolved& a, const Resolved& b) {
    return std::tie(a.left, a.right, a.rank) < std::tie(b.left, b.right, b.rank);
  });
  BpeMerger merger;
  merger.first_rule_.assign(vocab_size + 1, 0);
  merger.rules_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Resolved& m = merges[i];
    if (i > 0 && merges[i - 1].left == m.left && merges[i - 1].right == m.right) {
      return InvalidArgumentError("vocabulary: merges {} and {} are the same pair",
                                  merges[i - 1].rank, m.rank);
    }
    merger.rules_.push_back({m.right, m.rank, m.token});
    ++merger.first_rule_[static_cast<size_t>(m.left) + 1];
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

bool BpeMerger::QueuePair(Scratch& scratch, int32_t left) const {
  const Scratch::Node& l = scratch.nodes[left];
  if (l.next == kNone) return false;
  const Rule* const rule = FindRule(l.token, scratch.nodes[l.next].token);
  if (rule == nullptr) return false;
  scratch.queue.push_back((static_cast<uint64_t>(rule->rank) << 32) | static_cast<uint32_t>(left));
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
    const int32_t rank = static_cast<int32_t>(queue.back() >> 32);
    queue.pop_back();
    // Stale when either side has been merged since (a swallowed node's token is kNone) and the pair
    // that stands there now has another rank.
    Scratch::Node& left = nodes[at];
    if (left.token == kNone || left.next == kNone) continue;
    Scratch::Node& right = nodes[left.next];
    const Rule* const rule = FindRule(left.token, right.token);
    if (rule == nullptr || rule->rank != rank) continue;
    left.token = rule->token;
    right.token = kNone;
    left.next = right.next;
    if (left.next != kNone) nodes[left.next].previous = at;
    push_pair(at);
    if (left.previous != kNone) push_pair(left.previous);
  }
  for (int32_t i = 0; i != kNone; i = nodes[i].next) out.push_back(TokenId(nodes[i].token));
}

}  // namespace tandem
