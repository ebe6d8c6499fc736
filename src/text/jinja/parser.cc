#include "text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "text/jinja/lexer.h"

namespace tandem::jinja {
namespace {

constexpr std::array<std::string_view, 9> kReserved = {"and", "or",   "not",  "in", "is",
                                                       "if",  "else", "elif", "for"};

bool IsReserved(std::string_view name) {
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

// Arguments of a call as written.
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

// After the first error the cursor stands on the last token, which ends every loop.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Block> Run() {
    Block block = ParseBlock({});
    if (!status_.ok()) return status_;
    return block;
  }

 private:
  // --- cursor ---

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
  }
  const Token& Next() {
    const Token& token = Peek();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  bool AtOperator(std::string_view op) const {
    return Peek().kind == TokenKind::kOperator && Peek().text == op;
  }
  bool AtName(std::string_view name) const {
    return Peek().kind == TokenKind::kName && Peek().text == name;
  }
  bool SkipOperator(std::string_view op) {
    if (!AtOperator(op)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!AtName(name)) return false;
    Next();
    return true;
  }
  void ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) FailSyntax(fmt::format("expected '{}'", op));
  }
  void ExpectBlockEnd() {
    if (Peek().kind != TokenKind::kBlockEnd) return FailSyntax("expected the end of the tag");
    Next();
  }

  void Fail(const Status& status) {
    if (status_.ok()) status_ = status;
    pos_ = tokens_.size() - 1;
  }
  std::string Found() const {
    const Token& t = Peek();
    switch (t.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kData:
        return "text";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kPrintBegin:
        return "'{{'";
      case TokenKind::kPrintEnd:
        return "'}}'";
      case TokenKind::kString:
        return "a string";
      default:
        return fmt::format("'{}'", t.text.substr(0, 64));
    }
  }
  void FailSyntax(std::string_view what) {
    Fail(InvalidArgumentError("line {}: {}, found {}", Peek().line, what, Found()));
  }
  void FailUnknown(std::string_view what, std::string_view name, int line) {
    Fail(UnimplementedError("line {}: the {} '{}' is not supported", line, what,
                            name.substr(0, 64)));
  }

  // --- tree building ---

  ExprPtr Make(ExprKind kind, int line) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    return e;
  }
  void CheckHeight(int height, int line) {
    if (height > kMaxTreeHeight) {
      Fail(OutOfRangeError("line {}: the template nests deeper than {} levels", line,
                           kMaxTreeHeight));
    }
  }
  void Add(Expr& parent, ExprPtr child) {
    if (child) {
      parent.height = std::max(parent.height, child->height + 1);
      CheckHeight(parent.height, parent.line);
    }
    parent.operands.push_back(std::move(child));
  }
  template <typename... Children>
  ExprPtr Make(ExprKind kind, int line, Children... children) {
    ExprPtr e = Make(kind, line);
    (Add(*e, std::move(children)), ...);
    return e;
  }
  ExprPtr Constant(Value value, int line) {
    ExprPtr e = Make(ExprKind::kConstant, line);
    e->value = std::move(value);
    return e;
  }

  // Bounds the parser's own recursion; every cycle of its grammar passes through one of these.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      parser_.CheckHeight(++parser_.depth_, parser_.Peek().line);
    }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // --- statements ---

  // Statements up to a tag named in `ends`, whose name is left at the cursor; with no ends, to the end of
  // the template.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Block block;
    while (status_.ok()) {
      const Token& token = Peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0) FailSyntax(fmt::format("expected '{}'", *(ends.end() - 1)));
        break;
      }
      if (token.kind == TokenKind::kData) {
        auto stmt = MakeStmt(StmtKind::kText);
        stmt->text = Next().text;
        block.push_back(std::move(stmt));
      } else if (token.kind == TokenKind::kPrintBegin) {
        Next();
        auto stmt = MakeStmt(StmtKind::kPrint);
        stmt->expr = ParseTuple(/*conditional=*/true);
        if (Peek().kind != TokenKind::kPrintEnd) FailSyntax("expected '}}'");
        Next();
        block.push_back(std::move(stmt));
      } else {
        Next();  // kBlockBegin: the lexer makes nothing else outside of tags
        if (Peek().kind != TokenKind::kName) {
          FailSyntax("expected the name of a tag");
          break;
        }
        if (std::find(ends.begin(), ends.end(), Peek().text) != ends.end()) return block;
        ParseTag(block);
      }
    }
    return block;
  }

  StmtPtr MakeStmt(StmtKind kind) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = Peek().line;
    return stmt;
  }

  void ParseTag(Block& block) {
    const int line = Peek().line;
    const std::string name = Next().text;
    if (name == "for") {
      block.push_back(ParseFor());
    } else if (name == "if") {
      block.push_back(ParseIf());
    } else if (name == "set") {
      block.push_back(ParseSet());
    } else if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) return FailSyntax(fmt::format("'{}' outside of a loop", name));
      block.push_back(MakeStmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue));
      ExpectBlockEnd();
    } else if (name == "generation") {
      // Marks the assistant's words for training; for a prompt it is transparent.
      ExpectBlockEnd();
      Block body = ParseBlock({"endgeneration"});
      Next();
      ExpectBlockEnd();
      std::move(body.begin(), body.end(), std::back_inserter(block));
    } else {
      FailUnknown("tag", name, line);
    }
  }

  StmtPtr ParseFor() {
    auto stmt = MakeStmt(StmtKind::kFor);
    stmt->target = ParseTarget(/*allow_attribute=*/false);
    if (!SkipName("in")) FailSyntax("expected 'in'");
    stmt->expr = ParseTuple(/*conditional=*/false);
    if (SkipName("if")) stmt->filter = ParseExpression();
    if (AtName("recursive")) FailUnknown("loop modifier", "recursive", stmt->line);
    ExpectBlockEnd();
    ++loop_depth_;
    stmt->body = ParseBlock({"else", "endfor"});
    --loop_depth_;
    if (Next().text == "else") {
      ExpectBlockEnd();
      stmt->otherwise = ParseBlock({"endfor"});
      Next();
    }
    ExpectBlockEnd();
    return stmt;
  }

  StmtPtr ParseIf() {
    auto stmt = MakeStmt(StmtKind::kIf);
    while (status_.ok()) {
      ExprPtr condition = ParseTuple(/*conditional=*/false);
      ExpectBlockEnd();
      Block body = ParseBlock({"elif", "else", "endif"});
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      const std::string end = Next().text;
      if (end == "elif") continue;
      if (end == "else") {
        ExpectBlockEnd();
        stmt->otherwise = ParseBlock({"endif"});
        Next();
      }
      ExpectBlockEnd();
      break;
    }
    return stmt;
  }

  StmtPtr ParseSet() {
    auto stmt = MakeStmt(StmtKind::kSet);
    stmt->target = ParseTarget(/*allow_attribute=*/true);
    if (SkipOperator("=")) {
      stmt->expr = ParseTuple(/*conditional=*/true);
      ExpectBlockEnd();
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (AtOperator("|")) FailUnknown("filter on a block", "set", stmt->line);
    ExpectBlockEnd();
    // A loop outside cannot be left from inside a block whose text is being collected.
    const int outer_loops = std::exchange(loop_depth_, 0);
    stmt->body = ParseBlock({"endset"});
    loop_depth_ = outer_loops;
    Next();
    ExpectBlockEnd();
    return stmt;
  }

  Target ParseTarget(bool allow_attribute) {
    Target first = ParseTargetItem(allow_attribute);
    if (!AtOperator(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    while (SkipOperator(",")) {
      if (AtName("in") || AtOperator("=") || AtOperator(")")) break;
      all.parts.push_back(ParseTargetItem(allow_attribute));
    }
    return all;
  }

  Target ParseTargetItem(bool allow_attribute) {
    const Nested nested(*this);
    Target target;
    if (!status_.ok()) return target;
    if (SkipOperator("(")) {
      target = ParseTarget(allow_attribute);
      ExpectOperator(")");
      return target;
    }
    const Token& token = Peek();
    if (token.kind != TokenKind::kName || IsReserved(token.text)) {
      FailSyntax("expected a name to assign to");
      return target;
    }
    target.name = Next().text;
    if (target.name == "true" || target.name == "false" || target.name == "none" ||
        target.name == "True" || target.name == "False" || target.name == "None" ||
        (target.name == "loop" && !allow_attribute)) {
      Fail(InvalidArgumentError("line {}: cannot assign to '{}'", Peek().line, target.name));
    }
    if (allow_attribute && SkipOperator(".")) {
      if (Peek().kind != TokenKind::kName) FailSyntax("expected the name of an attribute");
      target.attribute = Next().text;
    }
    return target;
  }

  // --- expressions, loosest first ---

  // One expression, or several with commas, which make a tuple.
  ExprPtr ParseTuple(bool conditional) {
    const int line = Peek().line;
    ExprPtr first = conditional ? ParseExpression() : ParseOr();
    if (!AtOperator(",")) return first;
    ExprPtr tuple = Make(ExprKind::kTuple, line);
    Add(*tuple, std::move(first));
    while (SkipOperator(",")) {
      if (AtTupleEnd()) break;
      Add(*tuple, conditional ? ParseExpression() : ParseOr());
    }
    return tuple;
  }
  bool AtTupleEnd() const {
    const TokenKind kind = Peek().kind;
    return kind == TokenKind::kBlockEnd || kind == TokenKind::kPrintEnd ||
           kind == TokenKind::kEnd || AtOperator(")");
  }

  ExprPtr ParseExpression() {
    const Nested nested(*this);
    ExprPtr e = ParseOr();
    while (AtName("if")) {
      const int line = Next().line;
      ExprPtr condition = ParseOr();
      ExprPtr otherwise;
      if (SkipName("else")) otherwise = ParseExpression();
      e = Make(ExprKind::kConditional, line, std::move(condition), std::move(e),
               std::move(otherwise));
    }
    return e;
  }

  ExprPtr ParseOr() {
    ExprPtr left = ParseAnd();
    while (AtName("or")) {
      const int line = Next().line;
      left = Make(ExprKind::kOr, line, std::move(left), ParseAnd());
    }
    return left;
  }

  ExprPtr ParseAnd() {
    ExprPtr left = ParseNot();
    while (AtName("and")) {
      const int line = Next().line;
      left = Make(ExprKind::kAnd, line, std::move(left), ParseNot());
    }
    return left;
  }

  ExprPtr ParseNot() {
    const Nested nested(*this);
    if (!status_.ok() || !AtName("not")) return ParseCompare();
    const int line = Next().line;
    return Make(ExprKind::kNot, line, ParseNot());
  }

  std::optional<CompareOp> TakeCompareOp() {
    static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {{
        {"==", CompareOp::kEq},
        {"!=", CompareOp::kNe},
        {"<", CompareOp::kLt},
        {"<=", CompareOp::kLe},
        {">", CompareOp::kGt},
        {">=", CompareOp::kGe},
    }};
    for (const auto& [text, op] : kOps) {
      if (SkipOperator(text)) return op;
    }
    if (SkipName("in")) return CompareOp::kIn;
    if (AtName("not") && Peek(1).kind == TokenKind::kName && Peek(1).text == "in") {
      Next();
      Next();
      return CompareOp::kNotIn;
    }
    return std::nullopt;
  }

  ExprPtr ParseCompare() {
    const int line = Peek().line;
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

  using OpTable = std::initializer_list<std::pair<std::string_view, BinaryOp>>;

  // operand (op operand)*, to the left.
  ExprPtr ParseBinary(OpTable ops, ExprPtr (Parser::*operand)()) {
    ExprPtr left = (this->*operand)();
    while (status_.ok()) {
      const auto it = std::find_if(ops.begin(), ops.end(),
                                   [this](const auto& entry) { return AtOperator(entry.first); });
      if (it == ops.end()) break;
      const int line = Next().line;
      left = Make(ExprKind::kBinary, line, std::move(left), (this->*operand)());
      left->binary = it->second;
    }
    return left;
  }

  ExprPtr ParseSum() {
    return ParseBinary({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}}, &Parser::ParseConcat);
  }

  ExprPtr ParseConcat() {
    const int line = Peek().line;
    ExprPtr first = ParseProduct();
    if (!AtOperator("~")) return first;
    ExprPtr e = Make(ExprKind::kConcat, line, std::move(first));
    while (SkipOperator("~")) Add(*e, ParseProduct());
    return e;
  }

  ExprPtr ParseProduct() {
    return ParseBinary({{"*", BinaryOp::kMultiply},
                        {"/", BinaryOp::kDivide},
                        {"//", BinaryOp::kFloorDivide},
                        {"%", BinaryOp::kModulo}},
                       &Parser::ParsePower);
  }

  ExprPtr ParsePower() {
    return ParseBinary({{"**", BinaryOp::kPower}}, &Parser::ParseUnaryWithFilters);
  }
  ExprPtr ParseUnaryWithFilters() { return ParseFilters(ParseUnary()); }

  ExprPtr ParseUnary() {
    const Nested nested(*this);
    const int line = Peek().line;
    ExprPtr e;
    if (!status_.ok()) {
      e = Make(ExprKind::kConstant, line);
    } else if (SkipOperator("-")) {
      e = Make(ExprKind::kNegate, line, ParseUnary());
    } else if (SkipOperator("+")) {
      e = Make(ExprKind::kPlus, line, ParseUnary());
    } else {
      e = ParsePrimary();
    }
    return ParsePostfix(std::move(e));
  }

  ExprPtr ParsePrimary() {
    const Token& token = Peek();
    const int line = token.line;
    switch (token.kind) {
      case TokenKind::kName:
        return ParseNameOrCall();
      case TokenKind::kInteger:
        return Constant(Value(Next().integer), line);
      case TokenKind::kFloat:
        return Constant(Value(Next().number), line);
      case TokenKind::kString: {
        std::string text;
        while (Peek().kind == TokenKind::kString) text += Next().text;
        return Constant(Value::MakeString(std::move(text)), line);
      }
      default:
        break;
    }
    if (SkipOperator("(")) return ParseParenthesised(line);
    if (SkipOperator("[")) return ParseList(line);
    if (SkipOperator("{")) return ParseDict(line);
    FailSyntax("expected an expression");
    return Make(ExprKind::kConstant, line);
  }

  ExprPtr ParseParenthesised(int line) {
    if (SkipOperator(")")) return Make(ExprKind::kTuple, line);
    ExprPtr e = ParseTuple(/*conditional=*/true);
    ExpectOperator(")");
    return e;
  }

  ExprPtr ParseList(int line) {
    ExprPtr list = Make(ExprKind::kList, line);
    while (status_.ok() && !AtOperator("]")) {
      Add(*list, ParseExpression());
      if (!SkipOperator(",")) break;
    }
    ExpectOperator("]");
    return list;
  }

  ExprPtr ParseDict(int line) {
    ExprPtr dict = Make(ExprKind::kDict, line);
    while (status_.ok() && !AtOperator("}")) {
      Add(*dict, ParseExpression());
      ExpectOperator(":");
      Add(*dict, ParseExpression());
      if (!SkipOperator(",")) break;
    }
    ExpectOperator("}");
    return dict;
  }

  ExprPtr ParseNameOrCall() {
    const int line = Peek().line;
    const std::string name = Next().text;
    if (name == "true" || name == "True") return Constant(Value(true), line);
    if (name == "false" || name == "False") return Constant(Value(false), line);
    if (name == "none" || name == "None") return Constant(Value(None{}), line);
    if (IsReserved(name)) {
      Fail(InvalidArgumentError("line {}: expected an expression, found '{}'", line, name));
    }
    if (AtOperator("(")) return ParseFunctionCall(name, line);
    ExprPtr e = Make(ExprKind::kName, line);
    e->name = name;
    return e;
  }

  ExprPtr ParseFunctionCall(const std::string& name, int line) {
    if (name == "namespace") return ParseNamespace(line);
    ExprPtr call = Make(ExprKind::kCall, line);
    call->builtin = FindFunction(name);
    if (call->builtin == nullptr) {
      FailUnknown("function", name, line);
      return call;
    }
    Bind(*call, name, ParseArguments());
    return call;
  }

  ExprPtr ParseNamespace(int line) {
    CallArguments arguments = ParseArguments();
    ExprPtr e = Make(ExprKind::kNamespace, line);
    if (!arguments.positional.empty()) {
      FailUnknown("positional argument of", "namespace", line);
      return e;
    }
    for (auto& [name, value] : arguments.keywords) {
      e->names.push_back(name);
      Add(*e, std::move(value));
    }
    return e;
  }

  // ( expression, name = expression, ... )
  CallArguments ParseArguments() {
    CallArguments arguments;
    ExpectOperator("(");
    while (status_.ok() && !AtOperator(")")) {
      if (AtOperator("*") || AtOperator("**")) {
        FailUnknown("argument unpacking", Peek().text, Peek().line);
        break;
      }
      const bool keyword = Peek().kind == TokenKind::kName &&
                           Peek(1).kind == TokenKind::kOperator && Peek(1).text == "=";
      if (keyword) {
        std::string name = Next().text;
        Next();
        arguments.keywords.emplace_back(std::move(name), ParseExpression());
      } else if (arguments.keywords.empty()) {
        arguments.positional.push_back(ParseExpression());
      } else {
        FailSyntax("a positional argument after one with a name");
      }
      if (!SkipOperator(",")) break;
    }
    ExpectOperator(")");
    return arguments;
  }

  // Puts the arguments in the order of the builtin's parameters behind what `call` already holds.
  void Bind(Expr& call, std::string_view name, CallArguments arguments) {
    if (!status_.ok()) return;
    const Builtin& builtin = *call.builtin;
    const size_t count = builtin.parameter_count();
    const auto error = [&](std::string_view what) {
      Fail(InvalidArgumentError("line {}: {} for '{}'", call.line, what, name));
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

  ExprPtr ParsePostfix(ExprPtr e) {
    while (status_.ok()) {
      const int line = Peek().line;
      if (SkipOperator(".")) {
        e = ParseDot(std::move(e), line);
      } else if (SkipOperator("[")) {
        e = ParseSubscript(std::move(e), line);
      } else if (AtOperator("(")) {
        FailUnknown("call of", "an expression", line);
      } else {
        break;
      }
    }
    return e;
  }

  ExprPtr ParseDot(ExprPtr object, int line) {
    if (Peek().kind == TokenKind::kInteger) {
      ExprPtr index = Constant(Value(Next().integer), line);
      return Make(ExprKind::kSubscript, line, std::move(object), std::move(index));
    }
    if (Peek().kind != TokenKind::kName) {
      FailSyntax("expected the name of an attribute");
      return object;
    }
    const std::string name = Next().text;
    if (name.starts_with("__")) {
      FailUnknown("attribute", name, line);
      return object;
    }
    if (!AtOperator("(")) {
      ExprPtr e = Make(ExprKind::kAttribute, line, std::move(object));
      e->name = name;
      return e;
    }
    ExprPtr call = Make(ExprKind::kMethod, line, std::move(object));
    call->builtin = FindMethod(name);
    if (call->builtin == nullptr) {
      FailUnknown("method", name, line);
      return call;
    }
    Bind(*call, name, ParseArguments());
    return call;
  }

  ExprPtr ParseSubscript(ExprPtr object, int line) {
    ExprPtr start;
    if (!AtOperator(":")) {
      start = ParseExpression();
      if (SkipOperator("]")) {
        return Make(ExprKind::kSubscript, line, std::move(object), std::move(start));
      }
    }
    ExpectOperator(":");
    ExprPtr stop;
    ExprPtr step;
    if (!AtOperator(":") && !AtOperator("]")) stop = ParseExpression();
    if (SkipOperator(":") && !AtOperator("]")) step = ParseExpression();
    ExpectOperator("]");
    return Make(ExprKind::kSlice, line, std::move(object), std::move(start), std::move(stop),
                std::move(step));
  }

  // | filter and `is test`, any number of them.
  ExprPtr ParseFilters(ExprPtr e) {
    while (status_.ok()) {
      const int line = Peek().line;
      if (SkipOperator("|")) {
        e = ParseFilter(std::move(e), line);
      } else if (SkipName("is")) {
        e = ParseTest(std::move(e), line);
      } else if (AtOperator("(")) {
        FailUnknown("call of", "an expression", line);
      } else {
        break;
      }
    }
    return e;
  }

  ExprPtr ParseFilter(ExprPtr subject, int line) {
    if (Peek().kind != TokenKind::kName) {
      FailSyntax("expected the name of a filter");
      return subject;
    }
    const std::string name = Next().text;
    CallArguments arguments;
    if (AtOperator("(")) arguments = ParseArguments();
    if (name == "map") return MakeMap(std::move(subject), std::move(arguments), line);
    if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
      return MakeSelect(name, std::move(subject), std::move(arguments), line);
    }
    return MakeApplication(ExprKind::kFilter, name, std::move(subject), std::move(arguments), line);
  }

  // A filter or test with its arguments.
  ExprPtr MakeApplication(ExprKind kind, const std::string& name, ExprPtr subject,
                          CallArguments arguments, int line) {
    ExprPtr e = Make(kind, line, std::move(subject));
    e->builtin = kind == ExprKind::kFilter ? FindFilter(name) : FindTest(name);
    if (e->builtin == nullptr) {
      FailUnknown(kind == ExprKind::kFilter ? "filter" : "test", name, line);
      return e;
    }
    Bind(*e, name, std::move(arguments));
    return e;
  }

  ExprPtr ParseTest(ExprPtr subject, int line) {
    const bool negated = SkipName("not");
    if (Peek().kind != TokenKind::kName) {
      FailSyntax("expected the name of a test");
      return subject;
    }
    const std::string name = Next().text;
    CallArguments arguments;
    if (AtOperator("(")) {
      arguments = ParseArguments();
    } else if (AtBareArgument()) {
      arguments.positional.push_back(ParsePostfix(ParsePrimary()));
    }
    if (AtName("is")) FailSyntax("tests cannot be chained with 'is'");
    ExprPtr e =
        MakeApplication(ExprKind::kTest, name, std::move(subject), std::move(arguments), line);
    e->negated = negated;
    return e;
  }

  // An argument of a test without parentheses: `x is divisibleby 3`.
  bool AtBareArgument() const {
    const Token& t = Peek();
    switch (t.kind) {
      case TokenKind::kName:
        return t.text == "not" ? false : !IsReserved(t.text);
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      case TokenKind::kOperator:
        return t.text == "[" || t.text == "{";
      default:
        return false;
    }
  }

  // The text of a constant string; none, with an error, for anything else: what a template applies to each
  // item must be known when it is loaded.
  std::optional<std::string> TakeConstantString(const Expr* e, std::string_view what, int line) {
    if (e != nullptr && e->kind == ExprKind::kConstant && e->value.is_string())
      return e->value.as_string();
    Fail(UnimplementedError("line {}: {} that is not a constant string is not supported", line,
                            what));
    return std::nullopt;
  }

  ExprPtr MakeMap(ExprPtr subject, CallArguments arguments, int line) {
    ExprPtr e = Make(ExprKind::kMap, line, std::move(subject));
    if (!status_.ok()) return e;
    if (arguments.positional.empty()) {
      for (auto& [keyword, value] : arguments.keywords) {
        if (keyword == "attribute") {
          e->name = TakeConstantString(value.get(), "an attribute of map", line).value_or("");
        } else if (keyword == "default" && e->operands.size() == 1) {
          Add(*e, std::move(value));
        } else {
          FailUnknown("argument of map", keyword, line);
        }
      }
      if (status_.ok() && e->name.empty()) FailSyntax("map needs an attribute or a filter");
      return e;
    }
    const auto name = TakeConstantString(arguments.positional[0].get(), "a filter of map", line);
    if (!name) return e;
    arguments.positional.erase(arguments.positional.begin());
    SetInner(*e, MakeApplication(ExprKind::kFilter, *name, nullptr, std::move(arguments), line));
    return e;
  }

  ExprPtr MakeSelect(const std::string& filter, ExprPtr subject, CallArguments arguments,
                     int line) {
    ExprPtr e = Make(ExprKind::kSelect, line, std::move(subject));
    e->negated = filter.starts_with("reject");
    if (!status_.ok()) return e;
    auto& positional = arguments.positional;
    if (filter.ends_with("attr")) {
      if (positional.empty()) {
        FailSyntax(fmt::format("{} needs an attribute", filter));
        return e;
      }
      e->name =
          TakeConstantString(positional[0].get(), "an attribute of " + filter, line).value_or("");
      positional.erase(positional.begin());
      if (status_.ok() && e->name.empty()) FailSyntax("an attribute's name is empty");
    }
    if (!status_.ok() || (positional.empty() && arguments.keywords.empty())) return e;
    const auto test = TakeConstantString(positional.empty() ? nullptr : positional[0].get(),
                                         "a test of " + filter, line);
    if (!test) return e;
    positional.erase(positional.begin());
    SetInner(*e, MakeApplication(ExprKind::kTest, *test, nullptr, std::move(arguments), line));
    return e;
  }

  void SetInner(Expr& e, ExprPtr inner) {
    e.height = std::max(e.height, inner->height + 1);
    CheckHeight(e.height, e.line);
    e.inner = std::move(inner);
  }

  const std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  Status status_;
};

}  // namespace

Result<Block> Parse(std::string_view source) {
  Result<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens.ok()) return tokens.status();
  return Parser(std::move(*tokens)).Run();
}

}  // namespace tandem::jinja
