#include "text/pretokenizer.h"

#include <array>

#include "text/unicode.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t",  "'re", "'ve",
                                                           "'m", "'ll", "'d"};

// The end of the run of characters of class `cls` from `pos`.
size_t RunEnd(std::string_view text, size_t pos, CharClass cls) {
  while (pos < text.size()) {
    const DecodedChar c = DecodeChar(text, pos);
    if (ClassOf(c.code) != cls) break;
    pos += c.size;
  }
  return pos;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::ForName(std::string_view name) {
  if (name == "smollm") return PreTokenizer(/*isolate_numbers=*/true);
  if (name == "gpt-2") return PreTokenizer(/*isolate_numbers=*/false);
  return UnimplementedError("pre-tokeniser '{}' is not supported (known: smollm, gpt-2)",
                            name.substr(0, 64));
}

size_t PreTokenizer::NextPieceEnd(std::string_view text, size_t pos) const {
  for (const std::string_view contraction : kContractions) {
    if (text.substr(pos, contraction.size()) == contraction) return pos + contraction.size();
  }
  DecodedChar c = DecodeChar(text, pos);
  CharClass cls = ClassOf(c.code);
  if (cls == CharClass::kSpace) {
    // ` ?` of the three alternatives: one U+0020 joins what follows, unless that is a lone number.
    const size_t next = pos + c.size;
    if (c.code != U' ' || next == text.size()) return SpacePieceEnd(text, pos);
    c = DecodeChar(text, next);
    cls = ClassOf(c.code);
    const bool joins = cls != CharClass::kSpace && !(cls == CharClass::kNumber && isolate_numbers_);
    if (!joins) return SpacePieceEnd(text, pos);
    pos = next;
  }
  if (cls == CharClass::kNumber && isolate_numbers_) return pos + c.size;
  return RunEnd(text, pos + c.size, cls);
}

// `\s+(?!\S)|\s+`: a run of white space leaves its last character to the piece after it, where
// there is one. An isolated number is a border of its own: the run before it is seen as standing at
// the end.
size_t PreTokenizer::SpacePieceEnd(std::string_view text, size_t pos) const {
  size_t last = pos;
  size_t end = pos;
  while (end < text.size()) {
    const DecodedChar c = DecodeChar(text, end);
    const CharClass cls = ClassOf(c.code);
    if (cls == CharClass::kSpace) {
      last = end;
      end += c.size;
      continue;
    }
    if (cls == CharClass::kNumber && isolate_numbers_) return end;
    return last > pos ? last : end;
  }
  return end;
}

}  // namespace tandem
