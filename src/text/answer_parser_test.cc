#include "text/answer_parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "text/testing/answer_pieces.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using namespace answer_pieces;  // NOLINT(google-build-using-namespace)

const Options kHermes = OptionsOf(ToolFormat::kHermes);
const Options kLlama = OptionsOf(ToolFormat::kLlama3Json);
const Options kThinking = OptionsOf(ToolFormat::kHermes, /*reasoning=*/true);

TEST(AnswerFormat, ComesFromTheTemplate) {
  const AnswerFormat none;
  const std::map<std::string, AnswerFormat> expected = {
      {"tools_chatml", FormatOf(ToolFormat::kHermes, false)},
      {"thinking", FormatOf(ToolFormat::kHermes, true)},
      {"signatures", FormatOf(ToolFormat::kHermes, false)},
      {"headers_tools", FormatOf(ToolFormat::kLlama3Json, false)},
      {"flags", FormatOf(ToolFormat::kNone, true)},
      {"generation_marks", FormatOf(ToolFormat::kNone, true)},
      {"xml_calls", FormatOf(ToolFormat::kQwenXml, false)},
      {"inst_tools", FormatOf(ToolFormat::kMistralList, false)},
      // Not understood.
      {"channels", none},
      {"documents", none}};
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/chat_templates.json");
  const auto golden = nlohmann::json::parse(file);
  size_t found = 0;
  for (const auto& [name, source] : golden["templates"].items()) {
    const AnswerFormat format = AnswerFormatOf(source.get<std::string>());
    const auto it = expected.find(name);
    const AnswerFormat& want = it == expected.end() ? none : it->second;
    found += it == expected.end() ? 0 : 1;
    EXPECT_EQ(format.tools, want.tools) << name;
    EXPECT_EQ(format.reasoning, want.reasoning) << name;
    EXPECT_EQ(format.think_begin, want.think_begin) << name;
    EXPECT_EQ(format.think_end, want.think_end) << name;
  }
  EXPECT_EQ(found, expected.size());
}

TEST(AnswerFormat, KnowsOtherThinkMarkers) {
  const AnswerFormat format = AnswerFormatOf("{{ '[THINK]' + thought + '[/THINK]' }}");
  EXPECT_TRUE(format.reasoning);
  EXPECT_EQ(format.think_begin, "[THINK]");
  EXPECT_EQ(format.think_end, "[/THINK]");
}

TEST(AnswerParser, PlainAnswersAreContentToTheByte) {
  for (const std::string_view text :
       {"Hello", " Hello \n", "\n\n  x\ty\r\n\n", "   ", "a <tool b", "if (a < b) { c <| d }",
        "</tool_call>", "</think> x", "say <think> aloud", "\xF0\x9F\x98\x80 <", "{\"a\": 1}",
        "{ not json", "[{\"name\": \"f\"}]", "<tool_call", "<|python_tag|", "<tool_call >{}",
        ";"}) {
    for (const Options& options : {kHermes, kLlama, kThinking, OptionsOf(ToolFormat::kNone)}) {
      EXPECT_EQ(ShowParsed(options, text), Content(text));
    }
  }
  EXPECT_EQ(ShowParsed(kHermes, ""), "");
}

TEST(AnswerParser, ReadsHermesCalls) {
  EXPECT_EQ(ShowParsed(kHermes,
                       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
                       "</tool_call>"),
            "N0[f]A0[{\"a\": 1}]");
  // Several, with and without white space between.
  EXPECT_EQ(ShowParsed(kHermes,
                       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
                       "<tool_call>{\"arguments\": {\"b\":[1, 2]} , \"name\":\"g\"}"
                       "</tool_call><tool_call> {\"name\": \"f\"} </tool_call>\n"),
            "N0[f]A0[{}]N1[g]A1[{\"b\":[1, 2]}]N2[f]A2[{}]");
}

