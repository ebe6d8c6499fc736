#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode.h"

namespace tandem {
namespace {

// Characters below this one are in normal form C and never join the character before them.
constexpr char32_t kFirstComposing = 0x300;

// No character decomposes into more (the longest canonical decomposition has 4).
constexpr size_t kMaxDecomposed = 18;

bool IsSimple(char32_t code) { return code < kFirstComposing; }

// Appends the canonical decomposition.
void Decompose(char32_t code, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t parts[kMaxDecomposed];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts, kMaxDecomposed, UTF8PROC_DECOMPOSE, &boundary);
  TANDEM_CHECK(count > 0 && static_cast<size_t>(count) <= kMaxDecomposed);
  out.insert(out.end(), parts, parts + count);
}

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Sorts every run of combining marks by class, stably.
void OrderMarks(std::vector<utf8proc_int32_t>& codes) {
  for (size_t begin = 0; begin < codes.size();) {
    size_t end = begin;
    while (end < codes.size() && CombiningClass(codes[end]) != 0) ++end;
    const auto first = codes.begin() + static_cast<ptrdiff_t>(begin);
    const auto last = codes.begin() + static_cast<ptrdiff_t>(end);
    const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    };
    if (!std::is_sorted(first, last, by_class)) std::stable_sort(first, last, by_class);
    begin = end + 1;
  }
}

// Appends one stretch: a simple character or none, and what follows that is not simple.
void AppendNormalized(std::string_view stretch, std::vector<utf8proc_int32_t>& codes,
                      std::string& out) {
  codes.clear();
  for (size_t pos = 0; pos < stretch.size();) {
    const DecodedChar c = DecodeChar(stretch, pos);
    Decompose(c.code, codes);
    pos += c.size;
  }
  OrderMarks(codes);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  TANDEM_CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendChar(out, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
  }
}

}  // namespace

bool IsTriviallyNfc(std::string_view text) {
  // U+0300 and above start with the byte CC or more.
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

// Before any character below U+0300.
size_t NfcBorderBefore(std::string_view text, size_t from, size_t pos) {
  const auto is_border = [text](size_t at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    return byte < 0x80 || (byte >= 0xC0 && byte < 0xCC);
  };
  if (pos == text.size()) return pos;
  while (pos > from && !is_border(pos)) --pos;
  return pos;
}

size_t NfcBorderAfter(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const DecodedChar c = DecodeChar(text, pos);
    if (IsSimple(c.code)) break;
    pos += c.size;
  }
  return pos;
}

std::string NormalizeNfc(std::string_view text) {
  if (IsTriviallyNfc(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    DecodedChar c = DecodeChar(text, pos);
    pos += c.size;
    bool simple = IsSimple(c.code);
    while (pos < text.size()) {
      c = DecodeChar(text, pos);
      if (IsSimple(c.code)) break;
      simple = false;
      pos += c.size;
    }
    const std::string_view stretch = text.substr(begin, pos - begin);
    if (simple) {
      out += stretch;
    } else {
      AppendNormalized(stretch, codes, out);
    }
  }
  return out;
}

}  // namespace tandem
