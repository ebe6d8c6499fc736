// What: UTF-8 and the few Unicode properties that text processing needs: decoding with replacement,
//   general categories as the tokenizers' regular expressions use them, Python's notion of white
//   space.
// Not here: normal forms (nfc.h) and case mapping (jinja/strings.h).
// Threads: pure functions.
// Cost: category look-ups are one table access; ASCII never leaves this file's own table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct DecodedChar {
  char32_t code = 0;
  // Bytes consumed, at least 1. For a damaged sequence: its maximal well-formed prefix (Unicode 15,
  // section 3.9, "substitution of maximal subparts"), which stands for one U+FFFD.
  uint8_t size = 0;
  bool valid = false;
  // Damaged only because the text ends inside a so far well-formed sequence.
  bool truncated = false;
};

// The character that starts at `pos`; requires pos < text.size(). A damaged one has code U+FFFD.
DecodedChar DecodeChar(std::string_view text, size_t pos);

void AppendChar(std::string& out, char32_t code);

bool IsValidUtf8(std::string_view text);

// `text` with every damaged sequence replaced by U+FFFD, as Python's decode(errors="replace") does.
std::string ReplaceInvalidUtf8(std::string_view text);

enum class CharClass : uint8_t {
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s, the property White_Space
  kOther,
};
CharClass ClassOf(char32_t code);
// \p{P}; its characters are kOther.
bool IsPunctuation(char32_t code);

// \w: letters, marks, decimal digits, connectors, joiners, and symbols that count as letters.
bool IsWordChar(char32_t code);

// Python's str.isspace() for one character: White_Space and the separators U+001C..U+001F.
bool IsPythonSpace(char32_t code);

}  // namespace tandem
