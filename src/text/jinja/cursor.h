// What: TokenCursor: a position in a template's tokens, and the first error of parsing.
// Not here: grammar (expression_parser.h, parser.cc).
// Threads: belongs to one thread.
// Invariants: after the first error the cursor stands on the last token, which ends every loop of
//   the grammar.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace tandem::jinja {

// Words that are grammar where an expression is expected.
inline bool IsReserved(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kReserved = {"and", "or",   "not",  "in", "is",
                                                                "if",  "else", "elif", "for"};
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

class TokenCursor {
 public:
  // The last token must be kEnd.
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  TokenCursor(const TokenCursor&) = delete;
  TokenCursor& operator=(const TokenCursor&) = delete;

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

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

  // Keeps the first error and moves to the end.
  void Fail(const Status& status) {
    if (status_.ok()) status_ = status;
    pos_ = tokens_.size() - 1;
  }
  // "expected X", with what was found instead.
  void FailSyntax(std::string_view what) {
    Fail(InvalidArgumentError("line {}: {}, found {}", Peek().line, what, Found()));
  }
  // A construct that is not supported.
  void FailUnknown(std::string_view what, std::string_view name, int line) {
    Fail(UnimplementedError("line {}: the {} '{}' is not supported", line, what,
                            name.substr(0, 64)));
  }

  // Fails when a tree or the grammar's own recursion grows too high.
  void CheckHeight(int height, int line) {
    if (height > kMaxTreeHeight) {
      Fail(OutOfRangeError("line {}: the template nests deeper than {} levels", line,
                           kMaxTreeHeight));
    }
  }

  // Bounds the parser's own recursion; every cycle of the grammar passes through one of these.
  class Nested {
   public:
    explicit Nested(TokenCursor& cursor) : cursor_(cursor) {
      cursor_.CheckHeight(++cursor_.depth_, cursor_.Peek().line);
    }
    ~Nested() { --cursor_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    TokenCursor& cursor_;
  };

 private:
  std::string Found() const {
    const Token& t = Peek();
    switch (t.kind) {
      case TokenKind::kEnd: return "the end of the template";
      case TokenKind::kData: return "text";
      case TokenKind::kBlockBegin: return "'{%'";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kPrintBegin: return "'{{'";
      case TokenKind::kPrintEnd: return "'}}'";
      case TokenKind::kString: return "a string";
      default: return fmt::format("'{}'", t.text.substr(0, 64));
    }
  }

  const std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  Status status_;
};

}  // namespace tandem::jinja
