#include "text/pretokenizer.h"

#include <algorithm>
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

bool IsNewline(char32_t code) { return code == '\r' || code == '\n'; }

// Of the default pre-tokeniser's first pass.
bool IsDefaultPunctuation(char32_t code) {
  switch (code) {
    case '$':
    case '+':
    case '<':
    case '=':
    case '>':
    case '^':
    case '~':
    case '|': return true;
    default: return IsPunctuation(code);
  }
}

bool IsAsciiDigit(std::string_view text, size_t pos) {
  return pos < text.size() && text[pos] >= '0' && text[pos] <= '9';
}

bool ThreeDigitsAt(std::string_view text, size_t pos) {
  return IsAsciiDigit(text, pos) && IsAsciiDigit(text, pos + 1) && IsAsciiDigit(text, pos + 2);
}

// \p{N}+ and inside it [0-9][0-9][0-9]: three digits, or everything up to the next three.
size_t DefaultNumberEnd(std::string_view text, size_t pos) {
  if (ThreeDigitsAt(text, pos)) return pos + 3;
  while (pos < text.size() && !ThreeDigitsAt(text, pos)) {
    const DecodedChar c = DecodeChar(text, pos);
    if (ClassOf(c.code) != CharClass::kNumber) break;
    pos += c.size;
  }
  return pos;
}

// The character at `pos`, one letter of a contraction, in lower case. U+017F is a form of s too.
char ContractionLetter(std::string_view text, size_t pos, size_t* size) {
  *size = 0;
  if (pos >= text.size()) return '\0';
  const DecodedChar c = DecodeChar(text, pos);
  *size = c.size;
  if (c.code == 0x17F) return 's';
  if (c.code >= 'A' && c.code <= 'Z') return static_cast<char>(c.code - 'A' + 'a');
  return c.code < 0x80 ? static_cast<char>(c.code) : '\0';
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d), or `pos` where there is none.
size_t AnyCaseContractionEnd(std::string_view text, size_t pos) {
  if (text[pos] != '\'') return pos;
  size_t size = 0;
  const char first = ContractionLetter(text, pos + 1, &size);
  const size_t next = pos + 1 + size;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return next;
  const char second = ContractionLetter(text, next, &size);
  const bool two =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return two ? next + size : pos;
}

