#include "text/jinja/number_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/unicode.h"

namespace tandem::jinja {
namespace {

// Digits behind the point; no prompt needs more, and a double has no more that differ.
constexpr int64_t kMaxPrecision = 1100;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// Takes digits off `text`; fails beyond `limit`.
std::optional<int64_t> TakeNumber(Runtime& rt, std::string_view& text, int64_t limit) {
  int64_t v = 0;
  while (!text.empty() && IsDigit(text.front())) {
    v = v * 10 + (text.front() - '0');
    if (v > limit) {
      rt.Fail(OutOfRangeError("a format asks for more than {} characters", limit));
      return std::nullopt;
    }
    text.remove_prefix(1);
  }
  return v;
}

char TakeOneOf(std::string_view& text, std::string_view set) {
  if (text.empty() || set.find(text.front()) == std::string_view::npos) return '\0';
  const char c = text.front();
  text.remove_prefix(1);
  return c;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

// Separators between groups of `size` digits, counted from the right end of [0, end).
void GroupDigits(std::string& digits, size_t end, size_t size, char separator) {
  for (size_t at = end; at > size;) {
    at -= size;
    digits.insert(at, 1, separator);
  }
}

bool CheckGrouping(Runtime& rt, const FormatSpec& spec) {
  const bool fills_with_zeros = spec.width > 0 && (spec.zero || spec.align == '=');
  if (spec.grouping == '\0' || !fills_with_zeros) return true;
  rt.Fail(UnimplementedError("a format with grouped digits and filling between is not supported"));
  return false;
}

// Without zeros at the end of the fraction; keeps one digit of it if `keep_one`.
std::string WithoutTrailingZeros(std::string digits, bool keep_one) {
  const size_t e = std::min(digits.find('e'), digits.size());
  std::string mantissa = digits.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa += keep_one ? "0" : "";
    if (mantissa.back() == '.') mantissa.pop_back();
  } else if (keep_one) {
    mantissa += ".0";
  }
  return mantissa + digits.substr(e);
}

// A float with a precision and no type: as 'g', but that a fraction is always shown.
std::string GeneralDigits(double v, int64_t precision) {
  precision = std::max<int64_t>(precision, 1);
  const std::string scientific = fmt::format("{:.{}e}", v, precision - 1);
  const int64_t exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= precision - 1) return WithoutTrailingZeros(scientific, false);
  return WithoutTrailingZeros(fmt::format("{:.{}f}", v, precision - 1 - exponent), true);
}

}  // namespace

std::string_view FirstCharacters(std::string_view text, int64_t count) {
  size_t pos = 0;
  for (; count > 0 && pos < text.size(); --count) pos += DecodeChar(text, pos).size;
  return text.substr(0, pos);
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

std::optional<FormatSpec> ParseFormatSpec(Runtime& rt, std::string_view text) {
  FormatSpec spec;
  const size_t first = text.empty() ? 0 : DecodeChar(text, 0).size;
  const bool fills = first < text.size() && IsAlign(text[first]);
  if (fills) {
    spec.fill = text.substr(0, first);
    text.remove_prefix(first);
  }
  spec.align = TakeOneOf(text, "<>^=");
  if (const char sign = TakeOneOf(text, "+- ")) spec.sign = sign;
  spec.alternate = TakeOneOf(text, "#") != '\0';
  if (TakeOneOf(text, "0")) {
    spec.zero = true;
    if (!fills) spec.fill.assign(1, '0');
  }
  const auto width = TakeNumber(rt, text, static_cast<int64_t>(rt.limits().max_output_bytes));
  if (!width) return std::nullopt;
  spec.width = *width;
  spec.grouping = TakeOneOf(text, ",_");
  if (TakeOneOf(text, ".")) {
    if (text.empty() || !IsDigit(text.front())) {
      rt.FailType("a format specification lacks its precision");
      return std::nullopt;
    }
    spec.precision = TakeNumber(rt, text, static_cast<int64_t>(rt.limits().max_output_bytes));
    if (!spec.precision) return std::nullopt;
  }
  if (text.size() > 1) {
    rt.FailType("a format specification is not valid at '{}'", FirstCharacters(text, 16));
    return std::nullopt;
  }
  if (!text.empty()) spec.type = text.front();
  return spec;
}

std::optional<NumberText> FormatInteger(Runtime& rt, int64_t v, const FormatSpec& spec) {
  if (spec.precision) {
    rt.FailType("an integer has no precision");
    return std::nullopt;
  }
  if (!CheckGrouping(rt, spec)) return std::nullopt;
  // The magnitude of every int64 fits.
  const uint64_t magnitude = v < 0 ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v);
  NumberText out{SignOf(v < 0, spec.sign), ""};
  size_t group = 4;
  switch (spec.type) {
    case 'b': out.digits = fmt::format("{:b}", magnitude); break;
    case 'o': out.digits = fmt::format("{:o}", magnitude); break;
    case 'x': out.digits = fmt::format("{:x}", magnitude); break;
    case 'X': out.digits = fmt::format("{:X}", magnitude); break;
    case '\0':
    case 'd':
    case 'n':
      out.digits = fmt::format("{}", magnitude);
      group = 3;
      break;
    default: rt.FailType("'{}' is no format of an integer", spec.type); return std::nullopt;
  }
  if (spec.alternate && group == 4) out.prefix += std::string("0") + spec.type;
  if (spec.grouping == ',' && group == 4) {
    rt.FailType("',' has no meaning with '{}'", spec.type);
    return std::nullopt;
  }
  if (spec.grouping != '\0') GroupDigits(out.digits, out.digits.size(), group, spec.grouping);
  return out;
}

