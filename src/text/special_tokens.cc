#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

namespace tandem {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string_view, TokenId>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  // Breadth first, so that a node's edges are appended together. Each entry is the range of sorted
  // tokens that share the node's prefix, and the prefix's length.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, tokens.size(), 0}};
  nodes_.emplace_back();
  for (size_t n = 0; n < ranges.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    if (begin < end && tokens[begin].first.size() == depth) {
      nodes_[n].token = tokens[begin].second.value();
      ++begin;
    }
    nodes_[n].first_edge = static_cast<int32_t>(edges_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      size_t stop = begin;
      while (stop < end && tokens[stop].first[depth] == byte) ++stop;
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

std::optional<SpecialTokens::Match> SpecialTokens::FindNext(std::string_view text,
                                                            size_t from) const {
  if (edges_.empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    std::optional<Match> longest;
    int32_t node = root_child_[static_cast<uint8_t>(text[begin])];
    for (size_t end = begin + 1; node != kNone; ++end) {
      if (nodes_[node].token != kNone) longest = Match{begin, end, TokenId(nodes_[node].token)};
      if (end == text.size()) break;
      node = Child(node, static_cast<uint8_t>(text[end]));
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace tandem
