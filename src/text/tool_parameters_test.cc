#include "text/tool_parameters.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

ToolParameters Declared(std::string_view properties) {
  return ToolParameters(
      nlohmann::ordered_json::parse(R"([{"function": {"name": "f", "parameters": {"properties": )" +
                                    std::string(properties) + "}}}]"));
}

TEST(ToolParameters, ValuesAreOfTheDeclaredType) {
  const ToolParameters parameters = Declared(R"({
      "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"},
      "b": {"type": "boolean"}, "l": {"type": "array"}, "o": {"type": "object"},
      "sn": {"type": ["string", "null"]}, "is": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
      "e": {"enum": ["1", "2"]}, "c": {"const": 5}, "r": {"$ref": "#/x"},
      "ro": {"anyOf": [{"$ref": "#/x"}, {"type": "null"}]}, "odd": 7, "odder": {"type": "colour"}})");
  const auto value = [&](std::string_view parameter, std::string_view text) {
    return parameters.ValueOf("f", parameter, text);
  };
  // Strings are every character of the text.
  EXPECT_EQ(value("s", " 12 "), R"(" 12 ")");
  EXPECT_EQ(value("s", "null"), R"("null")");
  EXPECT_EQ(value("s", "\"q\"\n\\"), R"("\"q\"\n\\")");
  EXPECT_EQ(value("e", "1"), R"("1")");
  EXPECT_EQ(value("i", " 12\n"), "12");
  EXPECT_EQ(value("i", "3.0"), "3.0");
  EXPECT_EQ(value("i", "+3"), "3");
  EXPECT_EQ(value("i", "twelve"), R"("twelve")");
  EXPECT_EQ(value("i", "\"12\""), R"("\"12\"")");
  EXPECT_EQ(value("i", "null"), "null");
  EXPECT_EQ(value("i", "None"), "null");
  EXPECT_EQ(value("n", "-1.5e3"), "-1.5e3");
  EXPECT_EQ(value("n", "NaN"), R"("NaN")");
  EXPECT_EQ(value("b", "true"), "true");
  EXPECT_EQ(value("b", "True"), "true");
  EXPECT_EQ(value("b", "yes"), R"("yes")");
  EXPECT_EQ(value("b", "1"), R"("1")");
  EXPECT_EQ(value("l", "[1, \"a\"]"), "[1, \"a\"]");
  EXPECT_EQ(value("l", "['a', None]"), R"(["a", null])");
  EXPECT_EQ(value("l", "[1, 2"), R"("[1, 2")");
  EXPECT_EQ(value("o", "{\"a\": {}}"), "{\"a\": {}}");
  EXPECT_EQ(value("o", "{'a': True}"), R"({"a": true})");
  EXPECT_EQ(value("sn", "null"), "null");
  EXPECT_EQ(value("sn", "5"), R"("5")");
  EXPECT_EQ(value("is", "5"), "5");
  EXPECT_EQ(value("is", "five"), R"("five")");
  EXPECT_EQ(value("c", "5"), "5");
}

TEST(ToolParameters, UndeclaredOnesAreJsonWhereTheyCanBe) {
  const ToolParameters parameters = Declared(
      R"({"r": {"$ref": "#/x"}, "ro": {"anyOf": [{"$ref": "#/x"}, {"type": "null"}]}, "odd": 7,
          "odder": {"type": "colour"}})");
  for (const std::string_view name : {"r", "ro", "odd", "odder", "unknown"}) {
    for (const std::string_view tool : {"f", "g"}) {
      EXPECT_EQ(parameters.ValueOf(tool, name, "[1]"), "[1]");
      EXPECT_EQ(parameters.ValueOf(tool, name, "12"), "12");
      EXPECT_EQ(parameters.ValueOf(tool, name, "\"a\""), R"("\"a\"")");
      EXPECT_EQ(parameters.ValueOf(tool, name, "True"), R"("True")");
      EXPECT_EQ(parameters.ValueOf(tool, name, ""), R"("")");
      EXPECT_EQ(parameters.ValueOf(tool, name, "1, 2"), R"("1, 2")");
      EXPECT_EQ(parameters.ValueOf(tool, name, "1}"), R"("1}")");
    }
  }
}

TEST(ToolParameters, OddSchemasDeclareNothing) {
  for (const char* tools :
       {"[]", "[1]", "[{}]", R"([{"function": 1}])", R"([{"function": {"name": 1}}])",
        R"([{"function": {"name": "f", "parameters": [1]}}])",
        R"([{"function": {"name": "f", "parameters": {"properties": [1]}}}])", "null"}) {
    const ToolParameters parameters(nlohmann::ordered_json::parse(tools));
    EXPECT_EQ(parameters.ValueOf("f", "a", "1"), "1") << tools;
  }
  std::string deep = R"({"type": "string"})";
  for (int i = 0; i < 60; ++i) deep = R"({"anyOf": [)" + deep + "]}";
  EXPECT_EQ(Declared(R"({"a": )" + deep + "}").ValueOf("f", "a", "1"), "1");
}

TEST(PythonToJson, ReadsLiterals) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"1", "1"},
      {"-12", "-12"},
      {"+3", "3"},
      {"1.", "1.0"},
      {".5", "0.5"},
      {"-0", "-0"},
      {"1e5", "1e5"},
      {"1.E-5", "1.0E-5"},
      {"True", "true"},
      {"False", "false"},
      {"None", "null"},
      {"null", "null"},
      {"''", R"("")"},
      {R"('a"b')", R"("a\"b")"},
      {R"("it's")", R"("it's")"},
      {R"('\n\t\\\'\x41\u00e9\U0001F600\q')", R"("\n\t\\'Aé😀\\q")"},
      {R"('\ud83d\ude00 \ud83d \udc00')", R"("😀 � �")"},
      {"'\xC3\xA9'", "\"\xC3\xA9\""},
      {"[]", "[]"},
      {"[1, 'a', [True,],]", R"([1, "a", [true]])"},
      {"(1)", "1"},
      {"(1,)", "[1]"},
      {"()", "[]"},
      {"((1), 2)", "[1, 2]"},
      {"{}", "{}"},
      {" { 'a' : 1 , \"b\" : [ ] } ", R"({"a": 1, "b": []})"}};
  for (const auto& [text, json] : kCases) {
    const auto read = PythonToJson(text);
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_EQ(*read, json) << text;
    EXPECT_TRUE(nlohmann::json::accept(*read)) << text;
  }
}

TEST(PythonToJson, RefusesEverythingElse) {
  for (const std::string_view text :
       {"",     " ",   "x",      "1 2",     "01",      "1_000",     "0x10",  "--1",   "-",
        ".",    "1e",  "'a",     "'a\\",    "'\\x4'",  "'\\u00g0'", "[1",    "[1 2]", "[,]",
        "(1",   "{1}", "{1: 2}", "{'a'}",   "{'a': }", "{'a': 1",   "Truex", "f()",   "1 + 2",
        "r'a'", "nan", "inf",    "'a' 'b'", "[1, 2}",  "None None"}) {
    EXPECT_FALSE(PythonToJson(text).has_value()) << text;
  }
  EXPECT_TRUE(PythonToJson(std::string(60, '[') + std::string(60, ']')).has_value());
  EXPECT_FALSE(PythonToJson(std::string(100'000, '[') + std::string(100'000, ']')).has_value());
  EXPECT_FALSE(PythonToJson(std::string(100'000, '(')).has_value());
}

}  // namespace
}  // namespace tandem
