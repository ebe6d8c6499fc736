#include "text/stop_strings.h"

#include "base/check.h"
#include "text/unicode.h"

namespace tandem {

Result<StopMatcher> StopMatcher::Create(std::vector<std::string> strings) {
  if (strings.size() > kMaxStrings) {
    return OutOfRangeError("{} stop strings; the limit is {}", strings.size(), kMaxStrings);
  }
  for (const std::string& s : strings) {
    if (s.empty()) return InvalidArgumentError("a stop string is empty");
    if (!IsValidUtf8(s)) return InvalidArgumentError("a stop string is not valid UTF-8");
    if (s.size() > kMaxStringBytes) {
      return OutOfRangeError("a stop string has {} bytes; the limit is {}", s.size(),
                             kMaxStringBytes);
    }
  }
  return StopMatcher(std::move(strings));
}

StopMatcher::StopMatcher(std::vector<std::string> strings)
    : strings_(std::move(strings)), nodes_(1) {
  for (size_t i = 0; i < strings_.size(); ++i) {
    int32_t node = kRoot;
    for (const char c : strings_[i]) {
      int32_t child = Child(node, c);
      if (child == kNone) {
        child = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({.depth = nodes_[node].depth + 1});
        nodes_[node].children.emplace_back(c, child);
      }
      node = child;
    }
    nodes_[node].longest_match = static_cast<int32_t>(i);
  }
  // Breadth first: a node's failure link is shallower, hence already final.
  std::vector<int32_t> queue = {kRoot};
  for (size_t q = 0; q < queue.size(); ++q) {
    const int32_t node = queue[q];
    for (const auto& [c, child] : nodes_[node].children) {
      const int32_t failure = node == kRoot ? kRoot : Step(nodes_[node].failure, c);
      nodes_[child].failure = failure;
      if (nodes_[child].longest_match == kNone) {
        nodes_[child].longest_match = nodes_[failure].longest_match;
      }
      queue.push_back(child);
    }
  }
}

int32_t StopMatcher::Child(int32_t node, char c) const {
  for (const auto& [edge, child] : nodes_[node].children) {
    if (edge == c) return child;
  }
  return kNone;
}

int32_t StopMatcher::Step(int32_t node, char c) const {
  while (true) {
    if (const int32_t child = Child(node, c); child != kNone) return child;
    if (node == kRoot) return kRoot;
    node = nodes_[node].failure;
  }
}

std::string StopMatcher::Append(std::string_view piece) {
  if (stopped()) return {};
  size_t consumed = 0;
  for (; consumed < piece.size() && !match_; ++consumed) {
    state_ = Step(state_, piece[consumed]);
    if (nodes_[state_].longest_match != kNone) match_ = nodes_[state_].longest_match;
  }
  std::string out = std::move(held_);
  out += piece.substr(0, consumed);
  const size_t keep = match_ ? strings_[*match_].size() : static_cast<size_t>(nodes_[state_].depth);
  held_ = match_ ? std::string() : out.substr(out.size() - keep);
  out.resize(out.size() - keep);
  return out;
}

std::string StopMatcher::Flush() {
  state_ = kRoot;
  match_.reset();
  return std::exchange(held_, {});
}

const std::string& StopMatcher::matched() const {
  TANDEM_CHECK(stopped());
  return strings_[*match_];
}

}  // namespace tandem