TEST(AnswerParser, KeepsContentAroundHermesCalls) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(ShowParsed(kHermes, "Let me see.\n" + call), "C[Let me see.]N0[f]A0[{}]");
  EXPECT_EQ(ShowParsed(kHermes, "\n\n" + call + "\nDone.\n"), "N0[f]A0[{}]C[Done.\n]");
  EXPECT_EQ(ShowParsed(kHermes, "One\n" + call + "\nTwo\n" + call + "\n"),
            "C[One]N0[f]A0[{}]C[\n\nTwo]N1[f]A1[{}]");
}

TEST(AnswerParser, ReadsLlamaCalls) {
  const std::string f = R"({"name": "f", "parameters": {"a": "\u00e9"}})";
  EXPECT_EQ(ShowParsed(kLlama, f), R"(N0[f]A0[{"a": "\u00e9"}])");
  EXPECT_EQ(ShowParsed(kLlama, "\n" + f + "\n"), R"(N0[f]A0[{"a": "\u00e9"}])");
  EXPECT_EQ(ShowParsed(kLlama, "<|python_tag|>" + f), R"(N0[f]A0[{"a": "\u00e9"}])");
  EXPECT_EQ(ShowParsed(kLlama, R"({"type": "function", "name": "f", "parameters": {}})"),
            "N0[f]A0[{}]");
  EXPECT_EQ(ShowParsed(kLlama, R"({"name": "f", "arguments": {"x": 1}})"), R"(N0[f]A0[{"x": 1}])");
  EXPECT_EQ(
      ShowParsed(kLlama, R"({"name": "f", "parameters": {}}; {"name": "g", "parameters": {}};)"),
      "N0[f]A0[{}]N1[g]A1[{}]");
  EXPECT_EQ(ShowParsed(kLlama, R"(<|python_tag|>{"name": "f"};<|python_tag|>{"name": "g"})"),
            "N0[f]A0[{}]N1[g]A1[{}]");
  EXPECT_EQ(ShowParsed(kLlama, "Wait. <|python_tag|>" + f + " and more"),
            R"(C[Wait.]N0[f]A0[{"a": "\u00e9"}]C[  and more])");
}

TEST(AnswerParser, LlamaProseAndJsonAreNoCalls) {
  for (const std::string_view text :
       {R"(Call {"name": "f", "parameters": {}})", R"({"name": "Bob", "age": 3})",
        R"({"name": "Bob"})", R"({"people": [{"name": "f", "parameters": {}}]})",
        R"(<|python_tag|>search.call(query="x"))", R"({"a": 1} {"name": "f", "parameters": {}})"}) {
    EXPECT_EQ(ShowParsed(kLlama, text), Content(text));
  }
  // The key decides; nothing waits for the end of the object.
  EXPECT_EQ(ShowSoFar(kLlama, R"({"name": "Bob", "age": 3)"), R"(C[{"name": "Bob", "age": 3])");
}

