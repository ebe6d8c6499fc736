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
  Runtime(const Limits& limits, const std::tm& now)
      : limits_(limits), now_(now), steps_left_(limits.max_steps) {}
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

  // Data as a whole while a DataContext says so.
  Value String(std::string text);
  Value Text(MarkedText text);
  Value MakeList(List::Flavor flavor, std::vector<Value> items);
  // A tuple as groupby makes them.
  Value MakeGroup(Value key, Value members);
  Value MakeDict(std::vector<std::pair<std::string, Value>> entries, bool data_keys = false);
  Namespace* MakeNamespace();
  Loop* MakeLoop();

  // Python's str(v); fails for what has no text.
  std::string Str(const Value& v);
  MarkedText MarkedStr(const Value& v);
  // Appends str(v) and fails when `out` passes the limit of a text. Returns ok().
  bool Append(const Value& v, MarkedText& out);
  bool Equal(const Value& a, const Value& b);
  // Python's a < b: numbers, strings, and lists of those; fails for others.
  bool Less(const Value& a, const Value& b);
  // What iterating over `v` gives: items, keys of a dict, characters of a string, nothing for
  // undefined.
  std::shared_ptr<const List> Items(const Value& v);
  // len(v).
  int64_t Length(const Value& v);

  // While one of these with `data` true lives, strings made from plain text count as data: the text
  // was computed from some.
  class DataContext {
   public:
    DataContext(Runtime& rt, bool data) : rt_(rt), outer_(rt.data_context_) {
      rt.data_context_ = data;
    }
    ~DataContext() { rt_.data_context_ = outer_; }
    DataContext(const DataContext&) = delete;
    DataContext& operator=(const DataContext&) = delete;

   private:
    Runtime& rt_;
    const bool outer_;
  };

  // Bounds the recursion of the evaluator over trees and macros; ok() says whether to go on.
  class Nested {
   public:
    explicit Nested(Runtime& rt) : rt_(rt) {
      if (++rt.depth_ > kMaxEvaluationDepth) {
        rt.Fail(OutOfRangeError("the template nests deeper than {} calls", kMaxEvaluationDepth));
      }
    }
    ~Nested() { --rt_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Runtime& rt_;
  };

  // Local time, for strftime_now.
  const std::tm& now() const { return now_; }

 private:
  // Expressions and blocks inside each other, through macros too. A frame takes up to about a
  // kilobyte of stack, some more under sanitizers.
  static constexpr int kMaxEvaluationDepth = 1000;

  const Limits limits_;
  const std::tm now_;
  int64_t steps_left_;
  size_t allocated_bytes_ = 0;
  int line_ = 1;
  int depth_ = 0;
  bool data_context_ = false;
  Status error_;
  // Live until the end of the rendering, so that values may point to them.
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

}  // namespace tandem::jinja
