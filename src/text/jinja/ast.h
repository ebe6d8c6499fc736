// What: the syntax tree of a template.
// Not here: building it (parser.h), walking it (evaluator.h).
// Threads: immutable once parsed.
// Invariants: height is one more than the highest child's and at most kMaxTreeHeight, so recursion
//   over a tree, its destruction included, is bounded. Builtins point to static tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

inline constexpr int kMaxTreeHeight = 150;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// What `operands` holds is written behind each kind; "?" marks an operand that may be null.
enum class ExprKind {
  kConstant,     // value
  kName,         // name
  kList,         // items
  kTuple,        // items
  kDict,         // key, value, key, value, ...
  kAttribute,    // object; name
  kSubscript,    // object, index
  kSlice,        // object, start?, stop?, step?
  kNegate,       // x
  kPlus,         // x
  kNot,          // x
  kBinary,       // left, right; binary
  kCompare,      // x0, x1, x2 ...; comparisons[i] stands between x[i] and x[i + 1]
  kAnd,          // left, right
  kOr,           // left, right
  kConditional,  // condition, then, otherwise?
  kConcat,       // items
  kFilter,       // subject, parameters? ...; builtin
  kTest,         // subject, parameters? ...; builtin; `negated`
  kMethod,       // receiver, parameters? ...; builtin
  kCall,         // parameters? ...; builtin
  kMacroCall,    // positional ..., named ... (names); name
  kCallerCall,   // the same for `caller`
  kLoopCall,     // items
  kFormat,       // receiver, positional ..., named ... (names)
  kBlockText,    // what a block that is filtered has written
  kNamespace,    // initial? values; names
  kMap,          // subject; by attribute (name, default?) or by filter (inner)
  kSelect,  // subject; name (empty: the item itself); inner test or null: truth; `negated`: reject
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 1;
  int height = 1;
  bool negated = false;
  BinaryOp binary = BinaryOp::kAdd;
  const Builtin* builtin = nullptr;
  std::string name;
  Value value;
  std::vector<ExprPtr> operands;
  std::vector<CompareOp> comparisons;
  std::vector<std::string> names;
  // A filter or test that is applied to every item; its subject is null.
  ExprPtr inner;
};

// What an assignment or a loop assigns to: a name, an attribute of a namespace, or several of
// those.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

enum class StmtKind {
  kText,      // text
  kPrint,     // expr
  kSet,       // target, expr
  kSetBlock,  // target, body; expr?: filters of kBlockText
  kFilter,    // body; expr: filters of kBlockText
  kCall,      // expr (a macro call), parameters, defaults?, body: what `caller` writes
  kWith,      // target.parts, defaults (their values), body
  kIf,        // branches (condition, body); otherwise
  kFor,       // target, expr, filter?, body; otherwise; `recursive`
  kMacro,     // target (its name), parameters, defaults?, body; `uses_caller`
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 1;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr filter;
  Block body;
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;
  bool recursive = false;
  bool uses_caller = false;
};

}  // namespace tandem::jinja
