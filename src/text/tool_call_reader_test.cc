#include "text/tool_call_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/testing/answer_pieces.h"

namespace tandem {
namespace {

using namespace answer_pieces;  // NOLINT(google-build-using-namespace)

Options WithTools(ToolFormat format) {
  Options options = OptionsOf(format);
  options.parameters =
      std::make_shared<const ToolParameters>(nlohmann::ordered_json::parse(R"([{"function": {
        "name": "f", "parameters": {"properties": {"n": {"type": "integer"},
                                                   "s": {"type": "string"},
                                                   "l": {"type": "array"},
                                                   "b": {"type": "boolean"}}}}}])"));
  return options;
}

const Options kQwen = WithTools(ToolFormat::kQwenXml);
const Options kGlm = WithTools(ToolFormat::kGlm);
const Options kMistral = OptionsOf(ToolFormat::kMistralList);
const Options kMistralArgs = OptionsOf(ToolFormat::kMistralArgs);
const Options kPythonic = OptionsOf(ToolFormat::kPythonic);
const Options kTagged = OptionsOf(ToolFormat::kPythonicTags);

// The same for every single cut, and cut everywhere.
std::string ShowCut(const Options& options, std::string_view text) {
  const std::string whole = ShowParsed(options, text);
  std::vector<size_t> borders;
  for (size_t pos = 1; pos < text.size(); ++pos) {
    if ((text[pos] & 0xC0) != 0x80) borders.push_back(pos);
  }
  for (const size_t border : borders) {
    EXPECT_EQ(Show(Parse(options, text, {border})), whole) << text << " cut at " << border;
  }
  EXPECT_EQ(Show(Parse(options, text, borders)), whole) << text;
  return whole;
}

TEST(ToolFormat, ComesFromTheTemplate) {
  const std::pair<std::string_view, ToolFormat> kCases[] = {
      {"<tool_call>\n<function=x>\n<parameter=y>\n</parameter></function>\n</tool_call>",
       ToolFormat::kQwenXml},
      // Another family's, with tags of its own.
      {"<seed:tool_call>\n<function=x>\n<parameter=y></parameter>", ToolFormat::kNone},
      {"<function=x>{\"a\": 1}</function>", ToolFormat::kNone},
      {"<tool_call>{{ name }}<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>",
       ToolFormat::kGlm},
      {"[TOOL_CALLS] [", ToolFormat::kMistralList},
      {"[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", ToolFormat::kMistralArgs},
      {"<|tool_call_start|>[", ToolFormat::kPythonicTags},
      {"[func_name1(params_name1=params_value1)]", ToolFormat::kPythonic},
      {"<tool_calls>", ToolFormat::kNone},
      {"", ToolFormat::kNone}};
  for (const auto& [source, format] : kCases) EXPECT_EQ(ToolFormatOf(source), format) << source;
}

