// What: Runtime: one rendering's limits and first error. Everything that makes a template's values
//   grow goes through it, so that time and memory are bounded whatever the template and its input.
// Not here: the walk over the syntax tree (evaluator.h).
// Threads: belongs to one rendering.
// Invariants: after the first Fail() ok() stays false. Code may go on with undefined values for a
//   moment, but every loop asks ok() or Charge().
// Cost: a charge is an addition and a comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

struct Limits {
  // Nodes evaluated plus items touched. A long conversation takes some ten thousand.
  int64_t max_steps = 20'000'000;
  // Of the result, and of every string on the way.
  size_t max_output_bytes = size_t{64} << 20;
  // Sum over everything ever allocated by the rendering, freed or not.
  size_t max_allocated_bytes = size_t{512} << 20;
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits), steps_left_(limits.max_steps) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  bool ok() const { return error_.ok(); }
  const Status& error() const { return error_; }
  const Limits& limits() const { return limits_; }
  // The template line that errors name from now on.
  void set_line(int line) { line_ = line; }

  // Keeps the first error, with the line before its text. Returns undefined, for `return
  // rt.Fail(...)`.
  Value Fail(const Status& error);
  // The errors that Python raises; the caller's input does not fit the template.
  template <typename... Args>
  Value FailType(fmt::format_string<Args...> format, Args&&... args) {
    return Fail(InvalidArgumentError(format, std::forward<Args>(args)...));
  }

  // Each returns ok() and fails with OUT_OF_RANGE when the limit is passed.
  bool Charge(int64_t steps = 1);
  bool Allocate(size_t bytes);
  // For bytes that are read only: searching, comparing.
  bool ChargeBytes(size_t bytes) { return Charge(1 + static_cast<int64_t>(bytes / 64)); }

  Value String(std::string text);
  Value MakeList(List::Flavor flavor, std::vector<Value> items);
  Value MakeDict(std::vector<std::pair<std::string, Value>> entries);
  Namespace* MakeNamespace();
  Loop* MakeLoop();

  // Python's str(v); fails for what has no text.
  std::string Str(const Value& v);
  bool Equal(const Value& a, const Value& b);
  // Python's a < b: numbers, strings, and lists of those; fails for others.
  bool Less(const Value& a, const Value& b);
  // What iterating over `v` gives: items, keys of a dict, characters of a string, nothing for
  // undefined.
  std::shared_ptr<const List> Items(const Value& v);
  // len(v).
  int64_t Length(const Value& v);

 private:
  const Limits limits_;
  int64_t steps_left_;
  size_t allocated_bytes_ = 0;
  int line_ = 1;
  Status error_;
  // Live until the end of the rendering, so that values may point to them.
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

}  // namespace tandem::jinja
