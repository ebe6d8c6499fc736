// What: Unicode's normal form C, which some vocabularies (Qwen2, Qwen3) were trained on.
// Not here: which vocabulary wants it (vocab.h); the other normal forms.
// Threads: pure functions.
// Cost: linear in the text but for the sorting of runs of combining marks, n log n in the longest
//   run, so that no text is slow. Text of characters below U+0300 alone is only scanned. Transient
//   memory is about 16 bytes per byte of the longest stretch without such a character.
// Based on: Unicode Standard Annex 15, with the tables of utf8proc (its own NFC orders marks in
//   quadratic time).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// True only if `text` surely is in normal form C already (all its characters are below U+0300).
bool IsTriviallyNfc(std::string_view text);

// Positions where a text can be cut so that its parts are normalised apart from each other; all
// require valid UTF-8. The last such position in [from, pos], `from` at worst:
size_t NfcBorderBefore(std::string_view text, size_t from, size_t pos);
// The first at or after `pos`.
size_t NfcBorderAfter(std::string_view text, size_t pos);

// Requires valid UTF-8.
std::string NormalizeNfc(std::string_view text);

}  // namespace tandem
