#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/unicode.h"

namespace tandem::jinja {
namespace {

// Needles up to this many bytes are searched for naively, which costs at most as many comparisons
// per byte.
constexpr size_t kNaiveNeedleBytes = 32;

// Knuth, Morris and Pratt: length of the longest proper border of every prefix.
std::vector<size_t> Borders(std::string_view needle) {
  std::vector<size_t> border(needle.size(), 0);
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k > 0 && needle[i] != needle[k]) k = border[k - 1];
    if (needle[i] == needle[k]) ++k;
    border[i] = k;
  }
  return border;
}

char32_t SimpleUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t SimpleLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t SimpleTitle(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

// Characters whose upper case is several characters (Unicode's SpecialCasing, unconditional part).
struct SpecialUpper {
  char32_t code;
  std::array<char32_t, 3> upper;  // 0: none
};
constexpr SpecialUpper kSpecialUpper[] = {
    {0x00DF, {0x0053, 0x0053}},         {0x0149, {0x02BC, 0x004E}},
    {0x01F0, {0x004A, 0x030C}},         {0x0390, {0x0399, 0x0308, 0x0301}},
    {0x03B0, {0x03A5, 0x0308, 0x0301}}, {0x0587, {0x0535, 0x0552}},
    {0x1E96, {0x0048, 0x0331}},         {0x1E97, {0x0054, 0x0308}},
    {0x1E98, {0x0057, 0x030A}},         {0x1E99, {0x0059, 0x030A}},
    {0x1E9A, {0x0041, 0x02BE}},         {0x1F50, {0x03A5, 0x0313}},
    {0x1F52, {0x03A5, 0x0313, 0x0300}}, {0x1F54, {0x03A5, 0x0313, 0x0301}},
    {0x1F56, {0x03A5, 0x0313, 0x0342}}, {0x1F80, {0x1F08, 0x0399}},
    {0x1F81, {0x1F09, 0x0399}},         {0x1F82, {0x1F0A, 0x0399}},
    {0x1F83, {0x1F0B, 0x0399}},         {0x1F84, {0x1F0C, 0x0399}},
    {0x1F85, {0x1F0D, 0x0399}},         {0x1F86, {0x1F0E, 0x0399}},
    {0x1F87, {0x1F0F, 0x0399}},         {0x1F88, {0x1F08, 0x0399}},
    {0x1F89, {0x1F09, 0x0399}},         {0x1F8A, {0x1F0A, 0x0399}},
    {0x1F8B, {0x1F0B, 0x0399}},         {0x1F8C, {0x1F0C, 0x0399}},
    {0x1F8D, {0x1F0D, 0x0399}},         {0x1F8E, {0x1F0E, 0x0399}},
    {0x1F8F, {0x1F0F, 0x0399}},         {0x1F90, {0x1F28, 0x0399}},
    {0x1F91, {0x1F29, 0x0399}},         {0x1F92, {0x1F2A, 0x0399}},
    {0x1F93, {0x1F2B, 0x0399}},         {0x1F94, {0x1F2C, 0x0399}},
    {0x1F95, {0x1F2D, 0x0399}},         {0x1F96, {0x1F2E, 0x0399}},
    {0x1F97, {0x1F2F, 0x0399}},         {0x1F98, {0x1F28, 0x0399}},
    {0x1F99, {0x1F29, 0x0399}},         {0x1F9A, {0x1F2A, 0x0399}},
    {0x1F9B, {0x1F2B, 0x0399}},         {0x1F9C, {0x1F2C, 0x0399}},
    {0x1F9D, {0x1F2D, 0x0399}},         {0x1F9E, {0x1F2E, 0x0399}},
    {0x1F9F, {0x1F2F, 0x0399}},         {0x1FA0, {0x1F68, 0x0399}},
    {0x1FA1, {0x1F69, 0x0399}},         {0x1FA2, {0x1F6A, 0x0399}},
    {0x1FA3, {0x1F6B, 0x0399}},         {0x1FA4, {0x1F6C, 0x0399}},
    {0x1FA5, {0x1F6D, 0x0399}},         {0x1FA6, {0x1F6E, 0x0399}},
    {0x1FA7, {0x1F6F, 0x0399}},         {0x1FA8, {0x1F68, 0x0399}},
    {0x1FA9, {0x1F69, 0x0399}},         {0x1FAA, {0x1F6A, 0x0399}},
    {0x1FAB, {0x1F6B, 0x0399}},         {0x1FAC, {0x1F6C, 0x0399}},
    {0x1FAD, {0x1F6D, 0x0399}},         {0x1FAE, {0x1F6E, 0x0399}},
    {0x1FAF, {0x1F6F, 0x0399}},         {0x1FB2, {0x1FBA, 0x0399}},
    {0x1FB3, {0x0391, 0x0399}},         {0x1FB4, {0x0386, 0x0399}},
    {0x1FB6, {0x0391, 0x0342}},         {0x1FB7, {0x0391, 0x0342, 0x0399}},
    {0x1FBC, {0x0391, 0x0399}},         {0x1FC2, {0x1FCA, 0x0399}},
    {0x1FC3, {0x0397, 0x0399}},         {0x1FC4, {0x0389, 0x0399}},
    {0x1FC6, {0x0397, 0x0342}},         {0x1FC7, {0x0397, 0x0342, 0x0399}},
    {0x1FCC, {0x0397, 0x0399}},         {0x1FD2, {0x0399, 0x0308, 0x0300}},
    {0x1FD3, {0x0399, 0x0308, 0x0301}}, {0x1FD6, {0x0399, 0x0342}},
    {0x1FD7, {0x0399, 0x0308, 0x0342}}, {0x1FE2, {0x03A5, 0x0308, 0x0300}},
    {0x1FE3, {0x03A5, 0x0308, 0x0301}}, {0x1FE4, {0x03A1, 0x0313}},
    {0x1FE6, {0x03A5, 0x0342}},         {0x1FE7, {0x03A5, 0x0308, 0x0342}},
    {0x1FF2, {0x1FFA, 0x0399}},         {0x1FF3, {0x03A9, 0x0399}},
    {0x1FF4, {0x038F, 0x0399}},         {0x1FF6, {0x03A9, 0x0342}},
    {0x1FF7, {0x03A9, 0x0342, 0x0399}}, {0x1FFC, {0x03A9, 0x0399}},
    {0xFB00, {0x0046, 0x0046}},         {0xFB01, {0x0046, 0x0049}},
    {0xFB02, {0x0046, 0x004C}},         {0xFB03, {0x0046, 0x0046, 0x0049}},
    {0xFB04, {0x0046, 0x0046, 0x004C}}, {0xFB05, {0x0053, 0x0054}},
    {0xFB06, {0x0053, 0x0054}},         {0xFB13, {0x0544, 0x0546}},
    {0xFB14, {0x0544, 0x0535}},         {0xFB15, {0x0544, 0x053B}},
    {0xFB16, {0x054E, 0x0546}},         {0xFB17, {0x0544, 0x053D}}};

const SpecialUpper* FindSpecialUpper(char32_t code) {
  const auto it = std::lower_bound(std::begin(kSpecialUpper), std::end(kSpecialUpper), code,
                                   [](const SpecialUpper& s, char32_t c) { return s.code < c; });
  return it == std::end(kSpecialUpper) || it->code != code ? nullptr : it;
}

void AppendUpper(std::string& out, char32_t c) {
  const SpecialUpper* const special = c < 0x80 ? nullptr : FindSpecialUpper(c);
  if (special == nullptr) return AppendChar(out, SimpleUpper(c));
  for (const char32_t u : special->upper) {
    if (u != 0) AppendChar(out, u);
  }
}

// Upper case for the first letter of a word: a character that becomes several has only the first of
// them in upper case, unless it has a title form of its own.
void AppendTitle(std::string& out, char32_t c) {
  const SpecialUpper* const special = c < 0x80 ? nullptr : FindSpecialUpper(c);
  const char32_t simple = SimpleTitle(c);
  const bool has_title_form =
      utf8proc_category(static_cast<utf8proc_int32_t>(simple)) == UTF8PROC_CATEGORY_LT;
  if (special == nullptr || has_title_form) return AppendChar(out, simple);
  AppendChar(out, special->upper[0]);
  for (size_t i = 1; i < special->upper.size(); ++i) {
    if (special->upper[i] != 0) AppendChar(out, SimpleLower(special->upper[i]));
  }
}

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;
constexpr char32_t kCapitalIWithDot = 0x130;

// Letters with a case, also those (Roman numerals, circled letters) that Unicode does not count as
// letters.
bool IsCased(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (c == 0xAA || c == 0xBA) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || SimpleUpper(c) != c || SimpleLower(c) != c;
}

// Unicode's Case_Ignorable: marks, formats, modifiers, and punctuation inside words.
bool IsCaseIgnorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
  }
}