TEST(AnswerParser, UnderstandsArgumentsInOtherShapes) {
  const auto call = [](std::string_view rest) {
    return ShowParsed(kHermes, "<tool_call>{\"name\": \"f\"" + std::string(rest) + "}</tool_call>");
  };
  EXPECT_EQ(call(""), "N0[f]A0[{}]");
  EXPECT_EQ(call(R"(, "arguments": null)"), "N0[f]A0[{}]");
  EXPECT_EQ(call(R"(, "arguments": "")"), "N0[f]A0[{}]");
  EXPECT_EQ(call(R"(, "arguments": " {\"a\": \"\\n\"}\n")"), R"(N0[f]A0[{"a": "\n"}])");
  EXPECT_EQ(call(R"(, "parameters": {"a": 1})"), R"(N0[f]A0[{"a": 1}])");
  EXPECT_EQ(call(R"(, "parameters": {"a": 1}, "arguments": {"b": 1})"), R"(N0[f]A0[{"b": 1}])");
  EXPECT_EQ(call(R"(, "id": "x", "arguments": {"a": 1, "a": 2})"), R"(N0[f]A0[{"a": 1, "a": 2}])");
  EXPECT_EQ(ShowParsed(kHermes, R"(<tool_call>{"name": "\u00e9\n"}</tool_call>)"),
            "N0[\xC3\xA9\n]A0[{}]");
}

TEST(AnswerParser, WhatIsNoCallIsContent) {
  for (const std::string_view body :
       {R"({"name": "f", "arguments": {"a": 1})", R"({"name": "f", "arguments": [1]})",
        R"({"name": "f", "arguments": "x"})", R"({"name": "f", "arguments": "{} {}"})",
        R"({"name": "f", "arguments": 1})", R"({"name": 1, "arguments": {}})",
        R"({"name": "", "arguments": {}})", R"({"arguments": {}})", R"({"name": "\uD800"})",
        R"({"name": "f", "name": "g"})", R"({"name": "f", "arguments": {}, "arguments": {}})",
        R"([{"name": "f"}])", "f(1)", "", R"({'name': 'f'})", R"({"name": "f",})",
        R"({"name": "f"} is how)", "{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}"}) {
    const std::string text = "Look: <tool_call>\n" + std::string(body) + "\n</tool_call>\n";
    EXPECT_EQ(ShowParsed(kHermes, text), Content(text));
  }
}

TEST(AnswerParser, CutAnswersAreContentUnlessTheCallIsComplete) {
  const std::string call =
      "A <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const size_t complete = call.find("}}") + 2;
  for (size_t size = 1; size <= call.size(); ++size) {
    const std::string text = call.substr(0, size);
    EXPECT_EQ(ShowParsed(kHermes, text),
              size < complete ? Content(text) : "C[A]N0[f]A0[{\"a\": 1}]");
  }
}

TEST(AnswerParser, FindsTheCallBehindABrokenOne) {
  const std::string good = "<tool_call>{\"name\": \"g\"}</tool_call>";
  const std::string open_brace = "<tool_call>{\"name\": \"f\", \"arguments\": {}\n</tool_call>\n";
  EXPECT_EQ(ShowParsed(kHermes, open_brace + good),
            Content(open_brace.substr(0, open_brace.size() - 1)) + "N0[g]A0[{}]");
  // The open string reaches into the next call.
  const std::string open_string = "<tool_call>{\"name\": \"f</tool_call>";
  EXPECT_EQ(ShowParsed(kHermes, open_string + good), Content(open_string) + "N0[g]A0[{}]");
  EXPECT_EQ(ShowParsed(kHermes, "<tool_call>" + good), "C[<tool_call>]N0[g]A0[{}]");
  EXPECT_EQ(ShowParsed(kHermes, "<tool_" + good), "C[<tool_]N0[g]A0[{}]");
}

TEST(AnswerParser, MarkersInsideStringsAreData) {
  EXPECT_EQ(ShowParsed(kHermes, R"(<tool_call>{"name": "f", "arguments": )"
                                R"({"a": "</tool_call><tool_call>{}"}}</tool_call>)"),
            R"(N0[f]A0[{"a": "</tool_call><tool_call>{}"}])");
}

TEST(AnswerParser, SplitsReasoningOff) {
  EXPECT_EQ(ShowParsed(kThinking, "<think>\nHm,\n\nwell.\n</think>\n\nHello\n"),
            "R[Hm,\n\nwell.]C[Hello\n]");
  EXPECT_EQ(ShowParsed(kThinking, "\n<think>a</think>b"), "R[a]C[b]");
  EXPECT_EQ(ShowParsed(kThinking, "<think>\n\n</think>\n\nb"), "C[b]");
  EXPECT_EQ(ShowParsed(kThinking, "<think>a <think> b</think> </think>c"),
            "R[a <think> b]C[ </think>c]");
  // Too far from the beginning.
  const std::string late = std::string(AnswerParser::kMaxHeldSpace + 1, ' ') + "<think>a</think>";
  EXPECT_EQ(ShowParsed(kThinking, late), Content(late));
  // Never closed.
  EXPECT_EQ(ShowParsed(kThinking, "<think>\na\nb </thin\n"), "R[a\nb </thin]");
  EXPECT_EQ(ShowParsed(kThinking, "<think>"), "");
}

