#include "text/unicode.h"

#include <utf8proc.h>

#include <array>

#include "base/check.h"

namespace tandem {
namespace {

constexpr bool IsAsciiLetter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

constexpr std::array<CharClass, 128> MakeAsciiClasses() {
  std::array<CharClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    classes[c] = IsAsciiLetter(c)                       ? CharClass::kLetter
                 : c >= '0' && c <= '9'                 ? CharClass::kNumber
                 : c == ' ' || (c >= 0x09 && c <= 0x0D) ? CharClass::kSpace
                                                        : CharClass::kOther;
  }
  return classes;
}
constexpr std::array<CharClass, 128> kAsciiClasses = MakeAsciiClasses();

struct LeadByte {
  uint8_t length = 0;  // of the whole sequence; 0: no sequence starts with this byte
  // Allowed range of the second byte: excludes overlong forms, surrogates and codes past U+10FFFF.
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

constexpr LeadByte ClassifyLead(uint8_t b) {
  if (b < 0x80) return {1};
  if (b < 0xC2) return {0};
  if (b < 0xE0) return {2};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

DecodedChar DecodeChar(std::string_view text, size_t pos) {
  TANDEM_CHECK_LT(pos, text.size());
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1, true, false};
  const LeadByte lead = ClassifyLead(first);
  if (lead.length == 0) return {kReplacementCharacter, 1, false, false};
  char32_t code = first & (0x7Fu >> lead.length);
  const size_t available = text.size() - pos;
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i >= available) return {kReplacementCharacter, i, false, true};
    const uint8_t b = byte(i);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (b < low || b > high) return {kReplacementCharacter, i, false, false};
    code = (code << 6) | (b & 0x3Fu);
  }
  return {code, lead.length, true, false};
}

void AppendChar(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (!c.valid) return false;
    pos += c.size;
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (c.valid) {
      out.append(text, pos, c.size);
    } else {
      AppendChar(out, kReplacementCharacter);
    }
    pos += c.size;
  }
  return out;
}

CharClass ClassOf(char32_t code) {
  if (code < 128) return kAsciiClasses[code];
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::kNumber;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CharClass::kSpace;
    default: return code == 0x85 ? CharClass::kSpace : CharClass::kOther;
  }
}

bool IsPunctuation(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

bool IsWordChar(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Join_Control, and Other_Alphabetic as far as it is neither letter nor mark: letters in circles
  // and squares.
  const auto in = [code](char32_t first, char32_t last) { return code >= first && code <= last; };
  return in(0x200C, 0x200D) || in(0x24B6, 0x24E9) || in(0x1F130, 0x1F149) || in(0x1F150, 0x1F169) ||
         in(0x1F170, 0x1F189);
}

bool IsPythonSpace(char32_t code) {
  return ClassOf(code) == CharClass::kSpace || (code >= 0x1C && code <= 0x1F);
}

}  // namespace tandem
