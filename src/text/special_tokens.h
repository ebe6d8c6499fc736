// What: SpecialTokens: finds literal tokens (control and user-defined) in a text, left-most first
//   and the longest of those; control tokens only where the caller allows them.
// Not here: what to do with the text between them (tokenizer.h).
// Threads: SpecialTokens is immutable after construction; a Finder belongs to one thread.
// Cost: at most the length of the longest token per position, which vocab.h bounds; positions whose
//   byte starts no token cost one table look-up. White space that tokens take with them is walked
//   over once in each direction.
// Based on: the added tokens of Hugging Face's `tokenizers`, quirks included.
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
    // As LiteralRule (vocab.h).
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
  };
  struct Match {
    // With the white space that belongs to it. `begin` lies before the end of the match before
    // where a token stands in the white space which that one took.
    size_t begin = 0;
    size_t end = 0;
    TokenId token;
  };
  // Where control words count: nowhere, or wherever they share no byte with `data` (spans as
  // MarkedText has them).
  struct Control {
    bool allowed = false;
    std::span<const ByteSpan> data = {};
  };

  SpecialTokens() : SpecialTokens(std::vector<Word>{}) {}
  // Requires texts that are not empty; they are copied. Of words with the same text the first
  // counts.
  explicit SpecialTokens(std::vector<Word> words);

  bool empty() const { return edges_.empty(); }

  // Walks over the matches in one text; both arguments and the words must outlive it. Spans that
  // end at or before the text's begin are no harm.
  class Finder {
   public:
    Finder(const SpecialTokens& words, std::string_view text, Control control)
        : words_(words), text_(text), control_(control), span_(control.data.begin()) {}
    // None at the end of the text.
    std::optional<Match> Next();

   private:
    // What `node`'s word, which stands at [begin, end), matches.
    Match Stripped(size_t begin, size_t end, int32_t node);
    // The end of the white space at `pos`.
    size_t SpaceEnd(size_t pos);

    const SpecialTokens& words_;
    const std::string_view text_;
    const Control control_;
    std::span<const ByteSpan>::iterator span_;
    size_t from_ = 0;
    size_t last_end_ = 0;
    // A run of white space seen last, so that tokens inside of it need not walk to its end again.
    ByteSpan space_run_;
  };

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
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
  };
  int32_t Child(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<int32_t, 256> root_child_{};
};

}  // namespace tandem
