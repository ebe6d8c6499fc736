#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace tandem::jinja {

ExprPtr ExpressionParser::Make(ExprKind kind, int line) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

void ExpressionParser::Add(Expr& parent, ExprPtr child) {
  if (child) {
    parent.height = std::max(parent.height, child->height + 1);
    cursor_.CheckHeight(parent.height, parent.line);
  }
  parent.operands.push_back(std::move(child));
}

ExprPtr ExpressionParser::Constant(Value value, int line) {
  ExprPtr e = Make(ExprKind::kConstant, line);
  e->value = std::move(value);
  return e;
}

// One expression, or several with commas, which make a tuple.
ExprPtr ExpressionParser::ParseTuple(bool conditional) {
  const int line = cursor_.Peek().line;
  ExprPtr first = conditional ? ParseExpression() : ParseOr();
  if (!cursor_.AtOperator(",")) return first;
  ExprPtr tuple = Make(ExprKind::kTuple, line);
  Add(*tuple, std::move(first));
  while (cursor_.SkipOperator(",")) {
    if (AtTupleEnd()) break;
    Add(*tuple, conditional ? ParseExpression() : ParseOr());
  }
  return tuple;
}

bool ExpressionParser::AtTupleEnd() const {
  const TokenKind kind = cursor_.Peek().kind;
  return kind == TokenKind::kBlockEnd || kind == TokenKind::kPrintEnd || kind == TokenKind::kEnd ||
         cursor_.AtOperator(")");
}

ExprPtr ExpressionParser::ParseExpression() {
  const TokenCursor::Nested nested(cursor_);
  ExprPtr e = ParseOr();
  while (cursor_.AtName("if")) {
    const int line = cursor_.Next().line;
    ExprPtr condition = ParseOr();
    ExprPtr otherwise;
    if (cursor_.SkipName("else")) otherwise = ParseExpression();
    e = Make(ExprKind::kConditional, line, std::move(condition), std::move(e),
             std::move(otherwise));
  }
  return e;
}

ExprPtr ExpressionParser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (cursor_.AtName("or")) {
    const int line = cursor_.Next().line;
    left = Make(ExprKind::kOr, line, std::move(left), ParseAnd());
  }
  return left;
}

ExprPtr ExpressionParser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (cursor_.AtName("and")) {
    const int line = cursor_.Next().line;
    left = Make(ExprKind::kAnd, line, std::move(left), ParseNot());
  }
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  const TokenCursor::Nested nested(cursor_);
  if (!cursor_.ok() || !cursor_.AtName("not")) return ParseCompare();
  const int line = cursor_.Next().line;
  return Make(ExprKind::kNot, line, ParseNot());
}

