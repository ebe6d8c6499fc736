#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "text/unicode.h"

namespace tandem::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c); }

// Longest first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// Newlines of all three styles become "\n"; one at the very end is dropped.
std::string NormaliseNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormaliseNewlines(source)), text_(source_) {}

  Result<std::vector<Token>> Run() {
    while (pos_ < text_.size() && status_.ok()) LexTemplate();
    if (!status_.ok()) return status_;
    Add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  void Fail(Status (*make)(std::string_view, int), std::string_view what) {
    if (status_.ok()) status_ = make(what, line_);
  }
  void FailSyntax(std::string_view what) {
    Fail([](std::string_view w, int line) { return InvalidArgumentError("line {}: {}", line, w); },
         what);
  }
  void FailUnsupported(std::string_view what) {
    Fail([](std::string_view w,
            int line) { return UnimplementedError("line {}: {} not supported", line, w); },
         what);
  }

  Token& Add(TokenKind kind, std::string_view text = {}) {
    return tokens_.emplace_back(Token{kind, line_, std::string(text), 0, 0});
  }
  bool At(std::string_view s) const { return text_.substr(pos_, s.size()) == s; }
  void Advance(size_t bytes) {
    line_ +=
        static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(pos_),
                                    text_.begin() + static_cast<ptrdiff_t>(pos_ + bytes), '\n'));
    pos_ += bytes;
  }
  // The end of the white space that starts at `from`.
  size_t SpaceEnd(size_t from) const {
    while (from < text_.size()) {
      const DecodedChar c = DecodeChar(text_, from);
      if (!IsPythonSpace(c.code)) break;
      from += c.size;
    }
    return from;
  }
  static bool AllSpace(std::string_view s) {
    for (size_t pos = 0; pos < s.size();) {
      const DecodedChar c = DecodeChar(s, pos);
      if (!IsPythonSpace(c.code)) return false;
      pos += c.size;
    }
    return true;
  }
  static std::string_view RightStripped(std::string_view s) {
    // Where the last run of white space begins.
    size_t keep = 0;
    for (size_t pos = 0; pos < s.size();) {
      const DecodedChar c = DecodeChar(s, pos);
      pos += c.size;
      if (!IsPythonSpace(c.code)) keep = pos;
    }
    return s.substr(0, keep);
  }

  // Text up to the next tag, then the tag.
  void LexTemplate() {
    size_t tag = text_.find('{', pos_);
    while (tag != std::string_view::npos &&
           (tag + 1 == text_.size() ||
            std::string_view("%{#").find(text_[tag + 1]) == std::string_view::npos)) {
      tag = text_.find('{', tag + 1);
    }
    if (tag == std::string_view::npos) {
      Add(TokenKind::kData, text_.substr(pos_));
      Advance(text_.size() - pos_);
      return;
    }
    const char type = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    std::string_view data = text_.substr(pos_, tag - pos_);
    AddData(data, sign, /*trims_line=*/type != '{');
    Advance(tag - pos_);
    char raw_open = '\0';
    char raw_close = '\0';
    if (const size_t end = SimpleTagEnd(pos_, "raw", &raw_open, &raw_close);
        end != std::string_view::npos) {
      return LexRaw(end, raw_close);
    }
    const size_t begin_bytes = sign == '-' || sign == '+' ? 3 : 2;
    if (type == '#') {
      LexComment(begin_bytes);
      return;
    }
    Add(type == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin);
    Advance(begin_bytes);
    LexTag(type == '%');
  }

  // Text before a tag with `sign`, without the white space that the tag trims.
  void AddData(std::string_view data, char sign, bool trims_line) {
    if (sign == '-') {
      data = RightStripped(data);
    } else if (sign != '+' && trims_line) {
      const size_t newline = data.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && AllSpace(data.substr(line_begin))) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) Add(TokenKind::kData, data);
  }

  // The end of "{%", white space, `word`, white space, "%}" at `at`, with the signs of both ends;
  // npos where that does not stand there.
  size_t SimpleTagEnd(size_t at, std::string_view word, char* open_sign, char* close_sign) const {
    constexpr size_t kNone = std::string_view::npos;
    if (text_.substr(at, 2) != "{%") return kNone;
    at += 2;
    *open_sign = at < text_.size() ? text_[at] : '\0';
    if (*open_sign == '-' || *open_sign == '+') ++at;
    at = SpaceEnd(at);
    if (text_.substr(at, word.size()) != word) return kNone;
    at = SpaceEnd(at + word.size());
    *close_sign = at < text_.size() ? text_[at] : '\0';
    if (*close_sign == '-' || *close_sign == '+') ++at;
    return text_.substr(at, 2) == "%}" ? at + 2 : kNone;
  }

  // {% raw %} at the cursor, whose signs have been seen to; text up to {% endraw %} as it stands.
  void LexRaw(size_t end, char close_sign) {
    if (close_sign == '+') return FailUnsupported("'+' at the end of the tag 'raw' is");
    if (close_sign == '-') end = SpaceEnd(end);
    line_starting_ = text_[end - 1] == '\n';
    Advance(end - pos_);
    for (size_t at = text_.find("{%", pos_); at != std::string_view::npos;
         at = text_.find("{%", at + 2)) {
      char open_sign = '\0';
      char sign = '\0';
      const size_t tag_end = SimpleTagEnd(at, "endraw", &open_sign, &sign);
      if (tag_end == std::string_view::npos) continue;
      AddData(text_.substr(pos_, at - pos_), open_sign, /*trims_line=*/true);
      Advance(tag_end - pos_);
      return EndTag(0, sign, /*trims_newline=*/true);
    }
    FailSyntax("the tag 'raw' is not closed");
  }

  void LexComment(size_t begin_bytes) {
    const size_t close = text_.find("#}", pos_ + begin_bytes);
    if (close == std::string_view::npos) return FailSyntax("the comment is not closed");
    const char sign = close > pos_ + begin_bytes ? text_[close - 1] : '\0';
    Advance(close - pos_);
    EndTag(2, sign, /*trims_newline=*/true);
  }

  // Consumes a closing delimiter of `bytes` bytes that `sign` stands before, and the white space it
  // trims.
  void EndTag(size_t bytes, char sign, bool trims_newline) {
    size_t end = pos_ + bytes;
    if (sign == '-') {
      end = SpaceEnd(end);
    } else if (trims_newline && sign != '+' && end < text_.size() && text_[end] == '\n') {
      ++end;
    }
    Advance(end - pos_);
    line_starting_ = text_[end - 1] == '\n';
  }

  void LexTag(bool block) {
    std::string open;  // brackets that are open: inside them "}}" and "%}" close nothing
    while (status_.ok()) {
      Advance(SpaceEnd(pos_) - pos_);
      if (pos_ == text_.size()) return FailSyntax("a tag is not closed");
      const std::string_view close = block ? "%}" : "}}";
      if (open.empty()) {
        const bool minus = text_[pos_] == '-';
        const bool plus = block && text_[pos_] == '+';
        const size_t sign = minus || plus ? 1 : 0;
        if (text_.substr(pos_ + sign, 2) == close) {
          Add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd);
          EndTag(2 + sign, minus ? '-' : plus ? '+' : '\0', block);
          return;
        }
      }
      LexToken(open);
    }
  }

  void LexToken(std::string& open) {
    const char c = text_[pos_];
    if (IsNameStart(c)) {
      size_t end = pos_ + 1;
      while (end < text_.size() && IsNameChar(text_[end])) ++end;
      Add(TokenKind::kName, text_.substr(pos_, end - pos_));
      return Advance(end - pos_);
    }
    if (IsDigit(c)) return LexNumber();
    if (c == '"' || c == '\'') return LexString(c);
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      Add(TokenKind::kOperator, op);
      Advance(op.size());
      return Balance(op[0], open);
    }
    FailSyntax("unexpected character in a tag");
  }

  void Balance(char bracket, std::string& open) {
    if (bracket == '(' || bracket == '[' || bracket == '{') open += bracket;
    if (bracket != ')' && bracket != ']' && bracket != '}') return;
    const char partner = bracket == ')' ? '(' : bracket == ']' ? '[' : '{';
    if (open.empty() || open.back() != partner) return FailSyntax("a bracket closes nothing");
    open.pop_back();
  }

  // Digits with single underscores between them, which do not count.
  std::string TakeDigits() {
    std::string digits;
    while (pos_ < text_.size()) {
      if (IsDigit(text_[pos_])) {
        digits += text_[pos_++];
      } else if (text_[pos_] == '_' && pos_ + 1 < text_.size() && IsDigit(text_[pos_ + 1])) {
        ++pos_;
      } else {
        break;
      }
    }
    return digits;
  }

  void LexNumber() {
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator &&
                           tokens_.back().text == "." && text_[pos_ - 1] == '.';
    std::string number = TakeDigits();
    bool is_float = false;
    const auto digit_at = [&](size_t i) { return i < text_.size() && IsDigit(text_[i]); };
    if (!after_dot && pos_ < text_.size() && text_[pos_] == '.' && digit_at(pos_ + 1)) {
      ++pos_;
      number += "." + TakeDigits();
      is_float = true;
    }
    if (!after_dot && pos_ < text_.size() && (text_[pos_] == 'e' || text_[pos_] == 'E')) {
      const size_t sign =
          pos_ + 1 < text_.size() && (text_[pos_ + 1] == '+' || text_[pos_ + 1] == '-') ? 1 : 0;
      if (digit_at(pos_ + 1 + sign)) {
        number += "e" + std::string(text_.substr(pos_ + 1, sign) == "-" ? "-" : "");
        pos_ += 1 + sign;
        number += TakeDigits();
        is_float = true;
      }
    }
    if (pos_ < text_.size() && IsNameChar(text_[pos_])) {
      return FailUnsupported("a number written like this is");
    }
    Token& token = Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, number);
    const char* const end = number.data() + number.size();
    if (is_float) {
      if (std::from_chars(number.data(), end, token.number).ec != std::errc()) {
        FailSyntax("a float literal is out of range");
      }
    } else if (number.size() > 1 && number[0] == '0' &&
               number.find_first_not_of('0') != std::string::npos) {
      FailSyntax("an integer literal begins with 0");
    } else if (std::from_chars(number.data(), end, token.integer).ec != std::errc()) {
      FailUnsupported("an integer literal beyond 64 bits is");
    }
  }

  void LexString(char quote) {
    const int line = line_;
    size_t end = pos_ + 1;
    std::string value;
    while (end < text_.size() && text_[end] != quote) {
      if (text_[end] != '\\') {
        value += text_[end++];
        continue;
      }
      const std::optional<size_t> next = Unescape(end + 1, value);
      if (!next) return FailUnsupported("an escape sequence of a string is");
      end = *next;
    }
    if (end >= text_.size()) return FailSyntax("a string is not closed");
    Advance(end + 1 - pos_);
    Add(TokenKind::kString, value).line = line;
  }

  // Appends what the escape sequence whose second character is at `at` stands for; returns its end.
  // Python's rules: an unknown escape keeps its backslash.
  std::optional<size_t> Unescape(size_t at, std::string& value) {
    if (at >= text_.size()) return at;
    const char c = text_[at];
    static constexpr std::string_view kNames = "\\'\"abfnrtv";
    static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      value += kValues[i];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x' || c == 'u' || c == 'U') {
      return UnescapeNumber(at + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, value);
    }
    if (c >= '0' && c <= '7') {
      size_t count = 1;
      while (count < 3 && at + count < text_.size() && text_[at + count] >= '0' &&
             text_[at + count] <= '7') {
        ++count;
      }
      return UnescapeNumber(at, count, 8, value);
    }
    if (c == 'N' || static_cast<uint8_t>(c) >= 0x80) return std::nullopt;
    value += '\\';
    return at;
  }

  std::optional<size_t> UnescapeNumber(size_t at, size_t count, int base, std::string& value) {
    if (at + count > text_.size()) return std::nullopt;
    uint32_t code = 0;
    const char* const end = text_.data() + at + count;
    const auto parsed = std::from_chars(text_.data() + at, end, code, base);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (parsed.ec != std::errc() || parsed.ptr != end || code > 0x10FFFF || surrogate) {
      return std::nullopt;
    }
    AppendChar(value, code);
    return at + count;
  }

  const std::string source_;
  const std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  Status status_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace tandem::jinja
