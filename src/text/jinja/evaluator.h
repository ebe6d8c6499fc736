// What: runs a parsed template: walks its statements and expressions and collects the text.
// Not here: parsing, and what builtins do.
//   A text of the template is not data; what is printed keeps its marks (value.h).
// Threads: one Evaluator per rendering; the tree may be shared.
// Cost: every node charges one step to the Runtime.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace tandem::jinja {

class Evaluator {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  // `variables` are the names the template sees from the start.
  Evaluator(Runtime& rt, Variables variables);

  // The template's text; meaningless when rt.ok() is false afterwards.
  MarkedText Render(const Block& block);

 private:
  // What ended a block early.
  enum class Flow { kNext, kBreak, kContinue };

  // Names are looked up from the innermost scope outwards; a loop's body and a block assignment
  // have their own, `if` has none.
  using Scope = Variables;

  Flow Run(const Block& block, MarkedText& out);
  Flow RunIf(const Stmt& stmt, MarkedText& out);
  Flow RunFor(const Stmt& stmt, MarkedText& out);
  Value FilterItems(const Stmt& stmt, const List& items);
  void RunSetBlock(const Stmt& stmt);
  void DefineMacro(const Stmt& stmt);

  void Assign(const Target& target, const Value& value);
  void SetVariable(std::string_view name, Value value);
  Value Lookup(std::string_view name);

  Value Eval(const Expr& e);
  Value EvalOperand(const Expr& e, size_t i);
  std::vector<Value> EvalOperands(const Expr& e);
  Value EvalDict(const Expr& e);
  Value EvalSlice(const Expr& e);
  Value EvalCompare(const Expr& e);
  Value EvalConcat(const Expr& e);
  Value EvalNamespace(const Expr& e);
  Value EvalMacroCall(const Expr& e);
  // The arguments of a call as the macro's first scope; fails where Python would.
  Scope BindMacro(const Stmt& macro, const Expr& call);
  Value EvalMap(const Expr& e);
  Value EvalSelect(const Expr& e);
  // Applies a filter, test, method or function; `subject` stands in for a null first operand.
  Value Apply(const Expr& e, const Value* subject);
  Value EvalMember(const Value& object, std::string_view path);

  Runtime& rt_;
  // [0] the variables, [1] what the template sets outside of loops, then the inner ones.
  std::vector<Scope> scopes_;
  std::vector<const Stmt*> macros_;
};

}  // namespace tandem::jinja
