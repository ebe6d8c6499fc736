#include "text/jinja/formatting.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/number_format.h"
#include "text/jinja/operators.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

bool IsInteger(const Value& v) { return v.is_int() || v.is_bool(); }
int64_t ToInt(const Value& v) { return v.is_bool() ? int64_t{v.as_bool()} : v.as_int(); }
bool IsOneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

MarkedText Repr(Runtime& rt, const Value& v) {
  std::string text;
  if (Status s = AppendRepr(v, rt.limits().max_output_bytes, text); !s.ok()) rt.Fail(s);
  rt.Allocate(text.size());
  return v.HasData() ? MarkedText::FromData(std::move(text)) : MarkedText(std::move(text));
}

bool CheckSize(Runtime& rt, const MarkedText& out) {
  if (out.size() > rt.limits().max_output_bytes) {
    rt.Fail(OutOfRangeError("a text grows beyond {} bytes", rt.limits().max_output_bytes));
  }
  return rt.ok();
}

// The character of a number.
MarkedText CharacterOf(Runtime& rt, int64_t code, bool data) {
  std::string text;
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    rt.FailType("{} is no character", code);
  } else {
    AppendChar(text, static_cast<char32_t>(code));
  }
  return data ? MarkedText::FromData(std::move(text)) : MarkedText(std::move(text));
}

// format(v, spec)
void AppendFormatted(Runtime& rt, const Value& v, const MarkedText& spec_text, bool data,
                     MarkedText& out) {
  if (spec_text.size() == 0) {
    rt.Append(v, out);
    return;
  }
  data = data || spec_text.has_data();
  const std::optional<FormatSpec> spec = ParseFormatSpec(rt, spec_text.text());
  if (!spec) return;
  if (v.is_string()) {
    const bool wrong = spec->align == '=' || spec->sign != '-' || spec->alternate ||
                       spec->grouping != '\0' || (spec->type != '\0' && spec->type != 's');
    if (wrong) {
      rt.FailType("the format '{}' has no meaning for a string",
                  FirstCharacters(spec_text.text(), 32));
      return;
    }
    const MarkedText& text = v.as_text();
    const MarkedText part =
        spec->precision ? text.Part(FirstCharacters(text.text(), *spec->precision)) : text;
    return AppendField(rt, part, *spec, '<', data, out);
  }
  if (IsInteger(v) && spec->type == 'c') {
    return AppendField(rt, CharacterOf(rt, ToInt(v), data), *spec, '>', data, out);
  }
  std::optional<NumberText> number;
  if (v.is_float() || (IsInteger(v) && IsOneOf(spec->type, "eEfFgG%"))) {
    number = FormatFloat(rt, v.is_float() ? v.as_float() : static_cast<double>(ToInt(v)), *spec);
  } else if (IsInteger(v)) {
    number = FormatInteger(rt, ToInt(v), *spec);
  } else {
    rt.FailType("a format has no meaning for a value of type {}", TypeName(v));
  }
  if (number) AppendNumber(rt, *number, *spec, data, out);
}

// One str.format.
class Formatter {
 public:
  Formatter(Runtime& rt, const MarkedText& format, const FormatArguments& arguments)
      : rt_(rt), format_(format), text_(format.text()), arguments_(arguments) {}

  Value Run() {
    MarkedText out;
    Expand(0, text_.size(), /*levels=*/2, out);
    return rt_.Text(std::move(out));
  }

