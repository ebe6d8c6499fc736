#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

namespace tandem {

SpecialTokens::SpecialTokens(std::vector<Word> words) {
  std::sort(words.begin(), words.end(),
            [](const Word& a, const Word& b) { return a.text < b.text; });
  // Breadth first, so that a node's edges are appended together. Each entry is the range of sorted
  // words that share the node's prefix, and the prefix's length.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, words.size(), 0}};
  nodes_.emplace_back();
  for (size_t n = 0; n < ranges.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    if (begin < end && words[begin].text.size() == depth) {
      nodes_[n].token = words[begin].token.value();
      nodes_[n].control = words[begin].control;
      ++begin;
    }
    nodes_[n].first_edge = static_cast<int32_t>(edges_.size());
    while (begin < end) {
      const char byte = words[begin].text[depth];
      size_t stop = begin;
      while (stop < end && words[stop].text[depth] == byte) ++stop;
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<int32_t>(nodes_.size())});
      ++nodes_[n].edge_count;
      nodes_.emplace_back();
      ranges.push_back({begin, stop, depth + 1});
      begin = stop;
    }
  }
  for (int b = 0; b < 256; ++b) root_child_[b] = Child(0, static_cast<uint8_t>(b));
}

int32_t SpecialTokens::Child(int32_t node, uint8_t byte) const {
  const auto first = edges_.begin() + nodes_[node].first_edge;
  const auto last = first + nodes_[node].edge_count;
  const auto it = std::find_if(first, last, [byte](const Edge& e) { return e.byte == byte; });
  return it == last ? kNone : it->target;
}

std::optional<SpecialTokens::Match> SpecialTokens::FindNext(std::string_view text, size_t from,
                                                            Control control) const {
  if (edges_.empty()) return std::nullopt;
  auto span = control.data.begin();
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t node = root_child_[static_cast<uint8_t>(text[begin])];
    if (node == kNone) continue;
    while (span != control.data.end() && span->end <= begin) ++span;
    const size_t data_begin = span != control.data.end() ? span->begin : text.size();
    std::optional<Match> longest;
    for (size_t end = begin + 1; node != kNone; ++end) {
      const Node& n = nodes_[node];
      if (n.token != kNone && (!n.control || (control.allowed && end <= data_begin))) {
        longest = Match{begin, end, TokenId(n.token)};
      }
      if (end == text.size()) break;
      node = Child(node, static_cast<uint8_t>(text[end]));
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace tandem
