// What: SpecialTokens: finds literal tokens (control and user-defined) in a text, left-most first
//   and the longest of those; control tokens only where the caller allows them.
// Not here: what to do with the text between them (tokenizer.h).
// Threads: immutable after construction.
// Cost: at most the length of the longest token per position, which vocab.h bounds; positions whose
//   byte starts no token cost one table look-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/marked_text.h"

namespace tandem {

class SpecialTokens {
 public:
  struct Word {
    std::string_view text;
    TokenId token;
    bool control = false;
  };
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId token;
  };

  SpecialTokens() : SpecialTokens(std::vector<Word>{}) {}
  // Requires texts that are not empty and all different; they are copied.
  explicit SpecialTokens(std::vector<Word> words);

  // Where control words count: nowhere, or wherever they share no byte with `data` (spans as
  // MarkedText has them).
  struct Control {
    bool allowed = false;
    std::span<const ByteSpan> data = {};
  };
  // The first match that begins at or after `from`. Spans that end at or before `from` may be left
  // out.
  std::optional<Match> FindNext(std::string_view text, size_t from, Control control) const;

 private:
  static constexpr int32_t kNone = -1;

  // A trie; the edges of all nodes lie in one array, ordered by (node, byte).
  struct Edge {
    uint8_t byte = 0;
    int32_t target = 0;
  };
  struct Node {
    int32_t first_edge = 0;
    int32_t edge_count = 0;
    int32_t token = kNone;
    bool control = false;
  };
  int32_t Child(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<int32_t, 256> root_child_{};
};

}  // namespace tandem