std::optional<CompareOp> ExpressionParser::TakeCompareOp() {
  static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {{
      {"==", CompareOp::kEq},
      {"!=", CompareOp::kNe},
      {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe},
      {">", CompareOp::kGt},
      {">=", CompareOp::kGe},
  }};
  for (const auto& [text, op] : kOps) {
    if (cursor_.SkipOperator(text)) return op;
  }
  if (cursor_.SkipName("in")) return CompareOp::kIn;
  if (cursor_.AtName("not") && cursor_.Peek(1).kind == TokenKind::kName &&
      cursor_.Peek(1).text == "in") {
    cursor_.Next();
    cursor_.Next();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::ParseCompare() {
  const int line = cursor_.Peek().line;
  ExprPtr first = ParseSum();
  std::optional<CompareOp> op = TakeCompareOp();
  if (!op) return first;
  ExprPtr e = Make(ExprKind::kCompare, line, std::move(first));
  for (; op; op = TakeCompareOp()) {
    e->comparisons.push_back(*op);
    Add(*e, ParseSum());
  }
  return e;
}

// operand (op operand)*, to the left.
ExprPtr ExpressionParser::ParseBinary(OpTable ops, ExprPtr (ExpressionParser::*operand)()) {
  ExprPtr left = (this->*operand)();
  while (cursor_.ok()) {
    const auto it = std::find_if(ops.begin(), ops.end(), [this](const auto& entry) {
      return cursor_.AtOperator(entry.first);
    });
    if (it == ops.end()) break;
    const int line = cursor_.Next().line;
    left = Make(ExprKind::kBinary, line, std::move(left), (this->*operand)());
    left->binary = it->second;
  }
  return left;
}

ExprPtr ExpressionParser::ParseSum() {
  return ParseBinary({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}},
                     &ExpressionParser::ParseConcat);
}

ExprPtr ExpressionParser::ParseConcat() {
  const int line = cursor_.Peek().line;
  ExprPtr first = ParseProduct();
  if (!cursor_.AtOperator("~")) return first;
  ExprPtr e = Make(ExprKind::kConcat, line, std::move(first));
  while (cursor_.SkipOperator("~")) Add(*e, ParseProduct());
  return e;
}

ExprPtr ExpressionParser::ParseProduct() {
  return ParseBinary({{"*", BinaryOp::kMultiply},
                      {"/", BinaryOp::kDivide},
                      {"//", BinaryOp::kFloorDivide},
                      {"%", BinaryOp::kModulo}},
                     &ExpressionParser::ParsePower);
}

ExprPtr ExpressionParser::ParsePower() {
  return ParseBinary({{"**", BinaryOp::kPower}}, &ExpressionParser::ParseUnaryWithFilters);
}

ExprPtr ExpressionParser::ParseUnaryWithFilters() { return ParseFilters(ParseUnary()); }

ExprPtr ExpressionParser::ParseUnary() {
  const TokenCursor::Nested nested(cursor_);
  const int line = cursor_.Peek().line;
  ExprPtr e;
  if (!cursor_.ok()) {
    e = Make(ExprKind::kConstant, line);
  } else if (cursor_.SkipOperator("-")) {
    e = Make(ExprKind::kNegate, line, ParseUnary());
  } else if (cursor_.SkipOperator("+")) {
    e = Make(ExprKind::kPlus, line, ParseUnary());
  } else {
    e = ParsePrimary();
  }
  return ParsePostfix(std::move(e));
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = cursor_.Peek();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName: return ParseNameOrCall();
    case TokenKind::kInteger: return Constant(Value(cursor_.Next().integer), line);
    case TokenKind::kFloat: return Constant(Value(cursor_.Next().number), line);
    case TokenKind::kString: {
      std::string text;
      while (cursor_.Peek().kind == TokenKind::kString) text += cursor_.Next().text;
      return Constant(Value::MakeString(std::move(text)), line);
    }
    default: break;
  }
  if (cursor_.SkipOperator("(")) return ParseParenthesised(line);
  if (cursor_.SkipOperator("[")) return ParseList(line);
  if (cursor_.SkipOperator("{")) return ParseDict(line);
  cursor_.FailSyntax("expected an expression");
  return Make(ExprKind::kConstant, line);
}

ExprPtr ExpressionParser::ParseParenthesised(int line) {
  if (cursor_.SkipOperator(")")) return Make(ExprKind::kTuple, line);
  ExprPtr e = ParseTuple(/*conditional=*/true);
  cursor_.ExpectOperator(")");
  return e;
}

