// What: PreTokenizer: cuts a text into the pieces inside which BPE may merge, as a vocabulary's
//   regular expressions say, by hand-written scanners over Unicode categories.
// Not here: special tokens (special_tokens.h), normal forms (nfc.h) and merging (bpe.h).
// Threads: a value without state.
// Cost: linear in the text: each character is looked at a bounded number of times, whatever the
//   text.
// Based on: the expressions that the vocabularies' own tokenizer.json files state; each cuts the
//   stretches that the one before it left:
//   gpt-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm   \p{N}, each alone; then gpt-2's
//   llama3   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//            | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2    llama3's with \p{N} for \p{N}{1,3}
//   default  [\p{P}$+<=>^~|]+; then gpt-2's; then \p{N}+; then [0-9][0-9][0-9] (what GGUF readers
//            do with a byte-level vocabulary that names no pre-tokeniser)
#pragma once

#include <cstddef>
#include <cstdint>
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
  enum class Rules : uint8_t { kGpt2, kSmollm, kLlama3, kQwen2, kDefault };

  explicit PreTokenizer(Rules rules) : rules_(rules) {}

  // gpt-2, smollm and default.
  size_t Gpt2PieceEnd(std::string_view text, size_t pos) const;
  size_t Gpt2SpaceEnd(std::string_view text, size_t pos) const;
  // llama3 and qwen2.
  size_t Llama3PieceEnd(std::string_view text, size_t pos) const;
  // Whether a character of its own pass ends the stretch that gpt-2's expression sees.
  bool IsBorder(char32_t code) const;

  Rules rules_;
};

}  // namespace tandem