TEST(ToolFormat, AForcedCallIsReadWithItsBeginning) {
  const std::pair<Options, std::string_view> kRests[] = {
      {kQwen, "\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"},
      {kGlm, "\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
      {kMistral, " {\"n\": 1}}]"},
      {kMistralArgs, "{\"n\": 1}"},
      {kPythonic, "n=1)]"},
      {kTagged, "n=1)]<|tool_call_end|>"}};
  for (const auto& [base, rest] : kRests) {
    Options options = base;
    options.forced_begin = ForcedCallBegin(options.format.tools, "f");
    EXPECT_EQ(ShowParsed(options, rest), "N0[f]A0[{\"n\": 1}]");
    EXPECT_EQ(ShowParsed(options, " no"), Content(options.forced_begin + " no"));
    // Nothing goes on with the name.
    EXPECT_NE(ShowParsed(options, "2" + std::string(rest)).substr(0, 5), "N0[f2");
    // The model chooses the name.
    const std::string any = ForcedCallBegin(options.format.tools, std::nullopt);
    const std::string named = options.forced_begin;
    ASSERT_TRUE(named.starts_with(any)) << any;
    options.forced_begin = any;
    EXPECT_EQ(ShowParsed(options, named.substr(any.size()) + std::string(rest)),
              "N0[f]A0[{\"n\": 1}]");
  }
}

TEST(QwenCalls, AreReadWithTheirTypes) {
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n 12\n\n"
      "</parameter>\n<parameter=l>\n[1, {\"a\": \"\xC3\xA9\"}]\n</parameter>\n<parameter=b>\nTrue\n"
      "</parameter>\n</function>\n</tool_call>";
  const std::string shown = R"(N0[f]A0[{"n": 12, "s": " 12\n", "l": [1, {"a": "é"}], "b": true}])";
  EXPECT_EQ(ShowCut(kQwen, call), shown);
  EXPECT_EQ(ShowCut(kQwen, "Let me see.\n\n" + call + "\n"), "C[Let me see.]" + shown);
  EXPECT_EQ(ShowCut(kQwen, "<tool_call><function=g></function></tool_call>"), "N0[g]A0[{}]");
  EXPECT_EQ(ShowCut(kQwen,
                    "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n"
                    "<function=g>\n</function>\n</tool_call>"),
            "N0[f]A0[{}]N1[g]A1[{}]");
}

TEST(QwenCalls, MayLackTheirOuterTags) {
  const std::string call = "<function=f>\n<parameter=s>\nx\n</parameter>\n</function>";
  const std::string shown = R"(N0[f]A0[{"s": "x"}])";
  EXPECT_EQ(ShowCut(kQwen, call), shown);
  EXPECT_EQ(ShowCut(kQwen, call + "\n</tool_call>"), shown);
  EXPECT_EQ(ShowCut(kQwen, "<tool_call>\n" + call), shown);
  EXPECT_EQ(ShowCut(kQwen, "<tool_call>\n" + call + "\n</tool_"), shown);
  EXPECT_EQ(ShowCut(kQwen, call + "\nDone </b>"), shown + "C[Done </b>]");
  EXPECT_EQ(ShowCut(kQwen, call + call + "\n</tool_call>"), shown + R"(N1[f]A1[{"s": "x"}])");
  // Values may hold any text but their own end.
  EXPECT_EQ(ShowCut(kQwen,
                    "<function=f><parameter=s></tool_call><function=g></parameter>"
                    "</function>"),
            R"(N0[f]A0[{"s": "</tool_call><function=g>"}])");
}

TEST(QwenCalls, WhatIsNoneIsContent) {
  for (const std::string_view text :
       {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<tool_call> is a tag",
        "<function=my function>x</function>", "<function=></function>", "a <function=f",
        "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n",
        "<function=f>text</function>", "<function=f><parameter=></parameter></function>",
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "<function=f><parameter=a\n>1</parameter></function>", "</function></tool_call>"}) {
    EXPECT_EQ(ShowCut(kQwen, text), Content(text));
  }
  EXPECT_EQ(ShowCut(kQwen,
                    "<tool_call>\n<function=f>\n<parameter=a>\n1\n</para <function=g>"
                    "</function>"),
            "C[<tool_call>\n<function=f>\n<parameter=a>\n1\n</para]N0[g]A0[{}]");
}

TEST(GlmCalls, AreReadWithTheirTypes) {
  const std::string call =
      "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n<arg_key>s</arg_key>\n"
      "<arg_value>a\n\xE4\xB8\xAD</arg_value>\n</tool_call>";
  const std::string shown = R"(N0[f]A0[{"n": 3, "s": "a\n中"}])";
  EXPECT_EQ(ShowCut(kGlm, "\n" + call), shown);
  EXPECT_EQ(ShowCut(kGlm, "One.\n" + call + "\n<tool_call>g</tool_call>"),
            "C[One.]" + shown + "N1[g]A1[{}]");
  EXPECT_EQ(ShowCut(kGlm,
                    "<tool_call>g<arg_key>x y</arg_key><arg_value>[1]</arg_value>"
                    "<arg_key>z</arg_key><arg_value>yes</arg_value></tool_call>"),
            R"(N0[g]A0[{"x y": [1], "z": "yes"}])");
}

TEST(GlmCalls, WhatIsNoneIsContent) {
  for (const std::string_view text :
       {"<tool_call>f", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n",
        "<tool_call> is how", "<tool_call></tool_call>", "<tool_call>f <b></tool_call>",
        "<tool_call>f<arg_key>a</arg_key>1</tool_call>",
        "<tool_call>f<arg_key></arg_key><arg_value></arg_value></tool_call>",
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>a</arg_key>"
        "<arg_value>2</arg_value></tool_call>",
        "<tool_call>{\"name\": \"f\"}</tool_call>"}) {
    EXPECT_EQ(ShowCut(kGlm, text), Content(text));
  }
}

TEST(MistralCalls, ListsAndMarkedNamesAreRead) {
  for (const Options& options : {kMistral, kMistralArgs}) {
    EXPECT_EQ(
        ShowCut(options, R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": [1]}, "id": "x"}, )"
                         R"({"name": "g"}] )"),
        R"(N0[f]A0[{"a": [1]}]N1[g]A1[{}])");
    EXPECT_EQ(ShowCut(options, R"(Hm.[TOOL_CALLS]f[ARGS]{"a": "\u00e9]"}[TOOL_CALLS]g[ARGS] {})"),
              R"(C[Hm.]N0[f]A0[{"a": "\u00e9]"}]N1[g]A1[{}])");
    EXPECT_EQ(ShowCut(options, R"([TOOL_CALLS]f[CALL_ID]ab12[ARGS]{"a": {}})"),
              R"(N0[f]A0[{"a": {}}])");
    EXPECT_EQ(ShowCut(options, R"([TOOL_CALLS]f{"a": 1})"), R"(N0[f]A0[{"a": 1}])");
  }
  std::string many = "{";
  for (int i = 0; i < 200; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(ShowParsed(kMistralArgs, "[TOOL_CALLS]f[ARGS]" + many + "}"), "N0[f]A0[" + many + "}]");
}

