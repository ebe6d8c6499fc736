// What: ExpressionParser: the expressions of a template, by recursive descent.
// Not here: tags (parser.cc).
// Threads: belongs to one thread.
// Invariants: never returns null. After an error the tree is meaningless, and the cursor says so.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/cursor.h"

namespace tandem::jinja {

class ExpressionParser {
 public:
  // `cursor` must outlive this object.
  explicit ExpressionParser(TokenCursor& cursor) : cursor_(cursor) {}

  // One expression, or several with commas, which make a tuple. Where `x if c` has another meaning
  // (the filter of a loop), `conditional` is off.
  ExprPtr ParseTuple(bool conditional);
  ExprPtr ParseExpression();
  // `| filter` behind `e`, any number of them; tests too.
  ExprPtr ParseFilters(ExprPtr e);

  // filter | filter ... applied to what a block writes; stands on the first filter's name.
  ExprPtr ParseBlockFilters();
  // A call of a macro, as `call` blocks have it.
  ExprPtr ParseMacroCallOnly();

  // While one of these lives, the names that a macro's body has besides its own mean something.
  class InMacro {
   public:
    explicit InMacro(ExpressionParser& parser) : parser_(parser) {
      ++parser.macro_depth_;
      parser.caller_used_ = false;
    }
    ~InMacro() { --parser_.macro_depth_; }
    InMacro(const InMacro&) = delete;
    InMacro& operator=(const InMacro&) = delete;
    bool caller_used() const { return parser_.caller_used_; }

   private:
    ExpressionParser& parser_;
  };

  // The functions called so far that are no builtins, each with its first line: macros, if the
  // template defines them somewhere.
  const std::vector<std::pair<std::string, int>>& macro_calls() const { return macro_calls_; }

 private:
  // Arguments of a call as written.
  struct CallArguments {
    std::vector<ExprPtr> positional;
    std::vector<std::pair<std::string, ExprPtr>> keywords;
  };
  using OpTable = std::initializer_list<std::pair<std::string_view, BinaryOp>>;

  ExprPtr Make(ExprKind kind, int line);
  template <typename... Children>
  ExprPtr Make(ExprKind kind, int line, Children... children) {
    ExprPtr e = Make(kind, line);
    (Add(*e, std::move(children)), ...);
    return e;
  }
  ExprPtr Constant(Value value, int line);
  void Add(Expr& parent, ExprPtr child);
  void SetInner(Expr& e, ExprPtr inner);

  // Loosest first.
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnaryWithFilters();
  ExprPtr ParseUnary();
  ExprPtr ParsePrimary();
  // operand (op operand)*, to the left.
  ExprPtr ParseBinary(OpTable ops, ExprPtr (ExpressionParser::*operand)());
  std::optional<CompareOp> TakeCompareOp();
  bool AtTupleEnd() const;

  ExprPtr ParseParenthesised(int line);
  ExprPtr ParseList(int line);
  ExprPtr ParseDict(int line);
  ExprPtr ParseNameOrCall();
  ExprPtr ParseFunctionCall(const std::string& name, int line);
  ExprPtr ParseNamespace(int line);
  ExprPtr ParseDictCall(int line);
  // Behind the name: the arguments of a macro or of `caller`.
  ExprPtr ParseMacroCall(ExprKind kind, const std::string& name, int line);
  ExprPtr ParseLoopCall(int line);
  ExprPtr ParseFormat(ExprPtr receiver, int line);
  // `x | format(...)` is x % (...).
  ExprPtr MakePercent(ExprPtr subject, CallArguments arguments, int line);
  void AddArguments(Expr& call, CallArguments arguments);
  ExprPtr ParsePostfix(ExprPtr e);
  ExprPtr ParseDot(ExprPtr object, int line);
  ExprPtr ParseSubscript(ExprPtr object, int line);

  CallArguments ParseArguments();
  // Puts the arguments in the order of the builtin's parameters behind what `call` already holds.
  void Bind(Expr& call, std::string_view name, CallArguments arguments);

  ExprPtr ParseFilter(ExprPtr subject, int line);
  ExprPtr ParseTest(ExprPtr subject, int line);
  bool AtBareArgument() const;
  // A filter or test with its arguments.
  ExprPtr MakeApplication(ExprKind kind, const std::string& name, ExprPtr subject,
                          CallArguments arguments, int line);
  ExprPtr MakeMap(ExprPtr subject, CallArguments arguments, int line);
  ExprPtr MakeSelect(const std::string& filter, ExprPtr subject, CallArguments arguments, int line);
  std::optional<std::string> TakeConstantString(const Expr* e, std::string_view what, int line);

  TokenCursor& cursor_;
  std::vector<std::pair<std::string, int>> macro_calls_;
  int macro_depth_ = 0;
  bool caller_used_ = false;
};

}  // namespace tandem::jinja