ExprPtr ExpressionParser::ParseList(int line) {
  ExprPtr list = Make(ExprKind::kList, line);
  while (cursor_.ok() && !cursor_.AtOperator("]")) {
    Add(*list, ParseExpression());
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator("]");
  return list;
}

ExprPtr ExpressionParser::ParseDict(int line) {
  ExprPtr dict = Make(ExprKind::kDict, line);
  while (cursor_.ok() && !cursor_.AtOperator("}")) {
    Add(*dict, ParseExpression());
    cursor_.ExpectOperator(":");
    Add(*dict, ParseExpression());
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator("}");
  return dict;
}

ExprPtr ExpressionParser::ParseNameOrCall() {
  const int line = cursor_.Peek().line;
  const std::string name = cursor_.Next().text;
  if (name == "true" || name == "True") return Constant(Value(true), line);
  if (name == "false" || name == "False") return Constant(Value(false), line);
  if (name == "none" || name == "None") return Constant(Value(None{}), line);
  if (IsReserved(name)) {
    cursor_.Fail(InvalidArgumentError("line {}: expected an expression, found '{}'", line, name));
  }
  if (macro_depth_ > 0) {
    if (name == "varargs" || name == "kwargs") cursor_.FailUnknown("variable", name, line);
    caller_used_ = caller_used_ || name == "caller";
  }
  if (cursor_.AtOperator("(")) return ParseFunctionCall(name, line);
  ExprPtr e = Make(ExprKind::kName, line);
  e->name = name;
  return e;
}

ExprPtr ExpressionParser::ParseFunctionCall(const std::string& name, int line) {
  if (name == "namespace") return ParseNamespace(line);
  if (name == "dict") return ParseDictCall(line);
  if (name == "loop") return ParseLoopCall(line);
  if (name == "caller" && macro_depth_ > 0) {
    return ParseMacroCall(ExprKind::kCallerCall, name, line);
  }
  ExprPtr call = Make(ExprKind::kCall, line);
  call->builtin = FindFunction(name);
  if (call->builtin == nullptr) {
    const bool known = std::any_of(macro_calls_.begin(), macro_calls_.end(),
                                   [&name](const auto& other) { return other.first == name; });
    if (!known) macro_calls_.emplace_back(name, line);
    return ParseMacroCall(ExprKind::kMacroCall, name, line);
  }
  Bind(*call, name, ParseArguments());
  return call;
}

ExprPtr ExpressionParser::ParseNamespace(int line) {
  CallArguments arguments = ParseArguments();
  ExprPtr e = Make(ExprKind::kNamespace, line);
  if (!arguments.positional.empty()) {
    cursor_.FailUnknown("positional argument of", "namespace", line);
    return e;
  }
  for (auto& [name, value] : arguments.keywords) {
    e->names.push_back(name);
    Add(*e, std::move(value));
  }
  return e;
}

// dict(name=value, ...)
ExprPtr ExpressionParser::ParseDictCall(int line) {
  CallArguments arguments = ParseArguments();
  ExprPtr e = Make(ExprKind::kDict, line);
  if (!arguments.positional.empty()) {
    cursor_.FailUnknown("positional argument of", "dict", line);
    return e;
  }
  for (auto& [name, value] : arguments.keywords) {
    Add(*e, Constant(Value::MakeString(name), line));
    Add(*e, std::move(value));
  }
  return e;
}

void ExpressionParser::AddArguments(Expr& call, CallArguments arguments) {
  for (ExprPtr& value : arguments.positional) Add(call, std::move(value));
  for (auto& [keyword, value] : arguments.keywords) {
    call.names.push_back(keyword);
    Add(call, std::move(value));
  }
}

ExprPtr ExpressionParser::ParseMacroCall(ExprKind kind, const std::string& name, int line) {
  ExprPtr e = Make(kind, line);
  e->name = name;
  AddArguments(*e, ParseArguments());
  return e;
}

ExprPtr ExpressionParser::ParseMacroCallOnly() {
  const int line = cursor_.Peek().line;
  ExprPtr e = ParseExpression();
  if (cursor_.ok() && e->kind != ExprKind::kMacroCall) {
    cursor_.FailUnknown("call of what is no macro in the tag", "call", line);
  }
  return e;
}

ExprPtr ExpressionParser::ParseLoopCall(int line) {
  CallArguments arguments = ParseArguments();
  ExprPtr e = Make(ExprKind::kLoopCall, line);
  if (!cursor_.ok()) return e;
  if (arguments.positional.size() != 1 || !arguments.keywords.empty()) {
    cursor_.FailSyntax("'loop' takes one argument");
    return e;
  }
  Add(*e, std::move(arguments.positional[0]));
  return e;
}

ExprPtr ExpressionParser::ParseFormat(ExprPtr receiver, int line) {
  ExprPtr e = Make(ExprKind::kFormat, line, std::move(receiver));
  AddArguments(*e, ParseArguments());
  return e;
}

ExprPtr ExpressionParser::MakePercent(ExprPtr subject, CallArguments arguments, int line) {
  ExprPtr text = MakeApplication(ExprKind::kFilter, "string", std::move(subject), {}, line);
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    cursor_.FailUnknown("mixture of arguments with and without names for the filter", "format",
                        line);
  }
  ExprPtr values = Make(arguments.keywords.empty() ? ExprKind::kTuple : ExprKind::kDict, line);
  for (ExprPtr& value : arguments.positional) Add(*values, std::move(value));
  for (auto& [keyword, value] : arguments.keywords) {
    Add(*values, Constant(Value::MakeString(keyword), line));
    Add(*values, std::move(value));
  }
  ExprPtr e = Make(ExprKind::kBinary, line, std::move(text), std::move(values));
  e->binary = BinaryOp::kModulo;
  return e;
}

ExprPtr ExpressionParser::ParseBlockFilters() {
  const int line = cursor_.Peek().line;
  ExprPtr e = Make(ExprKind::kBlockText, line);
  do {
    e = ParseFilter(std::move(e), line);
  } while (cursor_.SkipOperator("|"));
  return e;
}

// ( expression, name = expression, ... )
ExpressionParser::CallArguments ExpressionParser::ParseArguments() {
  CallArguments arguments;
  cursor_.ExpectOperator("(");
  while (cursor_.ok() && !cursor_.AtOperator(")")) {
    if (cursor_.AtOperator("*") || cursor_.AtOperator("**")) {
      cursor_.FailUnknown("argument unpacking", cursor_.Peek().text, cursor_.Peek().line);
      break;
    }
    const bool keyword = cursor_.Peek().kind == TokenKind::kName &&
                         cursor_.Peek(1).kind == TokenKind::kOperator &&
                         cursor_.Peek(1).text == "=";
    if (keyword) {
      std::string name = cursor_.Next().text;
      cursor_.Next();
      arguments.keywords.emplace_back(std::move(name), ParseExpression());
    } else if (arguments.keywords.empty()) {
      arguments.positional.push_back(ParseExpression());
    } else {
      cursor_.FailSyntax("a positional argument after one with a name");
    }
    if (!cursor_.SkipOperator(",")) break;
  }
  cursor_.ExpectOperator(")");
  return arguments;
}

// Puts the arguments in the order of the builtin's parameters behind what `call` already holds.
void ExpressionParser::Bind(Expr& call, std::string_view name, CallArguments arguments) {
  if (!cursor_.ok()) return;
  const Builtin& builtin = *call.builtin;
  const size_t count = builtin.parameter_count();
  const auto error = [&](std::string_view what) {
    cursor_.Fail(InvalidArgumentError("line {}: {} for '{}'", call.line, what, name));
  };
  if (arguments.positional.size() > count) return error("too many arguments");
  std::array<ExprPtr, Builtin::kMaxParameters> slots;
  std::move(arguments.positional.begin(), arguments.positional.end(), slots.begin());
  for (auto& [keyword, value] : arguments.keywords) {
    const auto end = builtin.parameters.begin() + static_cast<ptrdiff_t>(count);
    const auto it = std::find(builtin.parameters.begin(), end, keyword);
    if (it == end) return error(fmt::format("unknown argument '{}'", keyword));
    ExprPtr& slot = slots[static_cast<size_t>(it - builtin.parameters.begin())];
    if (slot) return error(fmt::format("argument '{}' given twice", keyword));
    slot = std::move(value);
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (!slots[i]) return error(fmt::format("argument '{}' missing", builtin.parameters[i]));
  }
  for (size_t i = 0; i < count; ++i) Add(call, std::move(slots[i]));
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr e) {
  while (cursor_.ok()) {
    const int line = cursor_.Peek().line;
    if (cursor_.SkipOperator(".")) {
      e = ParseDot(std::move(e), line);
    } else if (cursor_.SkipOperator("[")) {
      e = ParseSubscript(std::move(e), line);
    } else if (cursor_.AtOperator("(")) {
      cursor_.FailUnknown("call of", "an expression", line);
    } else {
      break;
    }
  }
  return e;
}

ExprPtr ExpressionParser::ParseDot(ExprPtr object, int line) {
  if (cursor_.Peek().kind == TokenKind::kInteger) {
    ExprPtr index = Constant(Value(cursor_.Next().integer), line);
    return Make(ExprKind::kSubscript, line, std::move(object), std::move(index));
  }
  if (cursor_.Peek().kind != TokenKind::kName) {
    cursor_.FailSyntax("expected the name of an attribute");
    return object;
  }
  const std::string name = cursor_.Next().text;
  if (name.starts_with("__")) {
    cursor_.FailUnknown("attribute", name, line);
    return object;
  }
  if (!cursor_.AtOperator("(")) {
    ExprPtr e = Make(ExprKind::kAttribute, line, std::move(object));
    e->name = name;
    return e;
  }
  if (name == "format") return ParseFormat(std::move(object), line);
  ExprPtr call = Make(ExprKind::kMethod, line, std::move(object));
  call->builtin = FindMethod(name);
  if (call->builtin == nullptr) {
    cursor_.FailUnknown("method", name, line);
    return call;
  }
  Bind(*call, name, ParseArguments());
  return call;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr object, int line) {
  ExprPtr start;
  if (!cursor_.AtOperator(":")) {
    start = ParseExpression();
    if (cursor_.SkipOperator("]")) {
      return Make(ExprKind::kSubscript, line, std::move(object), std::move(start));
    }
  }
  cursor_.ExpectOperator(":");
  ExprPtr stop;
  ExprPtr step;
  if (!cursor_.AtOperator(":") && !cursor_.AtOperator("]")) stop = ParseExpression();
  if (cursor_.SkipOperator(":") && !cursor_.AtOperator("]")) step = ParseExpression();
  cursor_.ExpectOperator("]");
  return Make(ExprKind::kSlice, line, std::move(object), std::move(start), std::move(stop),
              std::move(step));
}

// | filter and `is test`, any number of them.
ExprPtr ExpressionParser::ParseFilters(ExprPtr e) {
  while (cursor_.ok()) {
    const int line = cursor_.Peek().line;
    if (cursor_.SkipOperator("|")) {
      e = ParseFilter(std::move(e), line);
    } else if (cursor_.SkipName("is")) {
      e = ParseTest(std::move(e), line);
    } else if (cursor_.AtOperator("(")) {
      cursor_.FailUnknown("call of", "an expression", line);
    } else {
      break;
    }
  }
  return e;
}

ExprPtr ExpressionParser::ParseFilter(ExprPtr subject, int line) {
  if (cursor_.Peek().kind != TokenKind::kName) {
    cursor_.FailSyntax("expected the name of a filter");
    return subject;
  }
  const std::string name = cursor_.Next().text;
  CallArguments arguments;
  if (cursor_.AtOperator("(")) arguments = ParseArguments();
  if (name == "format") return MakePercent(std::move(subject), std::move(arguments), line);
  if (name == "map") return MakeMap(std::move(subject), std::move(arguments), line);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return MakeSelect(name, std::move(subject), std::move(arguments), line);
  }
  return MakeApplication(ExprKind::kFilter, name, std::move(subject), std::move(arguments), line);
}

