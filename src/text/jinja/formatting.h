// What: Python's two ways to format text: str.format with its format specifications, and the
//   operator % on strings.
// Not here: strftime (methods.cc), str() and repr() themselves (value.h).
// Threads: pure but for the Runtime, which belongs to one thread.
// Invariants: bytes of arguments keep their marks; what is filled in or computed counts as data if
//   the format, or the value it shows, holds data.
// Cost: linear in format and result; the Runtime's limits hold for every width and precision.
// Based on: the Python Library Reference, "Format String Syntax" and "printf-style String
//   Formatting", and the attribute look-up of Jinja's sandbox. Not supported, and errors when met:
//   !a, z, # for floats, zero filling between group separators.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

struct FormatArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// format.format(...). Fails where Python raises.
Value FormatString(Runtime& rt, const MarkedText& format, const FormatArguments& arguments);

// format % values: `values` is a tuple of arguments, a dict for %(name)s, or the one argument.
Value FormatPercent(Runtime& rt, const MarkedText& format, const Value& values);

}  // namespace tandem::jinja
