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

  // The block of a `call` statement that the macro it calls may run; null: none.
  struct Caller {
    const Stmt* block = nullptr;
    size_t scope = 0;
  };
  // Names are looked up from the last scope outwards along `parent`: a macro's body stands in the
  // template, a caller's block where it is written, a recursive loop's body around its statement,
  // whoever runs them. A loop's body and a block that is collected have a scope of their own, `if`
  // has none.
  struct Scope {
    Variables variables;
    size_t parent = 0;
    const Caller* caller = nullptr;
  };
  static constexpr size_t kGlobal = 1;
  static constexpr size_t kOutermost = 0;

  // A scope inside of the last one, for the life of this object.
  class Inner {
   public:
    explicit Inner(Evaluator& e) : Inner(e, e.scopes_.size() - 1) {}
    Inner(Evaluator& e, size_t parent) : e_(e) { e.scopes_.push_back({{}, parent, nullptr}); }
    ~Inner() { e_.scopes_.pop_back(); }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Evaluator& e_;
  };

  Flow Run(const Block& block, MarkedText& out);
  Flow RunIf(const Stmt& stmt, MarkedText& out);
  Flow RunFor(const Stmt& stmt, MarkedText& out);
  // The loop over `iterable`, as if it stood in the scope `scope`.
  Flow RunLoop(const Stmt& stmt, const Value& iterable, size_t scope, size_t depth0,
               MarkedText& out);
  Value FilterItems(const Stmt& stmt, const List& items, size_t scope);
  void RunSetBlock(const Stmt& stmt);
  void RunFilter(const Stmt& stmt, MarkedText& out);
  void RunCall(const Stmt& stmt, MarkedText& out);
  Flow RunWith(const Stmt& stmt, MarkedText& out);
  // What a block writes, in a scope of its own, through `filters` if there are any.
  Value Collect(const Block& block, const Expr* filters);
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
  Value EvalMacroCall(const Expr& e, const Caller* caller);
  Value EvalCallerCall(const Expr& e);
  Value EvalLoopCall(const Expr& e);
  Value EvalFormat(const Expr& e);
  // The arguments of a call as the first scope of a macro or caller; fails where Python would.
  Variables BindMacro(const Stmt& macro, const Expr& call);
  // Its text, for these arguments.
  Value RunMacro(const Stmt& macro, Scope scope);
  Value EvalMap(const Expr& e);
  Value EvalSelect(const Expr& e);
  // Applies a filter, test, method or function; `subject` stands in for a null first operand.
  Value Apply(const Expr& e, const Value* subject);
  Value EvalMember(const Value& object, std::string_view path);

  Runtime& rt_;
  // [kOutermost] the variables, [kGlobal] what the template sets outside of loops, then the inner
  // ones.
  std::vector<Scope> scopes_;
  std::vector<const Stmt*> macros_;
  // Of the filters that run now (ExprKind::kBlockText).
  Value block_text_;
};

}  // namespace tandem::jinja
