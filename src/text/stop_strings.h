// What: StopMatcher: passes a stream of text on until one of several stop strings has appeared in
//   it.
// Not here: stop tokens (Tokenizer::IsEndOfGeneration).
// Threads: belongs to one thread.
// Invariants: the result does not depend on how the stream is cut into pieces. The match is the one
//   whose end comes first in the stream; of those that end together the longest. Nothing of the
//   match, and nothing that could still become its beginning, is ever passed on. If every piece is
//   whole characters, so is every text that comes out.
// Cost: amortised constant per byte (times the number of strings that branch at a node); memory
//   linear in the strings.
// Based on: Aho and Corasick, "Efficient string matching" (1975).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {

class StopMatcher {
 public:
  static constexpr size_t kMaxStrings = 64;
  static constexpr size_t kMaxStringBytes = 4096;

  // No strings: nothing ever stops. INVALID_ARGUMENT for a string that is empty or not UTF-8,
  // OUT_OF_RANGE beyond the limits.
  static Result<StopMatcher> Create(std::vector<std::string> strings);

  // The text that is now known not to belong to a match. After a match has been found, and after it
  // only, stopped() is true and every further call returns nothing.
  std::string Append(std::string_view piece);
  // At the end of the stream: what was held back (nothing after a match). Ready for a new stream.
  std::string Flush();

  bool stopped() const { return match_.has_value(); }
  // The string that matched; requires stopped().
  const std::string& matched() const;
  // Bytes that wait for more text to decide.
  size_t held_bytes() const { return held_.size(); }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kRoot = 0;

  struct Node {
    // Goto edges; few per node.
    std::vector<std::pair<char, int32_t>> children;
    // Longest proper suffix of this node's text that is a node too.
    int32_t failure = kRoot;
    int32_t depth = 0;
    // Longest stop string that is a suffix of this node's text.
    int32_t longest_match = kNone;
  };

  explicit StopMatcher(std::vector<std::string> strings);
  int32_t Child(int32_t node, char c) const;
  int32_t Step(int32_t node, char c) const;

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;
  int32_t state_ = kRoot;
  // The last nodes_[state_].depth bytes of the stream.
  std::string held_;
  std::optional<int32_t> match_;
};

}  // namespace tandem
