#include "model/text_escape.h"

#include <fmt/format.h>

#include <cstdint>

namespace tandem {
namespace {

// Length of the well-formed UTF-8 character at the start of `text` (not empty), 0 if there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : (lead >= 0xE0 ? 3 : 2);
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  uint32_t point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  const bool invalid = point > 0x10FFFF || (point >= 0xD800 && point < 0xE000);
  return overlong || invalid ? 0 : length;
}

// C0, DEL and C1 controls, and the marks that reorder a line's direction.
bool IsControl(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7F;
  if (character.size() == 2) return lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
  return character == "\u202A" || character == "\u202B" || character == "\u202C" ||
         character == "\u202D" || character == "\u202E" || character == "\u2066" ||
         character == "\u2067" || character == "\u2068" || character == "\u2069";
}

}  // namespace

std::string EscapeText(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    size_t length = CharacterBytes(text);
    const bool printable = length > 0 && !IsControl(text.substr(0, length)) && text[0] != '\\';
    if (length == 0) length = 1;
    std::string piece;
    if (printable) {
      piece = text.substr(0, length);
    } else if (text[0] == '\n') {
      piece = "\\n";
    } else if (text[0] == '\t') {
      piece = "\\t";
    } else if (text[0] == '\\') {
      piece = "\\\\";
    } else {
      for (const char c : text.substr(0, length)) {
        piece += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace tandem
