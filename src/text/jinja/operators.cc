#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/formatting.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

using Flavor = List::Flavor;

bool IsInteger(const Value& v) { return v.is_int() || v.is_bool(); }
int64_t ToInt(const Value& v) { return v.is_bool() ? int64_t{v.as_bool()} : v.as_int(); }
double ToDouble(const Value& v) {
  return v.is_float() ? v.as_float() : static_cast<double>(ToInt(v));
}

std::string_view OpText(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "+";
    case BinaryOp::kSubtract: return "-";
    case BinaryOp::kMultiply: return "*";
    case BinaryOp::kDivide: return "/";
    case BinaryOp::kFloorDivide: return "//";
    case BinaryOp::kModulo: return "%";
    case BinaryOp::kPower: return "**";
  }
  return "?";
}

Value IntPower(Runtime& rt, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return rt.FailType("0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return rt.FailType("an integer does not fit in 64 bits");
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return rt.FailType("an integer does not fit in 64 bits");
    }
  }
  return Value(result);
}

Value IntBinary(Runtime& rt, BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case BinaryOp::kSubtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case BinaryOp::kMultiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case BinaryOp::kDivide:
      if (b == 0) return rt.FailType("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0) return rt.FailType("division by zero");
      if (b == -1) {  // the one divisor whose quotient can overflow
        if (op == BinaryOp::kModulo) return Value(int64_t{0});
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      // Python rounds the quotient down; the remainder has the divisor's sign.
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == BinaryOp::kModulo ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
      break;
    }
    case BinaryOp::kPower: return IntPower(rt, a, b);
  }
  if (overflow) return rt.FailType("an integer does not fit in 64 bits");
  return Value(result);
}

Value FloatBinary(Runtime& rt, BinaryOp op, double a, double b) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0.0) return rt.FailType("division by zero");
  double remainder = 0;
  if (op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo) {
    remainder = std::fmod(a, b);
    if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
    if (remainder == 0) remainder = std::copysign(0.0, b);
  }
  switch (op) {
    case BinaryOp::kAdd: return Value(a + b);
    case BinaryOp::kSubtract: return Value(a - b);
    case BinaryOp::kMultiply: return Value(a * b);
    case BinaryOp::kDivide: return Value(a / b);
    case BinaryOp::kFloorDivide: return Value(std::round((a - remainder) / b));
    case BinaryOp::kModulo: return Value(remainder);
    case BinaryOp::kPower: break;
  }
  const double power = std::pow(a, b);
  if (std::isfinite(a) && std::isfinite(b) && !std::isfinite(power)) {
    return rt.FailType("a power is out of range");
  }
  return Value(power);
}

Value Repeat(Runtime& rt, const Value& sequence, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const size_t unit = sequence.is_string() ? sequence.as_string().size()
                                           : sequence.as_list().items.size() * sizeof(Value);
  if (unit > 0 && static_cast<uint64_t>(count) > rt.limits().max_output_bytes / unit) {
    return rt.Fail(
        OutOfRangeError("a repeated sequence grows beyond {} bytes", rt.limits().max_output_bytes));
  }
  if (unit == 0) return sequence;
  if (sequence.is_string()) {
    std::string out;
    if (unit == 1) {
      out.assign(static_cast<size_t>(count), sequence.as_string()[0]);
    } else {
      out.reserve(unit * static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) out += sequence.as_string();
    }
    // Data in one copy counts for all of them: nobody repeats a mixture.
    const Runtime::DataContext context(rt, sequence.HasData());
    return rt.String(std::move(out));
  }
  const List& list = sequence.as_list();
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return rt.MakeList(list.flavor, std::move(items));
}

bool IsListOrTuple(const Value& v) {
  return v.is_list() &&
         (v.as_list().flavor == Flavor::kList || v.as_list().flavor == Flavor::kTuple);
}

Value Concatenate(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string()) {
    if (a.as_string().size() + b.as_string().size() > rt.limits().max_output_bytes) {
      return rt.Fail(OutOfRangeError("a text grows beyond {} bytes", rt.limits().max_output_bytes));
    }
    MarkedText text = a.as_text();
    text.Append(b.as_text());
    return rt.Text(std::move(text));
  }
  std::vector<Value> items = a.as_list().items;
  items.insert(items.end(), b.as_list().items.begin(), b.as_list().items.end());
  return rt.MakeList(a.as_list().flavor, std::move(items));
}

bool Contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) {
        rt.FailType("'in' with a string on the right needs one on the left, not {}",
                    TypeName(item));
        return false;
      }
      rt.ChargeBytes(container.as_string().size() + item.as_string().size());
      return FindText(container.as_string(), item.as_string(), 0) != std::string_view::npos;
    case Kind::kDict:
      return item.is_string() && container.as_dict().Find(item.as_string()) != nullptr;
    case Kind::kList:
      for (const Value& v : container.as_list().items) {
        if (!rt.ok()) return false;
        if (rt.Equal(v, item)) return true;
      }
      return false;
    default:
      rt.FailType("'in' needs a container on the right, not {}", TypeName(container));
      return false;
  }
}