TEST(MistralCalls, EachOfAListCountsWhenItIsComplete) {
  EXPECT_EQ(ShowSoFar(kMistral, R"([TOOL_CALLS] [{"name": "f"})"), "N0[f]A0[{}]");
  EXPECT_EQ(ShowCut(kMistral, R"([TOOL_CALLS] [{"name": "f"})"), "N0[f]A0[{}]");
  EXPECT_EQ(ShowCut(kMistral, R"([TOOL_CALLS] [{"name": "f"}, )"), "N0[f]A0[{}]");
  EXPECT_EQ(ShowCut(kMistral, R"([TOOL_CALLS] [{"name": "f"}, {"name": "g)"),
            R"(N0[f]A0[{}]C[, {"name": "g])");
  EXPECT_EQ(ShowCut(kMistral, R"([TOOL_CALLS] [{"name": "f"}, {"a": 1}])"),
            R"(N0[f]A0[{}]C[, {"a": 1}]])");
  EXPECT_EQ(ShowCut(kMistral, R"([TOOL_CALLS] [{"name": "f"} and [TOOL_CALLS]g[ARGS]{})"),
            "N0[f]A0[{}]C[and]N1[g]A1[{}]");
}

TEST(MistralCalls, WhatIsNoneIsContent) {
  for (const std::string_view text :
       {"[TOOL_CALLS]", "[TOOL_CALLS] []", "[TOOL_CALLS] [{\"name\": \"f\"", "[TOOL_CALLS]f",
        "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS][1]", "[TOOL_CALLS]f[ARGS]{\"a\": 1",
        "[TOOL_CALLS]f and", "[TOOL_CALLS] [1]", "[TOOL_CALLS] {\"name\": \"f\"}",
        "[TOOL_CALLS]f[ARGS]{\"a\": 1,}", "[TOOL_CALLS]f[CALL_ID]x{}",
        "[TOOL_CALLS] [{\"arguments\": {}}]", "[{\"name\": \"f\", \"arguments\": {}}]"}) {
    EXPECT_EQ(ShowCut(kMistral, text), Content(text));
  }
}

