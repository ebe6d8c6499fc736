#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace tandem {
namespace {

// The begin of the character that ends at `end`; requires valid UTF-8 and end > 0.
size_t CharBegin(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool IsSpaceAt(std::string_view text, size_t pos) {
  return ClassOf(DecodeChar(text, pos).code) == CharClass::kSpace;
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordChar(DecodeChar(text, CharBegin(text, begin)).code)) return false;
  return end == text.size() || !IsWordChar(DecodeChar(text, end).code);
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Word> words) {
  std::stable_sort(words.begin(), words.end(),
                   [](const Word& a, const Word& b) { return a.text < b.text; });
  const auto same = [](const Word& a, const Word& b) { return a.text == b.text; };
  words.erase(std::unique(words.begin(), words.end(), same), words.end());
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
      const Word& word = words[begin];
      nodes_[n].token = word.token.value();
      nodes_[n].control = word.control;
      nodes_[n].single_word = word.single_word;
      nodes_[n].lstrip = word.lstrip;
      nodes_[n].rstrip = word.rstrip;
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

std::optional<SpecialTokens::Match> SpecialTokens::Finder::Next() {
  if (words_.empty()) return std::nullopt;
  for (; from_ < text_.size(); ++from_) {
    int32_t node = words_.root_child_[static_cast<uint8_t>(text_[from_])];
    if (node == kNone) continue;
    while (span_ != control_.data.end() && span_->end <= from_) ++span_;
    const size_t data_begin = span_ != control_.data.end() ? span_->begin : text_.size();
    int32_t longest = kNone;
    size_t longest_end = 0;
    for (size_t end = from_ + 1; node != kNone; ++end) {
      const Node& n = words_.nodes_[node];
      if (n.token != kNone && (!n.control || (control_.allowed && end <= data_begin))) {
        longest = node;
        longest_end = end;
      }
      if (end == text_.size()) break;
      node = words_.Child(node, static_cast<uint8_t>(text_[end]));
    }
    if (longest == kNone) continue;
    const size_t begin = std::exchange(from_, longest_end);
    if (!words_.nodes_[longest].single_word || StandsAlone(text_, begin, longest_end)) {
      return Stripped(begin, longest_end, longest);
    }
    --from_;  // a word inside of another is skipped as a whole
  }
  return std::nullopt;
}

SpecialTokens::Match SpecialTokens::Finder::Stripped(size_t begin, size_t end, int32_t node) {
  const Node& n = words_.nodes_[node];
  if (n.lstrip) {
    while (begin > last_end_) {
      const size_t previous = CharBegin(text_, begin);
      if (!IsSpaceAt(text_, previous)) break;
      begin = previous;
    }
  }
  if (n.rstrip) end = SpaceEnd(end);
  last_end_ = end;
  return {begin, end, TokenId(n.token)};
}

size_t SpecialTokens::Finder::SpaceEnd(size_t pos) {
  if (pos >= space_run_.begin && pos < space_run_.end) return space_run_.end;
  const size_t begin = pos;
  while (pos < text_.size() && IsSpaceAt(text_, pos)) pos += DecodeChar(text_, pos).size;
  space_run_ = {begin, pos};
  return pos;
}

}  // namespace tandem
