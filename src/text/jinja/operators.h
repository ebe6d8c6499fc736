// What: Python's operators on values: arithmetic, comparison, membership, subscripts, slices, and
//   Jinja's attribute look-up.
// Not here: `and`, `or`, `not`, which decide what is evaluated (evaluator.h).
// Threads: pure but for the Runtime, which belongs to one thread.
// Invariants: integers have 64 bits; a result beyond them is an error, never a wrapped number.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

// Each fails, as Python raises, for operands it has no meaning for.
Value Binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b);
Value Negate(Runtime& rt, const Value& v);
Value Plus(Runtime& rt, const Value& v);

// object.name: an attribute of Python's type, else a dict's key, else undefined. Fails on
// undefined.
Value Attribute(Runtime& rt, const Value& object, std::string_view name);
// object[index]: an item, else an attribute, else undefined. Fails on undefined.
Value Subscript(Runtime& rt, const Value& object, const Value& index);
// object[start:stop:step]; a bound that is not given is none (the value None).
Value Slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
            const Value& step);

}  // namespace tandem::jinja