TEST(PythonicCalls, AreRead) {
  const std::string calls =
      R"([f(a=1, b='it\'s "\u00e9"', c = [True, None, -.5], d={"x": (1, 2)}), g()])";
  const std::string shown =
      R"(N0[f]A0[{"a": 1, "b": "it's \"é\"", "c": [true, null, -0.5], "d": {"x": [1, 2]}}])"
      R"(N1[g]A1[{}])";
  EXPECT_EQ(ShowCut(kPythonic, calls), shown);
  EXPECT_EQ(ShowCut(kPythonic, "\n " + calls + "\n"), shown);
  EXPECT_EQ(ShowCut(kTagged, "So.\n<|tool_call_start|>" + calls + "<|tool_call_end|>\nDone"),
            "C[So.]" + shown + "C[\n\nDone]");
  EXPECT_EQ(ShowCut(kTagged, "<|tool_call_start|>" + calls + "<|tool_"), shown);
  EXPECT_EQ(ShowCut(kPythonic, "[a.b(x=\")],\",)] more"), R"(N0[a.b]A0[{"x": ")],"}]C[more])");
}

TEST(PythonicCalls, WhatIsNoneIsContent) {
  for (const std::string_view text :
       {"[1] says",     "[note] f(a=1)", "[f(1)]",        "[f(a)]",
        "[f(a=b)]",     "[f(a=1, a=2)]", "[f(a=1)",       "[f(a=1), ",
        "[f(a=1) g()]", "[f(a=[1)]",     "[f(a='x)]",     "[]",
        "[f()",         "f(a=1)",        "x [f()]",       "[f(a=1 2)]",
        "[f(a=)]",      "[f(a={1})]",    "[f(a={1: 2})]", "[f(a=007)]",
        "[f(a=1.2.3)]", "[f(a=--1)]",    "[f(a=nan)]",    "[f(a=g())]"}) {
    EXPECT_EQ(ShowCut(kPythonic, text), Content(text));
  }
  EXPECT_EQ(ShowCut(kTagged, "[f()]"), "C[[f()]]");
  // Nothing waits for the end of a list that is none.
  EXPECT_EQ(ShowSoFar(kPythonic, "[1, 2"), "C[[1, 2]");
  EXPECT_EQ(ShowSoFar(kPythonic, "[Note: write"), "C[[Note: write]");
}

// Repeated beginnings must not be read again and again.
TEST(ToolCallReader, HostileAnswersTakeLinearTime) {
  const std::pair<Options, std::vector<std::string>> kUnits[] = {
      {kQwen,
       {"<tool_call>", "<function=f>", "<function=f><parameter=a>", "<parameter=a>1</parameter>",
        "<function=f></function>", "<tool_call><function=f>"}},
      {kGlm,
       {"<tool_call>f", "<arg_key>a</arg_key>", "<tool_call>f<arg_key>a</arg_key><arg_value>",
        "<arg_value>"}},
      {kMistral, {"[TOOL_CALLS]", "[TOOL_CALLS][", "[TOOL_CALLS]f[ARGS]{\"", "{\"name\":\"f\"},"}},
      {kPythonic, {"[", "[f(a=[", "f(a=1),", "(", "[f(", "'"}},
      {kTagged, {"<|tool_call_start|>[", "<|tool_call_start|>[f(a='", "f(),"}}};
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [options, units] : kUnits) {
    for (const std::string& unit : units) {
      for (const std::string beginning :
           {"", "<function=f><parameter=a>", "<tool_call>f<arg_key>a</arg_key><arg_value>", "[",
            "[f(a=", "[TOOL_CALLS] ["}) {
        std::string text = beginning;
        while (text.size() < 300'000) text += unit;
        AnswerParser parser(options);
        for (size_t pos = 0; pos < text.size(); pos += 5) {
          parser.Append(std::string_view(text).substr(pos, 5));
        }
        parser.Flush();
      }
    }
  }
  // Takes about a second; work that grows with the square of these answers takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace tandem
