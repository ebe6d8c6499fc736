// What: Value: what a template computes with, the counterparts of Python's None, bool, int, float,
//   str, list, tuple, dict, and Jinja's undefined; with Python's rules for truth, equality, str()
//   and repr().
// Not here: creating strings and containers within the limits of a rendering (runtime.h), operators
//   (operators.h).
//   A string knows which of its bytes came from data (marked_text.h), a container whether any did.
// Threads: immutable, so shared freely; except Namespace and Loop, which belong to one rendering.
// Invariants: strings are valid UTF-8; a container's depth is one more than its deepest item's and
//   at most kMaxValueDepth, so recursion over values is bounded. Lists and dicts are never
//   modified: Hugging Face renders in Jinja's immutable sandbox. Only a namespace can change;
//   containers hold a pointer to it and depth stops there.
// Cost: 32 bytes per value; copies share strings and containers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/marked_text.h"

namespace tandem::jinja {

// Objects keep the order of their keys, which templates print.
using Json = nlohmann::ordered_json;

inline constexpr int kMaxValueDepth = 100;

class Value;
struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Stmt;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kLoop,
  kCallable,
};

// Why a value is undefined, for the error that its use may cause.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};
// A function or bound method as a value: it is defined and true; only the parser calls it.
struct Callable {};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  explicit Value(None) : data_(None{}) {}
  explicit Value(Callable) : data_(Callable{}) {}
  explicit Value(bool v) : data_(v) {}
  explicit Value(int64_t v) : data_(v) {}
  explicit Value(double v) : data_(v) {}
  explicit Value(std::shared_ptr<const MarkedText> v) : data_(std::move(v)) {}
  explicit Value(std::shared_ptr<const List> v) : data_(std::move(v)) {}
  explicit Value(std::shared_ptr<const Dict> v) : data_(std::move(v)) {}
  explicit Value(Namespace* v) : data_(v) {}
  explicit Value(const Loop* v) : data_(v) {}
  static Value MakeUndefined(std::string reason);
  // For constants; text that grows with a template's input comes from Runtime::String.
  static Value MakeString(std::string text);
  static Value MakeText(MarkedText text);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_dict() const { return kind() == Kind::kDict; }
  // int, float, or bool, which Python counts as an int.
  bool is_number() const { return is_bool() || is_int() || is_float(); }

  // Each requires the kind it names.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return std::get<int64_t>(data_); }
  double as_float() const { return std::get<double>(data_); }
  const std::string& as_string() const { return as_text().text(); }
  const MarkedText& as_text() const { return *std::get<std::shared_ptr<const MarkedText>>(data_); }
  const List& as_list() const { return *list_ptr(); }
  const std::shared_ptr<const List>& list_ptr() const {
    return std::get<std::shared_ptr<const List>>(data_);
  }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& as_namespace() const { return *std::get<Namespace*>(data_); }
  const Loop& as_loop() const { return *std::get<const Loop*>(data_); }
  // "'x' is undefined"; requires kUndefined.
  std::string_view undefined_reason() const;

  // Python's bool(v).
  bool Truthy() const;
  // 0 for anything but a container.
  int Depth() const;
  // Whether its text holds, or may hold, bytes that came from data.
  bool HasData() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const MarkedText>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*, const Loop*,
               Callable>
      data_;
};

// A sequence; the flavour says which of Python's types it stands for.
struct List {
  enum class Flavor {
    kList,
    kTuple,
    kRange,     // range(): cannot be printed
    kView,      // dict.items(), keys(), values(): no index, no printing
    kIterator,  // what map, select, items, ... give: only to be iterated or turned into a list
  };
  Flavor flavor = Flavor::kList;
  int depth = 1;
  bool has_data = false;
  // A pair that the filter groupby made: its items have the names "grouper" and "list".
  bool is_group = false;
  std::vector<Value> items;
};

// A dict in order of insertion. Keys are strings.
struct Dict {
  int depth = 1;
  bool has_data = false;
  std::vector<std::pair<std::string, Value>> items;
  // Positions in `items`, ordered by key.
  std::vector<uint32_t> by_key;

  // Builds the look-up order. A key that occurs twice keeps its first place and its last value.
  // `data_keys`: keys came from data.
  explicit Dict(std::vector<std::pair<std::string, Value>> entries, bool data_keys = false);
  // None where absent. Cost: binary search.
  const Value* Find(std::string_view key) const;
};

// Jinja's namespace(): the only thing that can be changed, so that a loop can hand a value out.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

// The variable `loop`.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index0 = 0;
  size_t depth0 = 0;
  // What loop.changed() was last given; empty: it was not called yet.
  mutable std::vector<Value> last_changed;
  // Of a recursive loop while it runs: its statement, and the scope that it stands in.
  const Stmt* recursive = nullptr;
  size_t scope = 0;
};

// All strings, keys included, are marked as data. INVALID_ARGUMENT for a string that is not UTF-8,
// OUT_OF_RANGE for a document that nests deeper than kMaxValueDepth or has an integer beyond 64
// bits.
Result<Value> FromJson(const Json& json);

// Python's ==. Takes from *budget what it costs (items, and bytes / 64) and gives up with false
// when nothing is left: values can share parts, so the size of one says nothing about the time.
bool Equals(const Value& a, const Value& b, int64_t* budget);

// Python's name of the type, for errors: "str", "NoneType".
std::string_view TypeName(const Value& v);

// Appends Python's str(v): text itself, "True", "None", "1.0", "['a', 1]"; nothing for undefined.
// FAILED_PRECONDITION for what has no meaningful text (namespaces, functions, iterators),
// OUT_OF_RANGE when `out` would pass `max_bytes`.
Status AppendStr(const Value& v, size_t max_bytes, std::string& out);
// The same for repr(v), which quotes strings.
Status AppendRepr(const Value& v, size_t max_bytes, std::string& out);
// Python's repr(float): the shortest digits that read back equal.
std::string FloatRepr(double v);

}  // namespace tandem::jinja