Value LoopAttribute(const Loop& loop, std::string_view name) {
  const int64_t index0 = static_cast<int64_t>(loop.index0);
  const int64_t length = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(index0 + 1 == length);
  if (name == "length") return Value(length);
  if (name == "revindex") return Value(length - index0);
  if (name == "revindex0") return Value(length - index0 - 1);
  const int64_t depth0 = static_cast<int64_t>(loop.depth0);  // of recursion, not of nesting
  if (name == "depth") return Value(depth0 + 1);
  if (name == "depth0") return Value(depth0);
  if (name == "previtem") {
    return index0 > 0 ? loop.items->items[loop.index0 - 1]
                      : Value::MakeUndefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index0 + 1 < length ? loop.items->items[loop.index0 + 1]
                               : Value::MakeUndefined("there is no next item");
  }
  return Value::MakeUndefined(fmt::format("loop has no attribute '{}'", name));
}

Value NoAttribute(const Value& object, std::string_view name) {
  return Value::MakeUndefined(
      fmt::format("'{} object' has no attribute '{}'", TypeName(object), name.substr(0, 64)));
}

// The character at `index`, or undefined.
Value CharacterAt(Runtime& rt, const MarkedText& marked, int64_t index) {
  const std::string& text = marked.text();
  rt.ChargeBytes(text.size());
  if (index < 0) {
    int64_t length = 0;
    for (const char c : text) length += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    index += length;
  }
  for (size_t pos = 0; pos < text.size() && index >= 0; --index) {
    const DecodedChar c = DecodeChar(text, pos);
    if (index == 0) return rt.Text(marked.Part(pos, pos + c.size));
    pos += c.size;
  }
  return Value::MakeUndefined("the string is shorter than its index");
}

struct SliceRange {
  int64_t start, stop, step;
};

// Python's slice.indices(length).
std::optional<SliceRange> ResolveSlice(Runtime& rt, int64_t length, const Value& start,
                                       const Value& stop, const Value& step) {
  for (const Value* v : {&start, &stop, &step}) {
    if (v->is_none() || IsInteger(*v)) continue;
    rt.FailType("a slice's bound must be an integer, not {}", TypeName(*v));
    return std::nullopt;
  }
  SliceRange r{0, 0, step.is_none() ? 1 : ToInt(step)};
  if (r.step == 0) {
    rt.FailType("a slice's step is 0");
    return std::nullopt;
  }
  // No step is longer than the sequence in effect; this keeps sums within 64 bits.
  r.step = std::clamp(r.step, -length - 1, length + 1);
  const int64_t low = r.step < 0 ? -1 : 0;
  const int64_t high = r.step < 0 ? length - 1 : length;
  const auto bound = [&](const Value& v, int64_t fallback) {
    if (v.is_none()) return fallback;
    int64_t i = ToInt(v);
    if (i < 0) i = i < -length ? low : std::max(i + length, low);
    return std::min(i, high);
  };
  r.start = bound(start, r.step < 0 ? high : low);
  r.stop = bound(stop, r.step < 0 ? low : high);
  return r;
}

template <typename F>
void ForEachInSlice(const SliceRange& r, F f) {
  for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step) {
    f(static_cast<size_t>(i));
  }
}

Value SliceString(Runtime& rt, const MarkedText& marked, const Value& start, const Value& stop,
                  const Value& step) {
  const std::string& text = marked.text();
  // Byte offset of every character, and the end.
  if (!rt.Charge(static_cast<int64_t>(text.size() / 8)) || !rt.Allocate(text.size()))
    return Value();
  std::vector<uint32_t> offsets;
  for (size_t pos = 0; pos < text.size(); pos += DecodeChar(text, pos).size) {
    offsets.push_back(static_cast<uint32_t>(pos));
  }
  const int64_t length = static_cast<int64_t>(offsets.size());
  offsets.push_back(static_cast<uint32_t>(text.size()));
  const auto range = ResolveSlice(rt, length, start, stop, step);
  if (!range) return Value();
  if (range->step == 1) {
    const auto begin = offsets[static_cast<size_t>(range->start)];
    const auto end = offsets[static_cast<size_t>(std::max(range->start, range->stop))];
    return rt.Text(marked.Part(begin, end));
  }
  MarkedText out;
  ForEachInSlice(*range, [&](size_t i) { out.AppendPart(marked, offsets[i], offsets[i + 1]); });
  return rt.Text(std::move(out));
}

}  // namespace