// For each capital sigma's byte offset in turn: is it the last letter of a word? One pass over the
// text, so that a text of nothing but sigmas and marks stays linear.
std::vector<bool> FinalSigmas(std::string_view text) {
  std::vector<bool> is_final;
  bool after_cased = false;
  bool open = false;  // the last sigma has met no cased character yet
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    pos += c.size;
    if (IsCaseIgnorable(c.code)) continue;
    const bool cased = IsCased(c.code);
    if (open && cased) is_final.back() = false;
    open = c.code == kCapitalSigma;
    if (open) is_final.push_back(after_cased);
    after_cased = cased;
  }
  return is_final;
}

// Lower case; appends to `out`.
class Lowerer {
 public:
  explicit Lowerer(std::string_view text) {
    if (text.find("\xCE\xA3") != std::string_view::npos) final_sigmas_ = FinalSigmas(text);
  }
  // To be called once for every capital sigma of the text, in order, and for others at will.
  void Append(std::string& out, char32_t c) {
    if (c == kCapitalSigma) {
      AppendChar(out, final_sigmas_[next_sigma_] ? kFinalSigma : SimpleLower(c));
      ++next_sigma_;
    } else if (c == kCapitalIWithDot) {
      out += "i\xCC\x87";
    } else {
      AppendChar(out, SimpleLower(c));
    }
  }
  void SkipSigma() { ++next_sigma_; }