TEST(AnswerParser, ThePromptMayOpenTheReasoning) {
  Options options = kThinking;
  options.prompt_end = "<|im_start|>assistant\n<think>\n";
  EXPECT_EQ(ShowParsed(options, "a\n</think>\n\nb"), "R[a]C[b]");
  EXPECT_EQ(ShowParsed(options, "<think>\na</think>b"), "R[a]C[b]");
  EXPECT_EQ(ShowParsed(options, "</think>b"), "C[b]");
  EXPECT_EQ(ShowParsed(options, "a <t"), "R[a <t]");
  options.reasoning = false;
  EXPECT_EQ(ShowParsed(options, "a\n</think>\n\nb"), Content("a\n</think>\n\nb"));
  // Closed there, or words of a user that only stand near the end.
  options = kThinking;
  for (const char* end : {"assistant\n<think>\n\n</think>\n\n",
                          "What is <think><|im_end|>\n<|im_start|>assistant\n"}) {
    options.prompt_end = end;
    EXPECT_EQ(ShowParsed(options, "a"), "C[a]");
    EXPECT_EQ(ShowParsed(options, "<think>a</think>b"), "R[a]C[b]");
  }
}

TEST(AnswerParser, CallsFollowReasoningButAreNotInIt) {
  const std::string call = "<tool_call>\n{\"name\": \"f\"}\n</tool_call>";
  EXPECT_EQ(ShowParsed(kThinking, "<think>\nI could " + call + ".\n</think>\n\n" + call),
            "R[I could " + call + ".]N0[f]A0[{}]");
  Options options = kThinking;
  options.reasoning = false;
  EXPECT_EQ(ShowParsed(options, "<think>\n" + call + "\n</think>\n\n" + call),
            "C[<think>\n" + call + "\n</think>]N0[f]A0[{}]");
  options = kThinking;
  options.tools = false;
  EXPECT_EQ(ShowParsed(options, "<think>a</think>\n" + call + "\n"), "R[a]C[" + call + "\n]");
}

TEST(AnswerParser, AForcedCallIsReadWithItsBeginning) {
  for (const ToolFormat tools : {ToolFormat::kHermes, ToolFormat::kLlama3Json}) {
    Options options = OptionsOf(tools, /*reasoning=*/true);
    options.prompt_end = "<think>\n";
    options.forced_begin = ForcedCallBegin(tools, "a \"b\"");
    const std::string close = tools == ToolFormat::kHermes ? "}\n</tool_call>" : "}";
    EXPECT_EQ(ShowParsed(options, " {\"x\": 1}" + close), "N0[a \"b\"]A0[{\"x\": 1}]");
    EXPECT_EQ(ShowParsed(options, "oh"), Content(options.forced_begin + "oh"));
    options.forced_begin = ForcedCallBegin(tools, std::nullopt);
    const std::string key = tools == ToolFormat::kHermes ? "arguments" : "parameters";
    EXPECT_EQ(ShowParsed(options, "g\", \"" + key + "\": {}" + close), "N0[g]A0[{}]");
  }
  EXPECT_EQ(ForcedCallBegin(ToolFormat::kHermes, "f"),
            "<tool_call>\n{\"name\": \"f\", \"arguments\":");
  EXPECT_EQ(ForcedCallBegin(ToolFormat::kLlama3Json, "f"), R"({"name": "f", "parameters":)");
  EXPECT_EQ(ForcedCallBegin(ToolFormat::kNone, "f"), "");
}