std::optional<NumberText> FormatFloat(Runtime& rt, double v, const FormatSpec& spec) {
  if (spec.alternate) {
    rt.Fail(UnimplementedError("the format '#' of a float is not supported"));
    return std::nullopt;
  }
  const int64_t precision = spec.precision.value_or(6);
  if (precision > kMaxPrecision) {
    rt.Fail(OutOfRangeError("a format asks for more than {} digits", kMaxPrecision));
    return std::nullopt;
  }
  if (!CheckGrouping(rt, spec)) return std::nullopt;
  NumberText out{SignOf(std::signbit(v) && !std::isnan(v), spec.sign), ""};
  const double magnitude = std::fabs(v);
  const bool finite = std::isfinite(v);
  switch (spec.type) {
    case '\0':
      out.digits =
          finite && spec.precision ? GeneralDigits(magnitude, precision) : FloatRepr(magnitude);
      break;
    case 'e': out.digits = fmt::format("{:.{}e}", magnitude, precision); break;
    case 'E': out.digits = fmt::format("{:.{}E}", magnitude, precision); break;
    case 'f': out.digits = fmt::format("{:.{}f}", magnitude, precision); break;
    case 'F': out.digits = fmt::format("{:.{}F}", magnitude, precision); break;
    case 'g':
    case 'n': out.digits = fmt::format("{:.{}g}", magnitude, precision); break;
    case 'G': out.digits = fmt::format("{:.{}G}", magnitude, precision); break;
    case '%': out.digits = fmt::format("{:.{}f}%", magnitude * 100.0, precision); break;
    default: rt.FailType("'{}' is no format of a float", spec.type); return std::nullopt;
  }
  if (spec.grouping != '\0' && finite) {
    const size_t end = std::min(out.digits.find_first_not_of("0123456789"), out.digits.size());
    GroupDigits(out.digits, end, 3, spec.grouping);
  }
  return out;
}

namespace {

// Appends the filling of `count` characters.
void Fill(Runtime& rt, const FormatSpec& spec, int64_t count, bool data, MarkedText& out) {
  const size_t limit = rt.limits().max_output_bytes;
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(count, 0)) * spec.fill.size();
  if (bytes > limit || !rt.Allocate(bytes)) {
    rt.Fail(OutOfRangeError("a text grows beyond {} bytes", limit));
    return;
  }
  std::string filling;
  filling.reserve(bytes);
  for (int64_t i = 0; i < count; ++i) filling += spec.fill;
  if (data) {
    out.AppendData(filling);
  } else {
    out.Append(filling);
  }
}

}  // namespace

void AppendField(Runtime& rt, const MarkedText& text, const FormatSpec& spec, char default_align,
                 bool data, MarkedText& out) {
  rt.ChargeBytes(text.size());
  const int64_t missing = std::max<int64_t>(spec.width - CountCharacters(text.text()), 0);
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Fill(rt, spec, before, data, out);
  out.Append(text);
  Fill(rt, spec, missing - before, data, out);
}

void AppendNumber(Runtime& rt, const NumberText& number, const FormatSpec& spec, bool data,
                  MarkedText& out) {
  const auto marked = [data](const std::string& text) {
    return data ? MarkedText::FromData(text) : MarkedText(text);
  };
  const char align = spec.align != '\0' ? spec.align : spec.zero ? '=' : '>';
  if (align != '=') {
    return AppendField(rt, marked(number.prefix + number.digits), spec, align, data, out);
  }
  out.Append(marked(number.prefix));
  FormatSpec rest = spec;
  rest.align = '>';
  rest.width = std::max<int64_t>(spec.width - static_cast<int64_t>(number.prefix.size()), 0);
  AppendField(rt, marked(number.digits), rest, '>', data, out);
}

}  // namespace tandem::jinja
