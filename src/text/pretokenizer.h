// What: PreTokenizer: cuts a text into the pieces inside which BPE may merge, as a vocabulary's
//   regular expressions say, by hand-written scanners over Unicode categories.
// Not here: special tokens (special_tokens.h) and merging (bpe.h).
// Threads: a value without state.
// Cost: linear in the text: each character is looked at a bounded number of times, whatever the
//   text.
// Based on: the expressions that the vocabularies' own tokenizer.json files state:
//   gpt-2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm  first every \p{N} alone, then gpt-2's expression on each stretch between them.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace tandem {

class PreTokenizer {
 public:
  // `name` as in GGUF's tokenizer.ggml.pre; UNIMPLEMENTED names an unknown one.
  static Result<PreTokenizer> ForName(std::string_view name);

  // The end of the piece that starts at `pos`: pos < end <= text.size(). Requires valid UTF-8,
  // pos < text.size(), and `pos` to be 0 or an end returned before for the same text.
  size_t NextPieceEnd(std::string_view text, size_t pos) const;

 private:
  explicit PreTokenizer(bool isolate_numbers) : isolate_numbers_(isolate_numbers) {}

  size_t SpacePieceEnd(std::string_view text, size_t pos) const;

  bool isolate_numbers_;
};

}  // namespace tandem