TEST(AnswerParser, HoldsNothingLongerThanNeeded) {
  EXPECT_EQ(ShowSoFar(kHermes, "Hello"), "C[Hello]");
  EXPECT_EQ(ShowSoFar(kHermes, "Hello <b>"), "C[Hello <b>]");
  EXPECT_EQ(ShowSoFar(kHermes, "Hello\n<tool_c"), "C[Hello]");
  EXPECT_EQ(ShowSoFar(kHermes, "Hello\n<tool_cx"), "C[Hello\n<tool_cx]");
  EXPECT_EQ(ShowSoFar(kHermes, "<tool_call>no"), "C[<tool_call>no]");
  EXPECT_EQ(ShowSoFar(kHermes, "<tool_call>{\"name\": \"f\"}</tool_call>"), "N0[f]A0[{}]");
  EXPECT_EQ(ShowSoFar(kLlama, R"({"name": "f", "parameters": {}})"), "N0[f]A0[{}]");
  EXPECT_EQ(ShowSoFar(kThinking, "<think>a </thi"), "R[a ]");
  EXPECT_EQ(ShowSoFar(kThinking, "<thing"), "C[<thing]");
  EXPECT_EQ(ShowSoFar(kThinking, "H"), "C[H]");
  // Without tools not even white space waits.
  EXPECT_EQ(ShowSoFar(OptionsOf(ToolFormat::kNone), "a\n <tool_call>"), "C[a\n <tool_call>]");
  // Long white space doesn't wait either.
  const std::string space(AnswerParser::kMaxHeldSpace, ' ');
  EXPECT_EQ(ShowSoFar(kHermes, "a" + space + " "), "C[a" + space + "]");
}

TEST(AnswerParser, ArgumentsComeInPiecesOfWholeCharacters) {
  std::string object = "{\"text\": \"x";
  for (int i = 0; i < 500; ++i) object += "\xF0\x9F\x98\x80\xC3\xA9";
  object += "\"}";
  const auto pieces =
      Parse(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": " + object + "}</tool_call>");
  std::string joined;
  int count = 0;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind != Kind::kToolArguments) continue;
    EXPECT_LE(piece.text.size(), AnswerParser::kMaxArgumentBytes);
    EXPECT_TRUE(IsValidUtf8(piece.text));
    joined += piece.text;
    ++count;
  }
  EXPECT_EQ(joined, object);
  EXPECT_GE(count, 12);
}

TEST(AnswerParser, ACallThatIsTooLongIsContent) {
  const std::string begin = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"";
  const std::string end = "\"}}</tool_call>";
  const std::string fits(AnswerParser::kMaxCallBytes - begin.size() - end.size(), 'x');
  EXPECT_EQ(Parse(kHermes, begin + fits + end).front().kind, Kind::kToolName);
  // The marker of the next call begins within the limit and ends behind it.
  const std::string good = "<tool_call>{\"name\": \"g\"}</tool_call>";
  const std::string long_call = begin + fits + std::string(end.size() - 10, 'x');
  EXPECT_EQ(ShowParsed(kHermes, long_call + good), Content(long_call) + "N0[g]A0[{}]");
  const std::string too_long = begin + fits + "x" + end;
  EXPECT_EQ(ShowParsed(kHermes, too_long), Content(too_long));
  EXPECT_FALSE(ShowSoFar(kHermes, begin + fits + end.substr(1) + "xx").empty());
}

// Repeated beginnings must not be read again and again.
TEST(AnswerParser, HostileAnswersTakeLinearTime) {
  const std::pair<Options, std::string_view> kBeginnings[] = {{kHermes, "<tool_call>{\"a\": \""},
                                                              {kLlama, "<|python_tag|>{\"a\": \""},
                                                              {kThinking, ""},
                                                              {kThinking, "<think>"}};
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view unit :
       {"<tool_call>", "<tool_call>{\"", "<tool_call>{\"a\":[\"", "<tool_call>{\",\"", "<", "\n",
        "<tool_call>{\"a\":", "{", "[", "<|python_tag|>{\"", "</think>", "<think>",
        "{\"name\":\"f\",\"parameters\":{}};", "<tool_call>{\"name\":\"f\"}</tool_call>"}) {
    std::string tail;
    while (tail.size() < 1'000'000) tail += unit;
    for (const auto& [options, beginning] : kBeginnings) {
      const std::string text = std::string(beginning) + tail;
      AnswerParser parser(options);
      for (size_t pos = 0; pos < text.size(); pos += 5) {
        parser.Append(std::string_view(text).substr(pos, 5));
      }
      parser.Flush();
    }
  }
  // Takes about a second; work that grows with the square of these answers takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Texts of random parts, most of them nearly something.
