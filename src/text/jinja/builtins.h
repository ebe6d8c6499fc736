// What: the filters, tests, methods and functions a template may use, as tables of names,
//   parameters and bodies. The parser looks them up, so that an unknown one is an error before
//   anything is rendered.
// Not here: what is syntax rather than a function of values (map, select, namespace: parser.h).
// Threads: immutable tables, pure bodies.
// Based on: Jinja's list of builtin filters and tests, Python's str and dict; tojson as Hugging
//   Face defines it (json.dumps with ensure_ascii off).
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

// [0] is the subject (receiver of a method), where there is one; then the parameters in the order
// of the table; an absent one is none.
using Arguments = std::span<const std::optional<Value>>;

struct Builtin {
  static constexpr size_t kMaxParameters = 4;
  std::string_view name;
  Value (*call)(Runtime&, Arguments) = nullptr;
  std::array<std::string_view, kMaxParameters> parameters = {};
  size_t required = 0;
  // Of a method's receiver.
  Kind receiver = Kind::kUndefined;

  size_t parameter_count() const {
    size_t n = 0;
    while (n < kMaxParameters && !parameters[n].empty()) ++n;
    return n;
  }
};

// Null where there is none.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindMethod(std::string_view name);
const Builtin* FindFunction(std::string_view name);

// Whether Python's type of `v` has an attribute of this name, which then hides a dict's key.
// Reading it without a call gives a Callable.
bool HasPythonAttribute(const Value& v, std::string_view name);

// Calls a method on a receiver of its kind; fails otherwise.
Value CallMethod(Runtime& rt, const Builtin& method, Arguments arguments);

// The tables, by the file that holds the bodies.
std::span<const Builtin> StringFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> CollectionFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> Methods();
std::span<const Builtin> Functions();

// --- for the bodies ---

// The string value of arguments[i], or `fallback` when absent; fails when it is no string.
std::string StringOr(Runtime& rt, Arguments arguments, size_t i, std::string_view fallback);
// The same for integers (bool counts).
int64_t IntOr(Runtime& rt, Arguments arguments, size_t i, int64_t fallback);
bool TruthOr(Arguments arguments, size_t i, bool fallback);
bool Given(Arguments arguments, size_t i);

// json.dumps of `v`; in json.cc.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  // Spaces per level; none: everything in one line.
  std::optional<int64_t> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string ToJson(Runtime& rt, const Value& v, const JsonStyle& style);

}  // namespace tandem::jinja