Value Binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (!rt.Charge()) return Value();
  if (op == BinaryOp::kModulo && a.is_string()) return FormatPercent(rt, a.as_text(), b);
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) return rt.FailType("{}", v->undefined_reason());
  }
  if (IsInteger(a) && IsInteger(b)) return IntBinary(rt, op, ToInt(a), ToInt(b));
  if (a.is_number() && b.is_number()) return FloatBinary(rt, op, ToDouble(a), ToDouble(b));
  if (op == BinaryOp::kAdd) {
    const bool lists =
        IsListOrTuple(a) && IsListOrTuple(b) && a.as_list().flavor == b.as_list().flavor;
    if (lists || (a.is_string() && b.is_string())) return Concatenate(rt, a, b);
  }
  if (op == BinaryOp::kMultiply) {
    if ((a.is_string() || IsListOrTuple(a)) && IsInteger(b)) return Repeat(rt, a, ToInt(b));
    if ((b.is_string() || IsListOrTuple(b)) && IsInteger(a)) return Repeat(rt, b, ToInt(a));
  }
  return rt.FailType("'{}' has no meaning between {} and {}", OpText(op), TypeName(a), TypeName(b));
}

bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  if (!rt.Charge()) return false;
  switch (op) {
    case CompareOp::kEq: return rt.Equal(a, b);
    case CompareOp::kNe: return !rt.Equal(a, b);
    case CompareOp::kIn: return Contains(rt, b, a);
    case CompareOp::kNotIn: return !Contains(rt, b, a);
    default: break;
  }
  for (const Value* v : {&a, &b}) {
    if (!v->is_undefined()) continue;
    rt.FailType("{}", v->undefined_reason());
    return false;
  }
  const auto is_nan = [](const Value& v) { return v.is_float() && std::isnan(v.as_float()); };
  if (is_nan(a) || is_nan(b)) return false;
  switch (op) {
    case CompareOp::kLt: return rt.Less(a, b);
    case CompareOp::kGt: return rt.Less(b, a);
    case CompareOp::kLe: return !rt.Less(b, a);
    default: return !rt.Less(a, b);
  }
}

Value Negate(Runtime& rt, const Value& v) {
  if (v.is_undefined()) return rt.FailType("{}", v.undefined_reason());
  if (v.is_float()) return Value(-v.as_float());
  if (IsInteger(v)) return IntBinary(rt, BinaryOp::kSubtract, 0, ToInt(v));
  return rt.FailType("'-' has no meaning for {}", TypeName(v));
}

Value Plus(Runtime& rt, const Value& v) {
  if (v.is_undefined()) return rt.FailType("{}", v.undefined_reason());
  if (v.is_float()) return v;
  if (IsInteger(v)) return Value(ToInt(v));
  return rt.FailType("'+' has no meaning for {}", TypeName(v));
}

Value Attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (!rt.Charge()) return Value();
  if (object.is_undefined()) return rt.FailType("{}", object.undefined_reason());
  if (HasPythonAttribute(object, name)) return Value(Callable{});
  const Value* found = nullptr;
  if (object.is_list() && object.as_list().is_group && (name == "grouper" || name == "list")) {
    return object.as_list().items[name == "list" ? 1 : 0];
  }
  if (object.kind() == Kind::kNamespace) found = object.as_namespace().Find(name);
  if (object.kind() == Kind::kLoop) return LoopAttribute(object.as_loop(), name);
  if (object.is_dict()) found = object.as_dict().Find(name);
  return found != nullptr ? *found : NoAttribute(object, name);
}

Value Subscript(Runtime& rt, const Value& object, const Value& index) {
  if (!rt.Charge()) return Value();
  if (object.is_undefined()) return rt.FailType("{}", object.undefined_reason());
  if (object.is_dict() && index.is_string()) {
    if (const Value* found = object.as_dict().Find(index.as_string())) return *found;
  }
  if (index.is_string()) {
    if (object.is_dict()) {
      return HasPythonAttribute(object, index.as_string()) ? Value(Callable{})
                                                           : NoAttribute(object, index.as_string());
    }
    return Attribute(rt, object, index.as_string());
  }
  if (IsInteger(index)) {
    int64_t i = ToInt(index);
    if (object.is_string()) return CharacterAt(rt, object.as_text(), i);
    if (object.is_list() && object.as_list().flavor != Flavor::kView &&
        object.as_list().flavor != Flavor::kIterator) {
      const auto& items = object.as_list().items;
      const int64_t size = static_cast<int64_t>(items.size());
      if (i < 0) i += size;
      if (i >= 0 && i < size) return items[static_cast<size_t>(i)];
      return Value::MakeUndefined(
          fmt::format("the {} has no item {}", TypeName(object), ToInt(index)));
    }
  }
  return Value::MakeUndefined(fmt::format("'{} object' has no such item", TypeName(object)));
}

Value Slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.is_undefined()) return rt.FailType("{}", object.undefined_reason());
  if (object.is_string()) return SliceString(rt, object.as_text(), start, stop, step);
  if (!object.is_list() || object.as_list().flavor == Flavor::kView ||
      object.as_list().flavor == Flavor::kIterator) {
    return rt.FailType("a value of type {} cannot be sliced", TypeName(object));
  }
  const List& list = object.as_list();
  const auto range = ResolveSlice(rt, static_cast<int64_t>(list.items.size()), start, stop, step);
  if (!range) return Value();
  std::vector<Value> items;
  ForEachInSlice(*range, [&](size_t i) { items.push_back(list.items[i]); });
  return rt.MakeList(list.flavor, std::move(items));
}

}  // namespace tandem::jinja