std::string RandomAnswer(SplitMix64& rng) {
  static constexpr std::string_view kParts[] = {
      "<tool_call>",
      "</tool_call>",
      "<think>",
      "</think>",
      "<|python_tag|>",
      ";",
      "\n",
      "\n\n",
      " ",
      "Hello",
      "\xF0\x9F\x98\x80",
      "\xC3\xA9\xE4\xB8\xAD",
      "<tool",
      "</",
      "<|",
      "{\"",
      "\"}",
      "{\"name\": \"f\", \"arguments\": {\"a\": \"\xF0\x9F\x98\x80\\n\"}}",
      "{\"name\": \"g\", \"parameters\": {\"b\": [1, 2.5e3, null]}}",
      "{\"name\": \"h\"}",
      "{\"name\": \"f\", \"arguments\": {\"a\": 1}",
      "{\"name\": \"f</tool_call>",
      "{\"x\": 1}",
      "<tool_call>{\"name\": \"\xC3\xA9\"}</tool_call>",
      "<|python_tag|>{\"name\": \"f\"}",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
      "{\"name\": \"f\", \"arguments\": \"{}\"}",
      "<function=",
      "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
      "<parameter=b>\n\xC3\xA9</p",
      "</parameter>",
      "</function>",
      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>",
      "true</arg_value>\n</tool_call>",
      "[TOOL_CALLS]",
      "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, ",
      "{\"name\": \"g\"}]",
      "[TOOL_CALLS]f[ARGS]{\"a\": \"\xE4\xB8\xAD\"}",
      "[CALL_ID]abc[ARGS]",
      "[f(a=1, b='\xC3\xA9'), ",
      "g(c=[None, (2,)])]",
      "<|tool_call_start|>[f()]<|tool_call_end|>",
      "<|tool_call_end|>",
      "                                        "};
  std::string text;
  for (uint64_t n = 1 + rng.Below(9); n > 0; --n) text += kParts[rng.Below(std::size(kParts))];
  return text;
}

TEST(AnswerParser, TheResultDoesNotDependOnCuts) {
  SplitMix64 rng(11);
  int calls = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = RandomAnswer(rng);
    Options options =
        OptionsOf(static_cast<ToolFormat>(rng.Below(kNumToolFormats)), rng.Below(2) == 0);
    if (rng.Below(4) == 0) options.prompt_end = "<think>\n";
    if (rng.Below(4) == 0) options.reasoning = false;
    if (rng.Below(8) == 0) options.forced_begin = ForcedCallBegin(options.format.tools, "f");
    const std::string whole = ShowParsed(options, text);
    calls += whole.find("N0[") != std::string::npos ? 1 : 0;
    std::vector<size_t> borders;
    for (size_t pos = 0; pos < text.size(); pos += DecodeChar(text, pos).size) {
      borders.push_back(pos);
    }
    for (const size_t border : borders) {
      ASSERT_EQ(Show(Parse(options, text, {border})), whole) << text;
    }
    ASSERT_EQ(Show(Parse(options, text, borders)), whole) << text;
    for (int round = 0; round < 20; ++round) {
      std::vector<size_t> cuts;
      const uint64_t odds = 2 + rng.Below(6);
      for (const size_t border : borders) {
        if (rng.Below(odds) == 0) cuts.push_back(border);
      }
      const auto pieces = Parse(options, text, cuts);
      ASSERT_EQ(Show(pieces), whole) << text;
      for (const AnswerPiece& piece : pieces) ASSERT_TRUE(IsValidUtf8(piece.text)) << text;
    }
  }
  EXPECT_GT(calls, 300);
}

}  // namespace
}  // namespace tandem
