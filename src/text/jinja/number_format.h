// What: numbers and texts in a field of some width, as Python's format specifications say.
// Not here: finding fields in a format (formatting.h).
// Threads: pure but for the Runtime, which belongs to one thread.
// Based on: the Python Library Reference, "Format Specification Mini-Language".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

// [[fill]align][sign][#][0][width][,_][.precision][type]
struct FormatSpec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > ^ =; none: by the kind of value
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';
  std::optional<int64_t> precision;
  char type = '\0';
};

// Fails for what is no specification, and for widths that no text may have.
std::optional<FormatSpec> ParseFormatSpec(Runtime& rt, std::string_view text);

// The parts of a formatted number: filling goes before, between or behind them.
struct NumberText {
  std::string prefix;  // sign and 0x
  std::string digits;
};
// `spec.type` is one of those for integers; fails for a precision.
std::optional<NumberText> FormatInteger(Runtime& rt, int64_t v, const FormatSpec& spec);
// One of those for floats, or none.
std::optional<NumberText> FormatFloat(Runtime& rt, double v, const FormatSpec& spec);

// Appends `text` in a field as `spec` says; filling is data if `data`.
void AppendField(Runtime& rt, const MarkedText& text, const FormatSpec& spec, char default_align,
                 bool data, MarkedText& out);
// The same for a number.
void AppendNumber(Runtime& rt, const NumberText& number, const FormatSpec& spec, bool data,
                  MarkedText& out);

// The first `count` characters.
std::string_view FirstCharacters(std::string_view text, int64_t count);
int64_t CountCharacters(std::string_view text);

}  // namespace tandem::jinja
