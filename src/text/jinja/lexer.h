// What: the tokens of a template's source, with white space trimmed as Hugging Face renders
//   templates (trim_blocks and lstrip_blocks on, the source's one last newline dropped).
// Not here: grammar (parser.h).
// Threads: pure function.
// Cost: linear in the source.
// Based on: Jinja's documentation of white space control.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::jinja {

enum class TokenKind {
  kData,        // text outside of tags
  kBlockBegin,  // {%
  kBlockEnd,
  kPrintBegin,  // {{
  kPrintEnd,
  kName,
  kInteger,
  kFloat,
  kString,    // text is unescaped
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// The last token is kEnd. INVALID_ARGUMENT with the line for what is no token; UNIMPLEMENTED for
// parts of the syntax that are left out. Requires valid UTF-8.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace tandem::jinja
