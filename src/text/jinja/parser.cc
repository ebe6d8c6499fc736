#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "text/jinja/cursor.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"

namespace tandem::jinja {
namespace {

class Parser {
 public:
  explicit Parser(TokenCursor& cursor) : cursor_(cursor), expressions_(cursor) {}

  Block Run() {
    Block block = ParseBlock({});
    for (const auto& [name, line] : expressions_.macro_calls()) {
      if (std::find(macros_.begin(), macros_.end(), name) == macros_.end()) {
        cursor_.FailUnknown("function", name, line);
      }
    }
    return block;
  }

 private:
  // Statements up to a tag named in `ends`, whose name is left at the cursor; with no ends, to the
  // end of the template.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    const TokenCursor::Nested nested(cursor_);
    Block block;
    while (cursor_.ok()) {
      const Token& token = cursor_.Peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0) cursor_.FailSyntax(fmt::format("expected '{}'", *(ends.end() - 1)));
        break;
      }
      if (token.kind == TokenKind::kData) {
        auto stmt = MakeStmt(StmtKind::kText);
        stmt->text = cursor_.Next().text;
        block.push_back(std::move(stmt));
      } else if (token.kind == TokenKind::kPrintBegin) {
        cursor_.Next();
        auto stmt = MakeStmt(StmtKind::kPrint);
        stmt->expr = expressions_.ParseTuple(/*conditional=*/true);
        if (cursor_.Peek().kind != TokenKind::kPrintEnd) cursor_.FailSyntax("expected '}}'");
        cursor_.Next();
        block.push_back(std::move(stmt));
      } else {
        cursor_.Next();  // kBlockBegin: the lexer makes nothing else outside of tags
        if (cursor_.Peek().kind != TokenKind::kName) {
          cursor_.FailSyntax("expected the name of a tag");
          break;
        }
        if (std::find(ends.begin(), ends.end(), cursor_.Peek().text) != ends.end()) return block;
        ParseTag(block);
      }
    }
    return block;
  }

  StmtPtr MakeStmt(StmtKind kind) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = cursor_.Peek().line;
    return stmt;
  }

  void ParseTag(Block& block) {
    const int line = cursor_.Peek().line;
    const std::string name = cursor_.Next().text;
    if (name == "for") {
      block.push_back(ParseFor());
    } else if (name == "if") {
      block.push_back(ParseIf());
    } else if (name == "set") {
      block.push_back(ParseSet());
    } else if (name == "macro") {
      block.push_back(ParseMacro());
    } else if (name == "call") {
      block.push_back(ParseCall());
    } else if (name == "filter") {
      block.push_back(ParseFilter());
    } else if (name == "with") {
      block.push_back(ParseWith());
    } else if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) return cursor_.FailSyntax(fmt::format("'{}' outside of a loop", name));
      block.push_back(MakeStmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue));
      cursor_.ExpectBlockEnd();
    } else if (name == "generation") {
      // Marks the assistant's words for training; for a prompt it is transparent.
      cursor_.ExpectBlockEnd();
      Block body = ParseBlock({"endgeneration"});
      cursor_.Next();
      cursor_.ExpectBlockEnd();
      std::move(body.begin(), body.end(), std::back_inserter(block));
    } else if (name.starts_with("end") || name == "else" || name == "elif") {
      cursor_.Fail(InvalidArgumentError("line {}: '{}' without its beginning", line, name));
    } else {
      cursor_.FailUnknown("tag", name, line);
    }
  }

  StmtPtr ParseFor() {
    auto stmt = MakeStmt(StmtKind::kFor);
    stmt->target = ParseTarget(/*allow_attribute=*/false);
    if (!cursor_.SkipName("in")) cursor_.FailSyntax("expected 'in'");
    stmt->expr = expressions_.ParseTuple(/*conditional=*/false);
    if (cursor_.SkipName("if")) stmt->filter = expressions_.ParseExpression();
    stmt->recursive = cursor_.SkipName("recursive");
    cursor_.ExpectBlockEnd();
    ++loop_depth_;
    ++scope_depth_;
    stmt->body = ParseBlock({"else", "endfor"});
    --scope_depth_;
    --loop_depth_;
    if (cursor_.Next().text == "else") {
      cursor_.ExpectBlockEnd();
      stmt->otherwise = ParseBlock({"endfor"});
      cursor_.Next();
    }
    cursor_.ExpectBlockEnd();
    return stmt;
  }

  StmtPtr ParseIf() {
    auto stmt = MakeStmt(StmtKind::kIf);
    while (cursor_.ok()) {
      ExprPtr condition = expressions_.ParseTuple(/*conditional=*/false);
      cursor_.ExpectBlockEnd();
      Block body = ParseBlock({"elif", "else", "endif"});
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      const std::string end = cursor_.Next().text;
      if (end == "elif") continue;
      if (end == "else") {
        cursor_.ExpectBlockEnd();
        stmt->otherwise = ParseBlock({"endif"});
        cursor_.Next();
      }
      cursor_.ExpectBlockEnd();
      break;
    }
    return stmt;
  }

  StmtPtr ParseSet() {
    auto stmt = MakeStmt(StmtKind::kSet);
    stmt->target = ParseTarget(/*allow_attribute=*/true);
    if (cursor_.SkipOperator("=")) {
      stmt->expr = expressions_.ParseTuple(/*conditional=*/true);
      cursor_.ExpectBlockEnd();
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (cursor_.SkipOperator("|")) stmt->expr = expressions_.ParseBlockFilters();
    stmt->body = ParseCollectedBlock("endset");
    return stmt;
  }

  // The rest of a tag, a block whose text is collected, and the tag that ends it. A loop outside
  // cannot be left from inside.
  Block ParseCollectedBlock(std::string_view end) {
    cursor_.ExpectBlockEnd();
    const int outer_loops = std::exchange(loop_depth_, 0);
    ++scope_depth_;
    Block body = ParseBlock({end});
    --scope_depth_;
    loop_depth_ = outer_loops;
    cursor_.Next();
    cursor_.ExpectBlockEnd();
    return body;
  }

  // {% filter name(...) | name ... %}
  StmtPtr ParseFilter() {
    auto stmt = MakeStmt(StmtKind::kFilter);
    stmt->expr = expressions_.ParseBlockFilters();
    stmt->body = ParseCollectedBlock("endfilter");
    return stmt;
  }

  // {% call macro(...) %} or {% call(parameter, ...) macro(...) %}
  StmtPtr ParseCall() {
    auto stmt = MakeStmt(StmtKind::kCall);
    if (cursor_.AtOperator("(")) ParseParameters(*stmt);
    stmt->expr = expressions_.ParseMacroCallOnly();
    stmt->body = ParseCollectedBlock("endcall");
    return stmt;
  }

  // {% with name = value, ... %}
  StmtPtr ParseWith() {
    auto stmt = MakeStmt(StmtKind::kWith);
    while (cursor_.ok() && cursor_.Peek().kind != TokenKind::kBlockEnd) {
      if (!stmt->defaults.empty()) cursor_.ExpectOperator(",");
      stmt->target.parts.push_back(ParseTarget(/*allow_attribute=*/false));
      cursor_.ExpectOperator("=");
      stmt->defaults.push_back(expressions_.ParseExpression());
    }
    cursor_.ExpectBlockEnd();
    ++scope_depth_;
    stmt->body = ParseBlock({"endwith"});
    --scope_depth_;
    cursor_.Next();
    cursor_.ExpectBlockEnd();
    return stmt;
  }

  // {% macro name(parameter, parameter = default, ...) %}
  StmtPtr ParseMacro() {
    auto stmt = MakeStmt(StmtKind::kMacro);
    if (scope_depth_ > 0) cursor_.FailUnknown("tag inside of a loop or block", "macro", stmt->line);
    const Token& name = cursor_.Next();
    if (name.kind != TokenKind::kName || IsReserved(name.text)) {
      cursor_.FailSyntax("expected the name of a macro");
    }
    stmt->target.name = name.text;
    if (name.text == "namespace" || name.text == "dict" || name.text == "loop" ||
        name.text == "caller" || FindFunction(name.text) != nullptr) {
      cursor_.FailUnknown("macro with the name of a function", name.text, stmt->line);
    }
    macros_.push_back(name.text);
    const ExpressionParser::InMacro in_macro(expressions_);
    ParseParameters(*stmt);
    stmt->body = ParseCollectedBlock("endmacro");
    stmt->uses_caller = in_macro.caller_used();
    return stmt;
  }

  // (parameter, parameter = default, ...)
  void ParseParameters(Stmt& stmt) {
    cursor_.ExpectOperator("(");
    while (cursor_.ok() && !cursor_.AtOperator(")")) {
      stmt.parameters.push_back(ParseTargetItem(/*allow_attribute=*/false).name);
      if (stmt.parameters.back() == "caller") {
        cursor_.FailUnknown("parameter", "caller", stmt.line);
      }
      ExprPtr fallback;
      if (cursor_.SkipOperator("=")) {
        fallback = expressions_.ParseExpression();
      } else if (!stmt.defaults.empty() && stmt.defaults.back() != nullptr) {
        cursor_.FailSyntax("expected a default, as the parameter before has one");
      }
      stmt.defaults.push_back(std::move(fallback));
      if (!cursor_.SkipOperator(",")) break;
    }
    cursor_.ExpectOperator(")");
  }

  Target ParseTarget(bool allow_attribute) {
    Target first = ParseTargetItem(allow_attribute);
    if (!cursor_.AtOperator(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    while (cursor_.SkipOperator(",")) {
      if (cursor_.AtName("in") || cursor_.AtOperator("=") || cursor_.AtOperator(")")) break;
      all.parts.push_back(ParseTargetItem(allow_attribute));
    }
    return all;
  }

  Target ParseTargetItem(bool allow_attribute) {
    const TokenCursor::Nested nested(cursor_);
    Target target;
    if (!cursor_.ok()) return target;
    if (cursor_.SkipOperator("(")) {
      target = ParseTarget(allow_attribute);
      cursor_.ExpectOperator(")");
      return target;
    }
    const Token& token = cursor_.Peek();
    if (token.kind != TokenKind::kName || IsReserved(token.text)) {
      cursor_.FailSyntax("expected a name to assign to");
      return target;
    }
    target.name = cursor_.Next().text;
    if (target.name == "true" || target.name == "false" || target.name == "none" ||
        target.name == "True" || target.name == "False" || target.name == "None" ||
        (target.name == "loop" && !allow_attribute)) {
      cursor_.Fail(
          InvalidArgumentError("line {}: cannot assign to '{}'", cursor_.Peek().line, target.name));
    }
    if (allow_attribute && cursor_.SkipOperator(".")) {
      if (cursor_.Peek().kind != TokenKind::kName)
        cursor_.FailSyntax("expected the name of an attribute");
      target.attribute = cursor_.Next().text;
    }
    return target;
  }

  TokenCursor& cursor_;
  ExpressionParser expressions_;
  int loop_depth_ = 0;
  // Blocks around the cursor that have a scope of their own.
  int scope_depth_ = 0;
  std::vector<std::string> macros_;
};

}  // namespace

Result<Block> Parse(std::string_view source) {
  Result<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens.ok()) return tokens.status();
  TokenCursor cursor(std::move(*tokens));
  Block block = Parser(cursor).Run();
  if (!cursor.ok()) return cursor.status();
  return block;
}

}  // namespace tandem::jinja
