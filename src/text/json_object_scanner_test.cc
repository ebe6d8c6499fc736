#include "text/json_object_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"

namespace tandem {
namespace {

using State = JsonObjectScanner::State;

struct Scanned {
  JsonObjectScanner scanner;
  size_t consumed = 0;
};

Scanned Scan(std::string_view text, size_t step) {
  Scanned s;
  while (s.scanner.state() == State::kOpen && s.consumed < text.size()) {
    s.consumed += s.scanner.Consume(text.substr(s.consumed, step));
  }
  return s;
}

TEST(JsonObjectScanner, StopsBehindTheObject) {
  for (const std::string_view object :
       {R"({})", R"({ })", R"({"a":1})", R"({"a" : -0.5e+7 , "b":[ ] ,"c":{"d":[1,[2],{}]}})",
        R"({"\"}\\":"\u00e9\uD800{[","":null,"t":[true,false]})", R"({"a":0})", R"({"a":1E5})"}) {
    for (const size_t step : {size_t{1}, size_t{3}, size_t{1000}}) {
      const Scanned s = Scan(std::string(object) + " rest", step);
      EXPECT_EQ(s.scanner.state(), State::kDone) << object;
      EXPECT_EQ(s.consumed, object.size()) << object;
    }
  }
}

TEST(JsonObjectScanner, TellsTheByteThatBreaksIt) {
  struct Case {
    std::string_view good;
    std::string_view rest;
  };
  for (const auto& [good, rest] : std::vector<Case>{{"", "[1]"},
                                                    {"", " {}"},
                                                    {"{", ",}"},
                                                    {"{", "a:1}"},
                                                    {"{\"a\"", ",1}"},
                                                    {"{\"a\":", "}"},
                                                    {"{\"a\":1", "]"},
                                                    {"{\"a\":1,", "}"},
                                                    {"{\"a\":[1,", "]"},
                                                    {"{\"a\":[", "}"},
                                                    {"{\"a\":0", "1}"},
                                                    {"{\"a\":1.", "}"},
                                                    {"{\"a\":-", "}"},
                                                    {"{\"a\":1e", "}"},
                                                    {"{\"a\":1e+", "}"},
                                                    {"{\"a\":", "+1}"},
                                                    {"{\"a\":", ".5}"},
                                                    {"{\"a\":tru", "}"},
                                                    {"{\"a\":n", "il}"},
                                                    {"{\"a\":", "NaN}"},
                                                    {"{\"a", "\n\":1}"},
                                                    {"{\"a\\", "x\":1}"},
                                                    {"{\"\\u12", "g4\":1}"},
                                                    {"{\"a\":1 ", "2}"},
                                                    {"{\"a\":1.5", ".1}"},
                                                    {"{\"a\":1e5", "e1}"},
                                                    {"{\"a\":", "'b'}"}}) {
    const Scanned s = Scan(std::string(good) + std::string(rest), 1000);
    EXPECT_EQ(s.scanner.state(), State::kBroken) << good << rest;
    EXPECT_EQ(s.consumed, good.size()) << good << rest;
  }
}

TEST(JsonObjectScanner, KnowsTheMembersOfTheObjectItself) {
  const std::string text = R"({"a": {"x": 1} , "b\n":"s","c":12})";
  const Scanned s = Scan(text, 1000);
  std::string shown;
  for (const JsonObjectScanner::Member& m : s.scanner.members()) {
    shown += text.substr(m.key_begin, m.key_end - m.key_begin) + "=" +
             text.substr(m.value_begin, m.value_end - m.value_begin) + ";";
  }
  EXPECT_EQ(shown, R"(a={"x": 1};b\n="s";c=12;)");
}

TEST(JsonObjectScanner, PausesBehindKeysOfTheObjectItself) {
  const std::string_view text = R"({"a": {"x": 1}, "b": 2})";
  JsonObjectScanner scanner;
  EXPECT_EQ(scanner.Consume(text), 4u);
  EXPECT_EQ(scanner.Consume(text.substr(4)), text.find("\"b\"") + 3 - 4);
  EXPECT_EQ(scanner.state(), State::kOpen);
}

TEST(JsonObjectScanner, TakesDeepAndWideTextForBroken) {
  const auto nested = [](size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_EQ(Scan(nested(JsonObjectScanner::kMaxDepth), 1000).scanner.state(), State::kDone);
  EXPECT_EQ(Scan(nested(JsonObjectScanner::kMaxDepth + 1), 1000).scanner.state(), State::kBroken);
  const auto wide = [](size_t members) {
    std::string text = "{";
    for (size_t i = 0; i < members; ++i) text += (i == 0 ? "\"k\":1" : ",\"k\":1");
    return text + "}";
  };
  EXPECT_EQ(Scan(wide(JsonObjectScanner::kMaxMembers), 1000).scanner.state(), State::kDone);
  EXPECT_EQ(Scan(wide(JsonObjectScanner::kMaxMembers + 1), 1000).scanner.state(), State::kBroken);
}

// Valid texts with a few bytes changed: the two must agree on which are objects.
TEST(JsonObjectScanner, AgreesWithAnotherParser) {
  const std::string seed = R"({"a":[1,-2.5e3,true,null],"b":{"c":"x\ty\"","d":[{},[]]},"e":0})";
  const std::string_view alphabet = "{}[]\",:\\ 019.-eE+tfnux\n";
  SplitMix64 rng(7);
  int objects = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seed;
    for (uint64_t n = rng.Below(4); n > 0; --n) {
      const size_t pos = 1 + rng.Below(text.size() - 1);
      const char c = alphabet[rng.Below(alphabet.size())];
      const uint64_t kind = rng.Below(3);
      if (kind == 0) text[pos] = c;
      if (kind == 1) text.insert(pos, 1, c);
      if (kind == 2) text.erase(pos, 1);
    }
    const Scanned s = Scan(text, 1 + rng.Below(9));
    const bool mine = s.scanner.state() == State::kDone && s.consumed == text.size();
    const auto parsed = nlohmann::json::parse(text, nullptr, false);
    // White space behind the object isn't the object's.
    const bool trailing = text.back() != '}';
    if (!trailing) {
      EXPECT_EQ(mine, parsed.is_object()) << text;
    }
    objects += mine ? 1 : 0;
  }
  EXPECT_GT(objects, 1000);
  EXPECT_LT(objects, 19000);
}

}  // namespace
}  // namespace tandem