 private:
  // Appends the format's bytes [pos, end) with their fields filled in; fields inside of a field's
  // specification take one level.
  void Expand(size_t pos, size_t end, int levels, MarkedText& out) {
    rt_.ChargeBytes(end - pos);
    if (levels == 0) {
      rt_.FailType("format: fields nest too deep");
      return;
    }
    while (pos < end && CheckSize(rt_, out)) {
      const size_t brace = std::min(text_.find_first_of("{}", pos), end);
      out.AppendPart(format_, pos, brace);
      if (brace == end) return;
      if (brace + 1 < end && text_[brace + 1] == text_[brace]) {
        out.AppendPart(format_, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      const size_t close = text_[brace] == '{' ? FieldEnd(brace + 1, end) : end;
      if (close == end) {
        rt_.FailType("format: a single '{}'", text_[brace]);
        return;
      }
      Field(brace + 1, close, levels, out);
      pos = close + 1;
    }
  }

  // The brace that closes the field at `pos`; `end` if there is none.
  size_t FieldEnd(size_t pos, size_t end) const {
    int open = 1;
    for (; pos < end; ++pos) {
      if (text_[pos] == '{') ++open;
      if (text_[pos] == '}' && --open == 0) break;
    }
    return pos;
  }

  // name ! conversion : specification
  void Field(size_t begin, size_t end, int levels, MarkedText& out) {
    size_t name_end = begin;
    bool in_brackets = false;
    for (; name_end < end; ++name_end) {
      const char c = text_[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == ':' || c == '!')) break;
    }
    Value value = Find(text_.substr(begin, name_end - begin));
    size_t pos = name_end;
    if (pos < end && text_[pos] == '!') {
      const char conversion = pos + 1 < end ? text_[pos + 1] : '\0';
      pos += 2;
      if (pos > end || (pos < end && text_[pos] != ':')) {
        rt_.FailType("format: a conversion is one letter");
        return;
      }
      value = Convert(value, conversion);
    }
    MarkedText spec;
    if (pos < end) Expand(pos + 1, end, levels - 1, spec);
    if (rt_.ok()) AppendFormatted(rt_, value, spec, format_.has_data(), out);
  }

  Value Convert(const Value& value, char conversion) {
    if (conversion == 's') return rt_.Text(rt_.MarkedStr(value));
    if (conversion == 'r') return rt_.Text(Repr(rt_, value));
    return rt_.Fail(UnimplementedError("format: the conversion '{}' is not supported", conversion));
  }

  // first(.attribute | [item])*
  Value Find(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = FindFirst(name.substr(0, first_end), name.empty());
    std::string_view rest = name.substr(first_end);
    while (!rest.empty() && rt_.Charge()) {
      const bool item = rest[0] == '[';
      const size_t end = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (rest[0] != (item ? '[' : '.') || end == std::string_view::npos || end < 2) {
        return rt_.FailType("format: the field '{}' is not valid", FirstCharacters(name, 64));
      }
      const std::string part(rest.substr(1, end - 1));
      rest = rest.substr(end + (item ? 1 : 0));
      if (part.starts_with("__"))
        return rt_.FailType("format: the attribute '{}' is private", part);
      int64_t index = 0;
      const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool number = item && IsDigit(part[0]) && parsed.ec == std::errc() &&
                          parsed.ptr == part.data() + part.size();
      value = !item    ? Attribute(rt_, value, part)
              : number ? Subscript(rt_, value, Value(index))
                       : Subscript(rt_, value, Value::MakeString(part));
    }
    return value;
  }

  Value FindFirst(std::string_view first, bool automatic) {
    size_t index = 0;
    const auto parsed = std::from_chars(first.data(), first.data() + first.size(), index);
    const bool number =
        !first.empty() && parsed.ec == std::errc() && parsed.ptr == first.data() + first.size();
    if (automatic || number) {
      if (numbering_ != Numbering::kUnknown && automatic != (numbering_ == Numbering::kAutomatic)) {
        return rt_.FailType("format: fields with and without numbers are mixed");
      }
      numbering_ = automatic ? Numbering::kAutomatic : Numbering::kManual;
      if (automatic) index = next_++;
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      return rt_.FailType("format: there is no argument {}", index);
    }
    for (const auto& [name, value] : arguments_.named) {
      if (name == first) return value;
    }
    return rt_.FailType("format: there is no argument '{}'", FirstCharacters(first, 64));
  }

  enum class Numbering { kUnknown, kManual, kAutomatic };

  Runtime& rt_;
  const MarkedText& format_;
  const std::string_view text_;
  const FormatArguments& arguments_;
  Numbering numbering_ = Numbering::kUnknown;
  size_t next_ = 0;
};

// One application of %.
class Percent {
 public:
  Percent(Runtime& rt, const MarkedText& format, const Value& values)
      : rt_(rt), format_(format), text_(format.text()), values_(values) {
    if (values.is_list() && values.as_list().flavor == List::Flavor::kTuple) {
      const auto& items = values.as_list().items;
      if (rt.Charge(static_cast<int64_t>(items.size()))) arguments_ = items;
    } else {
      arguments_ = {values};
    }
  }

  Value Run() {
    rt_.ChargeBytes(text_.size());
    MarkedText out;
    while (CheckSize(rt_, out)) {
      const size_t percent = std::min(text_.find('%', pos_), text_.size());
      out.AppendPart(format_, pos_, percent);
      pos_ = percent + 1;
      if (percent == text_.size()) break;
      Conversion(out);
    }
    const bool tuple = values_.is_list() && values_.as_list().flavor == List::Flavor::kTuple;
    const bool container = !tuple && (values_.is_list() || values_.is_dict());
    if (rt_.ok() && next_ < arguments_.size() && !container && !values_.is_undefined()) {
      return rt_.FailType("%: not all arguments are used");
    }
    return rt_.Text(std::move(out));
  }

 private:
  char Peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  const Value& Next() {
    static const auto* const kNone = new Value();
    if (keyed_) return *keyed_;
    if (next_ < arguments_.size()) return arguments_[next_++];
    rt_.FailType("%: not enough arguments");
    return *kNone;
  }

  // Digits or '*' at the cursor.
  int64_t Number() {
    const int64_t limit = static_cast<int64_t>(rt_.limits().max_output_bytes);
    int64_t v = 0;
    if (Peek() == '*') {
      ++pos_;
      const Value& given = Next();
      if (!IsInteger(given)) rt_.FailType("%: '*' needs an integer");
      v = IsInteger(given) ? ToInt(given) : 0;
    }
    while (IsDigit(Peek()) && v <= limit) v = v * 10 + (text_[pos_++] - '0');
    if (v > limit || v < -limit) {
      rt_.Fail(OutOfRangeError("a format asks for more than {} characters", limit));
      return 0;
    }
    return v;
  }