// A filter or test with its arguments.
ExprPtr ExpressionParser::MakeApplication(ExprKind kind, const std::string& name, ExprPtr subject,
                                          CallArguments arguments, int line) {
  ExprPtr e = Make(kind, line, std::move(subject));
  e->builtin = kind == ExprKind::kFilter ? FindFilter(name) : FindTest(name);
  if (e->builtin == nullptr) {
    cursor_.FailUnknown(kind == ExprKind::kFilter ? "filter" : "test", name, line);
    return e;
  }
  Bind(*e, name, std::move(arguments));
  return e;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr subject, int line) {
  const bool negated = cursor_.SkipName("not");
  if (cursor_.Peek().kind != TokenKind::kName) {
    cursor_.FailSyntax("expected the name of a test");
    return subject;
  }
  const std::string name = cursor_.Next().text;
  CallArguments arguments;
  if (cursor_.AtOperator("(")) {
    arguments = ParseArguments();
  } else if (AtBareArgument()) {
    arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  if (cursor_.AtName("is")) cursor_.FailSyntax("tests cannot be chained with 'is'");
  ExprPtr e =
      MakeApplication(ExprKind::kTest, name, std::move(subject), std::move(arguments), line);
  e->negated = negated;
  return e;
}

// An argument of a test without parentheses: `x is divisibleby 3`.
bool ExpressionParser::AtBareArgument() const {
  const Token& t = cursor_.Peek();
  switch (t.kind) {
    case TokenKind::kName: return t.text == "not" ? false : !IsReserved(t.text);
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat: return true;
    case TokenKind::kOperator: return t.text == "[" || t.text == "{";
    default: return false;
  }
}

// The text of a constant string; none, with an error, for anything else: what a template applies to
// each item must be known when it is loaded.
std::optional<std::string> ExpressionParser::TakeConstantString(const Expr* e,
                                                                std::string_view what, int line) {
  if (e != nullptr && e->kind == ExprKind::kConstant && e->value.is_string())
    return e->value.as_string();
  cursor_.Fail(
      UnimplementedError("line {}: {} that is not a constant string is not supported", line, what));
  return std::nullopt;
}

ExprPtr ExpressionParser::MakeMap(ExprPtr subject, CallArguments arguments, int line) {
  ExprPtr e = Make(ExprKind::kMap, line, std::move(subject));
  if (!cursor_.ok()) return e;
  if (arguments.positional.empty()) {
    for (auto& [keyword, value] : arguments.keywords) {
      if (keyword == "attribute") {
        e->name = TakeConstantString(value.get(), "an attribute of map", line).value_or("");
      } else if (keyword == "default" && e->operands.size() == 1) {
        Add(*e, std::move(value));
      } else {
        cursor_.FailUnknown("argument of map", keyword, line);
      }
    }
    if (cursor_.ok() && e->name.empty()) cursor_.FailSyntax("map needs an attribute or a filter");
    return e;
  }
  const auto name = TakeConstantString(arguments.positional[0].get(), "a filter of map", line);
  if (!name) return e;
  arguments.positional.erase(arguments.positional.begin());
  SetInner(*e, MakeApplication(ExprKind::kFilter, *name, nullptr, std::move(arguments), line));
  return e;
}

ExprPtr ExpressionParser::MakeSelect(const std::string& filter, ExprPtr subject,
                                     CallArguments arguments, int line) {
  ExprPtr e = Make(ExprKind::kSelect, line, std::move(subject));
  e->negated = filter.starts_with("reject");
  if (!cursor_.ok()) return e;
  auto& positional = arguments.positional;
  if (filter.ends_with("attr")) {
    if (positional.empty()) {
      cursor_.FailSyntax(fmt::format("{} needs an attribute", filter));
      return e;
    }
    e->name =
        TakeConstantString(positional[0].get(), "an attribute of " + filter, line).value_or("");
    positional.erase(positional.begin());
    if (cursor_.ok() && e->name.empty()) cursor_.FailSyntax("an attribute's name is empty");
  }
  if (!cursor_.ok() || (positional.empty() && arguments.keywords.empty())) return e;
  const auto test = TakeConstantString(positional.empty() ? nullptr : positional[0].get(),
                                       "a test of " + filter, line);
  if (!test) return e;
  positional.erase(positional.begin());
  SetInner(*e, MakeApplication(ExprKind::kTest, *test, nullptr, std::move(arguments), line));
  return e;
}

void ExpressionParser::SetInner(Expr& e, ExprPtr inner) {
  e.height = std::max(e.height, inner->height + 1);
  cursor_.CheckHeight(e.height, e.line);
  e.inner = std::move(inner);
}

}  // namespace tandem::jinja
