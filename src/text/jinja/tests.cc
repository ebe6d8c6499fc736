// Tests (`x is defined`): bodies and table, declared in builtins.h.
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace tandem::jinja {
namespace {

template <bool (*kPredicate)(const Value&)>
Value Check(Runtime&, Arguments args) {
  return Value(kPredicate(*args[0]));
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsTrue(const Value& v) { return v.is_bool() && v.as_bool(); }
bool IsFalse(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool IsInteger(const Value& v) { return v.is_int(); }
bool IsFloat(const Value& v) { return v.is_float(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is_dict(); }
bool IsIterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_list() || v.is_dict() || v.kind() == Kind::kLoop;
}
// Has a length and items by index, in Python's eyes: a dict does, a view of one does not.
bool IsSequence(const Value& v) {
  if (v.is_list()) {
    return v.as_list().flavor != List::Flavor::kView &&
           v.as_list().flavor != List::Flavor::kIterator;
  }
  return v.is_undefined() || v.is_string() || v.is_dict();
}
bool IsCallable(const Value& v) { return v.kind() == Kind::kCallable || v.kind() == Kind::kLoop; }

// Identity has a meaning here for the values that exist once only.
Value IsSameAs(Runtime& rt, Arguments args) {
  const Value& a = *args[0];
  const Value& b = *args[1];
  if (a.is_none() || a.is_bool() || b.is_none() || b.is_bool()) {
    return Value(a.kind() == b.kind() && (a.is_none() || a.as_bool() == b.as_bool()));
  }
  return rt.Fail(
      UnimplementedError("sameas for a {} and a {} is not supported", TypeName(a), TypeName(b)));
}

Value IsLower(Runtime& rt, Arguments args) {
  const std::string text = rt.Str(*args[0]);
  return Value(text == ToLower(text) && text != ToUpper(text));
}
Value IsUpper(Runtime& rt, Arguments args) {
  const std::string text = rt.Str(*args[0]);
  return Value(text == ToUpper(text) && text != ToLower(text));
}

template <CompareOp kOp>
Value CompareTest(Runtime& rt, Arguments args) {
  return Value(Compare(rt, kOp, *args[0], *args[1]));
}

Value Remainder(Runtime& rt, const Value& v, int64_t divisor) {
  return Binary(rt, BinaryOp::kModulo, v, Value(divisor));
}
Value IsOdd(Runtime& rt, Arguments args) {
  return Value(rt.Equal(Remainder(rt, *args[0], 2), Value(int64_t{1})));
}
Value IsEven(Runtime& rt, Arguments args) {
  return Value(rt.Equal(Remainder(rt, *args[0], 2), Value(int64_t{0})));
}
Value IsDivisibleBy(Runtime& rt, Arguments args) {
  const Value remainder = Binary(rt, BinaryOp::kModulo, *args[0], *args[1]);
  return Value(rt.Equal(remainder, Value(int64_t{0})));
}

constexpr Builtin kTests[] = {
    {"defined", Check<IsDefined>},
    {"undefined", Check<IsUndefined>},
    {"none", Check<IsNone>},
    {"boolean", Check<IsBoolean>},
    {"true", Check<IsTrue>},
    {"false", Check<IsFalse>},
    {"integer", Check<IsInteger>},
    {"float", Check<IsFloat>},
    {"number", Check<IsNumber>},
    {"string", Check<IsString>},
    {"mapping", Check<IsMapping>},
    {"iterable", Check<IsIterable>},
    {"sequence", Check<IsSequence>},
    {"callable", Check<IsCallable>},
    {"sameas", IsSameAs, {"other"}, 1},
    {"lower", IsLower},
    {"upper", IsUpper},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisibleBy, {"num"}, 1},
    {"eq", CompareTest<CompareOp::kEq>, {"other"}, 1},
    {"equalto", CompareTest<CompareOp::kEq>, {"other"}, 1},
    {"==", CompareTest<CompareOp::kEq>, {"other"}, 1},
    {"ne", CompareTest<CompareOp::kNe>, {"other"}, 1},
    {"!=", CompareTest<CompareOp::kNe>, {"other"}, 1},
    {"lt", CompareTest<CompareOp::kLt>, {"other"}, 1},
    {"lessthan", CompareTest<CompareOp::kLt>, {"other"}, 1},
    {"le", CompareTest<CompareOp::kLe>, {"other"}, 1},
    {"gt", CompareTest<CompareOp::kGt>, {"other"}, 1},
    {"greaterthan", CompareTest<CompareOp::kGt>, {"other"}, 1},
    {"ge", CompareTest<CompareOp::kGe>, {"other"}, 1},
    {"in", CompareTest<CompareOp::kIn>, {"seq"}, 1},
};

}  // namespace

std::span<const Builtin> Tests() { return kTests; }

}  // namespace tandem::jinja
