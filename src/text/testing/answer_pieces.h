// What: answers for the tests of AnswerParser, and what it makes of them as one line.
// Not here: the tests.
// Threads: as the tests use it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answer_parser.h"

namespace tandem::answer_pieces {

using Kind = AnswerPiece::Kind;
using Options = AnswerParser::Options;

inline AnswerFormat FormatOf(ToolFormat tools, bool reasoning) {
  AnswerFormat format{.tools = tools, .reasoning = reasoning};
  if (reasoning) {
    format.think_begin = "<think>";
    format.think_end = "</think>";
  }
  return format;
}

inline Options OptionsOf(ToolFormat tools, bool reasoning = false) {
  return {.format = FormatOf(tools, reasoning),
          .tools = tools != ToolFormat::kNone,
          .reasoning = reasoning,
          .prompt_end = "<|im_start|>assistant\n",
          .forced_begin = {}};
}

// Pieces as one line, neighbours of a kind joined: C[content] R[reasoning] N0[name] A0[arguments].
inline std::string Show(const std::vector<AnswerPiece>& pieces) {
  std::string shown;
  const AnswerPiece* last = nullptr;
  for (const AnswerPiece& piece : pieces) {
    EXPECT_FALSE(piece.text.empty());
    if (last != nullptr && last->kind == piece.kind && last->call == piece.call) {
      shown.insert(shown.size() - 1, piece.text);
    } else {
      shown += "CRNA"[static_cast<int>(piece.kind)];
      if (piece.call >= 0) shown += std::to_string(piece.call);
      shown += '[' + piece.text + ']';
    }
    last = &piece;
  }
  return shown;
}

// `cuts` are offsets in ascending order.
inline std::vector<AnswerPiece> Parse(const Options& options, std::string_view text,
                                      const std::vector<size_t>& cuts = {}) {
  AnswerParser parser(options);
  std::vector<AnswerPiece> all;
  const auto add = [&all](std::vector<AnswerPiece> pieces) {
    for (AnswerPiece& piece : pieces) all.push_back(std::move(piece));
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    add(parser.Append(text.substr(begin, cut - begin)));
    begin = cut;
  }
  add(parser.Append(text.substr(begin)));
  add(parser.Flush());
  int32_t names = 0;
  for (const AnswerPiece& piece : all) names += piece.kind == Kind::kToolName ? 1 : 0;
  EXPECT_EQ(names, parser.num_calls());
  return all;
}

inline std::string ShowParsed(const Options& options, std::string_view text) {
  return Show(Parse(options, text));
}

inline std::string Content(std::string_view text) { return "C[" + std::string(text) + "]"; }

// What has come out before the end of the answer.
inline std::string ShowSoFar(const Options& options, std::string_view text) {
  AnswerParser parser(options);
  return Show(parser.Append(text));
}

}  // namespace tandem::answer_pieces