 private:
  std::vector<bool> final_sigmas_;
  size_t next_sigma_ = 0;
};

template <typename Predicate>
std::string_view Strip(std::string_view text, Side side, Predicate strips) {
  size_t begin = 0;
  if (side != Side::kRight) {
    while (begin < text.size()) {
      const DecodedChar c = DecodeChar(text, begin);
      if (!strips(c.code)) break;
      begin += c.size;
    }
  }
  size_t end = text.size();
  while (side != Side::kLeft && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!strips(DecodeChar(text, last).code)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  if (needle.size() <= kNaiveNeedleBytes) return text.find(needle, from);
  const std::vector<size_t> border = Borders(needle);
  size_t matched = 0;
  for (size_t i = from; i < text.size(); ++i) {
    while (matched > 0 && text[i] != needle[matched]) matched = border[matched - 1];
    if (text[i] == needle[matched]) ++matched;
    if (matched == needle.size()) return i + 1 - needle.size();
  }
  return std::string_view::npos;
}

size_t FindLastText(std::string_view text, std::string_view needle) {
  if (needle.size() <= kNaiveNeedleBytes) return text.rfind(needle);
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t at = FindText(reversed_text, reversed_needle, 0);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

std::string_view StripSpace(std::string_view text, Side side) {
  return Strip(text, side, IsPythonSpace);
}

std::string_view StripChars(std::string_view text, std::string_view chars, Side side) {
  std::vector<char32_t> set;
  for (size_t pos = 0; pos < chars.size();) {
    const DecodedChar c = DecodeChar(chars, pos);
    set.push_back(c.code);
    pos += c.size;
  }
  std::sort(set.begin(), set.end());
  return Strip(text, side,
               [&set](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    const size_t end = pos;
    pos += c.size;
    const bool ends_line = (c.code >= 0x0A && c.code <= 0x0D) ||
                           (c.code >= 0x1C && c.code <= 0x1E) || c.code == 0x85 ||
                           c.code == 0x2028 || c.code == 0x2029;
    if (!ends_line) continue;
    if (c.code == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(begin, end - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    AppendUpper(out, c.code);
    pos += c.size;
  }
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Lowerer lowerer(text);
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    lowerer.Append(out, c.code);
    pos += c.size;
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Lowerer lowerer(text);
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (pos > 0) {
      lowerer.Append(out, c.code);
    } else {
      AppendTitle(out, c.code);
      if (c.code == kCapitalSigma) lowerer.SkipSigma();
    }
    pos += c.size;
  }
  return out;
}

std::string TitleCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Lowerer lowerer(text);
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (after_cased) {
      lowerer.Append(out, c.code);
    } else {
      AppendTitle(out, c.code);
      if (c.code == kCapitalSigma) lowerer.SkipSigma();
    }
    after_cased = IsCased(c.code);
    pos += c.size;
  }
  return out;
}

}  // namespace tandem::jinja