  // (key), if there is one.
  void Key() {
    keyed_ = nullptr;
    if (Peek() != '(') return;
    size_t end = pos_ + 1;
    for (int open = 1; end < text_.size(); ++end) {
      if (text_[end] == '(') ++open;
      if (text_[end] == ')' && --open == 0) break;
    }
    const std::string_view key = text_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    if (end >= text_.size()) {
      rt_.FailType("%: a key is not closed");
    } else if (!values_.is_dict()) {
      rt_.FailType("%: a format with keys needs a dict");
    } else if ((keyed_ = values_.as_dict().Find(key)) == nullptr) {
      rt_.FailType("%: there is no key '{}'", FirstCharacters(key, 64));
    }
  }

  void Conversion(MarkedText& out) {
    if (Peek() == '%') {
      out.AppendPart(format_, pos_, pos_ + 1);
      ++pos_;
      return;
    }
    Key();
    FormatSpec spec;
    spec.align = '>';
    bool left = false;
    for (; Peek() != '\0' && IsOneOf(Peek(), "-+ #0"); ++pos_) {
      left = left || Peek() == '-';
      spec.alternate = spec.alternate || Peek() == '#';
      spec.zero = spec.zero || Peek() == '0';
      if (Peek() == '+' || (Peek() == ' ' && spec.sign != '+')) spec.sign = Peek();
    }
    spec.width = Number();
    if (spec.width < 0) left = true;
    spec.width = std::abs(spec.width);
    if (Peek() == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(Number(), 0);
    }
    if (Peek() != '\0' && IsOneOf(Peek(), "hlL")) ++pos_;
    spec.type = Peek();
    ++pos_;
    if (left) spec.align = '<';
    if (rt_.ok()) Show(spec, left, out);
  }

  void Show(FormatSpec spec, bool left, MarkedText& out) {
    if (!IsOneOf(spec.type, "diuxXoeEfFgGcsr") || spec.type == '\0') {
      rt_.Fail(UnimplementedError("%: the conversion '{}' is not supported", spec.type));
      return;
    }
    const Value& value = Next();
    if (!rt_.ok()) return;
    if (IsOneOf(spec.type, "csr")) return ShowText(spec, value, out);
    if (!value.is_number()) {
      rt_.FailType("%{} needs a number, not a {}", spec.type, TypeName(value));
      return;
    }
    if (spec.zero && !left) {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    const auto number = IsOneOf(spec.type, "diuxXo") ? Integer(spec, value) : Float(spec, value);
    if (number) AppendNumber(rt_, *number, spec, format_.has_data(), out);
  }

  std::optional<NumberText> Integer(const FormatSpec& spec, const Value& value) {
    int64_t v = 0;
    if (!value.is_float()) {
      v = ToInt(value);
    } else if (IsOneOf(spec.type, "xXo") || !(std::fabs(value.as_float()) < 0x1p63)) {
      rt_.FailType("%{} needs an integer", spec.type);
      return std::nullopt;
    } else {
      v = static_cast<int64_t>(value.as_float());
    }
    FormatSpec plain = spec;
    plain.precision.reset();
    if (IsOneOf(spec.type, "iu")) plain.type = 'd';
    std::optional<NumberText> number = FormatInteger(rt_, v, plain);
    const size_t digits = static_cast<size_t>(spec.precision.value_or(0));
    if (number && number->digits.size() < digits) {
      if (!rt_.Allocate(digits)) return std::nullopt;
      std::string filled(digits - number->digits.size(), '0');
      filled += number->digits;
      number->digits = std::move(filled);
    }
    return number;
  }

  std::optional<NumberText> Float(const FormatSpec& spec, const Value& value) {
    return FormatFloat(rt_, value.is_float() ? value.as_float() : static_cast<double>(ToInt(value)),
                       spec);
  }

  void ShowText(const FormatSpec& spec, const Value& value, MarkedText& out) {
    MarkedText text;
    if (spec.type == 'r') {
      text = Repr(rt_, value);
    } else if (spec.type == 's') {
      text = rt_.MarkedStr(value);
    } else if (IsInteger(value)) {
      text = CharacterOf(rt_, ToInt(value), format_.has_data());
    } else if (value.is_string() && value.as_string().size() <= 4 &&
               CountCharacters(value.as_string()) == 1) {
      text = value.as_text();
    } else {
      rt_.FailType("%c needs a character or its number");
    }
    if (spec.precision) text = text.Part(FirstCharacters(text.text(), *spec.precision));
    AppendField(rt_, text, spec, '>', format_.has_data(), out);
  }

  Runtime& rt_;
  const MarkedText& format_;
  const std::string_view text_;
  const Value& values_;
  std::vector<Value> arguments_;
  size_t pos_ = 0;
  size_t next_ = 0;
  const Value* keyed_ = nullptr;
};

}  // namespace

Value FormatString(Runtime& rt, const MarkedText& format, const FormatArguments& arguments) {
  return Formatter(rt, format, arguments).Run();
}

Value FormatPercent(Runtime& rt, const MarkedText& format, const Value& values) {
  return Percent(rt, format, values).Run();
}

}  // namespace tandem::jinja