// A run of white space: \s*[\r\n]+ ends behind its last line break; \s+(?!\S) leaves its last
// character to what follows it; \s+ is the rest.
size_t Llama3SpaceEnd(std::string_view text, size_t pos) {
  size_t last = pos;
  size_t end = pos;
  size_t line_end = pos;
  while (end < text.size()) {
    const DecodedChar c = DecodeChar(text, end);
    if (ClassOf(c.code) != CharClass::kSpace) break;
    last = end;
    end += c.size;
    if (IsNewline(c.code)) line_end = end;
  }
  if (line_end > pos) return line_end;
  return end < text.size() && last > pos ? last : end;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::ForName(std::string_view name) {
  static constexpr std::pair<std::string_view, Rules> kNames[] = {
      {"smollm", Rules::kSmollm},   {"gpt-2", Rules::kGpt2},
      {"default", Rules::kDefault}, {"llama-bpe", Rules::kLlama3},
      {"llama3", Rules::kLlama3},   {"llama-v3", Rules::kLlama3},
      {"qwen2", Rules::kQwen2},     {"deepseek-r1-qwen", Rules::kQwen2},
  };
  for (const auto& [known, rules] : kNames) {
    if (known == name) return PreTokenizer(rules);
  }
  return UnimplementedError(
      "pre-tokeniser '{}' is not supported (known: smollm, gpt-2, llama-bpe, llama3, qwen2, "
      "deepseek-r1-qwen, default)",
      name.substr(0, 64));
}

size_t PreTokenizer::NextPieceEnd(std::string_view text, size_t pos) const {
  if (rules_ == Rules::kLlama3 || rules_ == Rules::kQwen2) return Llama3PieceEnd(text, pos);
  return Gpt2PieceEnd(text, pos);
}

bool PreTokenizer::IsBorder(char32_t code) const {
  if (rules_ == Rules::kSmollm) return ClassOf(code) == CharClass::kNumber;
  return rules_ == Rules::kDefault && IsDefaultPunctuation(code);
}

size_t PreTokenizer::Gpt2PieceEnd(std::string_view text, size_t pos) const {
  const bool by_default = rules_ == Rules::kDefault;
  if (!by_default) {  // there the apostrophe is a border
    for (const std::string_view contraction : kContractions) {
      if (text.substr(pos, contraction.size()) == contraction) return pos + contraction.size();
    }
  }
  DecodedChar c = DecodeChar(text, pos);
  CharClass cls = ClassOf(c.code);
  if (cls == CharClass::kSpace) {
    // ` ?` of the three alternatives: one U+0020 joins what follows, unless that is a piece alone.
    const size_t next = pos + c.size;
    if (c.code != U' ' || next == text.size()) return Gpt2SpaceEnd(text, pos);
    c = DecodeChar(text, next);
    cls = ClassOf(c.code);
    if (cls == CharClass::kSpace || IsBorder(c.code)) return Gpt2SpaceEnd(text, pos);
    if (cls == CharClass::kNumber && by_default) return next;
    pos = next;
  }
  if (!by_default) {
    if (IsBorder(c.code)) return pos + c.size;
    return RunEnd(text, pos + c.size, cls);
  }
  if (cls == CharClass::kNumber) return DefaultNumberEnd(text, pos);
  if (cls == CharClass::kLetter) return RunEnd(text, pos + c.size, cls);
  const bool border = IsBorder(c.code);
  for (pos += c.size; pos < text.size(); pos += c.size) {
    c = DecodeChar(text, pos);
    if (ClassOf(c.code) != CharClass::kOther) break;
    if (IsBorder(c.code) != border) break;
  }
  return pos;
}

// `\s+(?!\S)|\s+`: a run of white space leaves its last character to the piece after it, where
// there is one. A border ends the stretch: the run before it is seen as standing at the end.
size_t PreTokenizer::Gpt2SpaceEnd(std::string_view text, size_t pos) const {
  size_t last = pos;
  size_t end = pos;
  while (end < text.size()) {
    const DecodedChar c = DecodeChar(text, end);
    if (ClassOf(c.code) == CharClass::kSpace) {
      last = end;
      end += c.size;
      continue;
    }
    if (IsBorder(c.code)) return end;
    return last > pos ? last : end;
  }
  return end;
}

size_t PreTokenizer::Llama3PieceEnd(std::string_view text, size_t pos) const {
  if (const size_t end = AnyCaseContractionEnd(text, pos); end > pos) return end;
  const DecodedChar first = DecodeChar(text, pos);
  const CharClass cls = ClassOf(first.code);
  const size_t next = pos + first.size;
  if (cls == CharClass::kLetter) return RunEnd(text, next, cls);
  if (cls == CharClass::kNumber) {
    size_t end = next;
    const int more = rules_ == Rules::kLlama3 ? 2 : 0;
    for (int i = 0; i < more && end < text.size(); ++i) {
      const DecodedChar c = DecodeChar(text, end);
      if (ClassOf(c.code) != CharClass::kNumber) break;
      end += c.size;
    }
    return end;
  }
  // Any one character but a line break joins the letters after it.
  const DecodedChar second = next < text.size() ? DecodeChar(text, next) : DecodedChar{};
  const CharClass second_cls = next < text.size() ? ClassOf(second.code) : CharClass::kSpace;
  if (second_cls == CharClass::kLetter && !IsNewline(first.code)) {
    return RunEnd(text, next + second.size, CharClass::kLetter);
  }
  size_t end = next;
  if (cls == CharClass::kSpace) {
    if (first.code != U' ' || second_cls != CharClass::kOther) return Llama3SpaceEnd(text, pos);
    end += second.size;
  }
  end = RunEnd(text, end, CharClass::kOther);
  while (end < text.size() && IsNewline(static_cast<uint8_t>(text[end]))) ++end;
  return end;
}

}  // namespace tandem
