// Any text as an answer: the same pieces however it is cut, whole characters, arguments that are
// JSON objects, and nothing lost.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/answer_parser.h"
#include "text/unicode.h"

namespace {

using tandem::AnswerParser;
using tandem::AnswerPiece;
using tandem::ToolFormat;
using Kind = AnswerPiece::Kind;

// `more` chooses among the formats that share the last place.
AnswerParser::Options OptionsOf(uint8_t bits, uint8_t more) {
  const int others = tandem::kNumToolFormats - 3;
  const ToolFormat formats[] = {ToolFormat::kNone, ToolFormat::kHermes, ToolFormat::kLlama3Json,
                                static_cast<ToolFormat>(3 + more % others)};
  AnswerParser::Options options;
  options.format.tools = formats[bits & 3];
  options.format.reasoning = (bits & 4) != 0;
  if (options.format.reasoning) {
    options.format.think_begin = "<think>";
    options.format.think_end = "</think>";
  }
  options.tools = true;
  options.reasoning = (bits & 8) != 0;
  if ((bits & 16) != 0) options.prompt_end = "<think>\n";
  if ((bits & 32) != 0) options.forced_begin = ForcedCallBegin(options.format.tools, "f");
  return options;
}

// Cuts `text` behind the first character that ends at or behind each multiple of `step`.
std::vector<AnswerPiece> Parse(const AnswerParser::Options& options, std::string_view text,
                               size_t step) {
  AnswerParser parser(options);
  std::vector<AnswerPiece> joined;
  int32_t names = 0;
  const auto add = [&](std::vector<AnswerPiece> pieces) {
    for (AnswerPiece& piece : pieces) {
      TANDEM_CHECK(!piece.text.empty());
      TANDEM_CHECK(tandem::IsValidUtf8(piece.text));
      names += piece.kind == Kind::kToolName ? 1 : 0;
      if (!joined.empty() && joined.back().kind == piece.kind && joined.back().call == piece.call) {
        joined.back().text += piece.text;
      } else {
        joined.push_back(std::move(piece));
      }
    }
  };
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    pos += tandem::DecodeChar(text, pos).size;
    if (pos - begin < step && pos < text.size()) continue;
    add(parser.Append(text.substr(begin, pos - begin)));
    begin = pos;
  }
  add(parser.Flush());
  TANDEM_CHECK(names == parser.num_calls());
  return joined;
}

// Another parser agrees, but for numbers that no double holds and surrogates that stand alone.
void CheckIsJson(const std::string& text) {
  if (text.find("\\u") != std::string::npos) return;
  try {
    TANDEM_CHECK(nlohmann::json::parse(text).is_object());
  } catch (const nlohmann::json::out_of_range&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const AnswerParser::Options options = OptionsOf(data[0], data[1]);
  const std::string text = tandem::ReplaceInvalidUtf8(
      std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2));
  const std::vector<AnswerPiece> whole = Parse(options, text, text.size() + 1);
  TANDEM_CHECK(Parse(options, text, 1) == whole);
  TANDEM_CHECK(Parse(options, text, 2 + data[1] % 32) == whole);
  std::string content;
  bool other = false;
  for (const AnswerPiece& piece : whole) {
    if (piece.kind == Kind::kContent) content += piece.text;
    other = other || piece.kind != Kind::kContent;
    if (piece.kind != Kind::kToolArguments) continue;
    TANDEM_CHECK(piece.text.front() == '{' && piece.text.back() == '}');
    CheckIsJson(piece.text);
  }
  // Reasoning may be nothing but newlines.
  if (!other && !(options.reasoning && options.format.reasoning)) {
    TANDEM_CHECK(content == options.forced_begin + text);
  }
  return 0;
}
