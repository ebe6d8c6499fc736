#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using jinja::Json;
using ::testing::HasSubstr;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] }}{{ eos_token }}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{{ mode | default('plain') }}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

Json Messages() {
  return Json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])");
}

TEST(ChatTemplate, GivesTheTemplateItsVariables) {
  const ChatTemplate t = *ChatTemplate::Create(kTemplate, "<s>", "</s>");
  EXPECT_EQ(*t.Render(Messages(), {}), "<s>[system]S</s>[user]U</s>plain[assistant]");
  RenderOptions options;
  options.add_generation_prompt = false;
  options.tools = Json::parse(R"([{"b": 1, "a": "é"}])");
  options.extra = {{"mode", "fancy"}};
  EXPECT_EQ(*t.Render(Messages(), options),
            "<s>[system]S</s>[user]U</s>[{\"b\": 1, \"a\": \"é\"}]fancy");
}

TEST(ChatTemplate, RefusesMessagesOfTheWrongShape) {
  const ChatTemplate t = *ChatTemplate::Create(kTemplate, "", "");
  for (const char* text : {"{}", "null", "[1]", "[{}]", R"([{"role": 3}])"}) {
    EXPECT_EQ(t.Render(Json::parse(text), {}).status().code(), StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ChatTemplate, RefusesExtraVariablesThatHideItsOwn) {
  const ChatTemplate t = *ChatTemplate::Create(kTemplate, "", "");
  RenderOptions options;
  options.extra = {{"messages", 1}};
  EXPECT_THAT(t.Render(Messages(), options).status().message(), HasSubstr("'messages'"));
  options.extra = Json::array();
  EXPECT_FALSE(t.Render(Messages(), options).ok());
}

TEST(ChatTemplate, PassesOnWhatTheTemplateRefuses) {
  const ChatTemplate t =
      *ChatTemplate::Create("\n{{ raise_exception('roles must alternate') }}", "", "");
  const Status status = t.Render(Messages(), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "chat template: line 2: the chat template refuses: roles must alternate");
}

TEST(ChatTemplate, RefusesTextThatIsNotUtf8) {
  EXPECT_FALSE(ChatTemplate::Create("\xFF", "", "").ok());
  EXPECT_FALSE(ChatTemplate::Create("x", "\xFF", "").ok());
  const ChatTemplate t = *ChatTemplate::Create(kTemplate, "", "");
  const Json messages = Json::array({{{"role", "user"}, {"content", "\xFF"}}});
  EXPECT_FALSE(t.Render(messages, {}).ok());
}

// The bytes of a rendering, those of data as '#'.
std::string Masked(std::string_view source, const Json& messages, const Json& extra = nullptr) {
  const ChatTemplate t = *ChatTemplate::Create(source, "<s>", "</s>");
  RenderOptions options;
  options.extra = extra;
  const Result<MarkedText> text = t.RenderMarked(messages, options);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  if (!text.ok()) return "";
  std::string masked = text->text();
  for (const ByteSpan& s : text->data()) {
    masked.replace(s.begin, s.end - s.begin, s.end - s.begin, '#');
  }
  return masked;
}

TEST(ChatTemplate, MarksWhatCameFromData) {
  const Json user = Json::parse(R"([{"role": "user", "content": " ab-cd "}])");
  const std::string c = "messages[0].content";
  const std::pair<std::string, std::string> cases[] = {
      {"<{{ " + c + " }}>", "<#######>"},
      {"<{{ " + c + " | trim }}>", "<#####>"},
      {"<{{ " + c + ".strip().split('-')[1] }}>", "<##>"},
      {"{{ '<' + " + c + "[1:3] + '>' }}", "<##>"},
      {"{{ '<' ~ " + c + "[1] ~ '>' }}", "<#>"},
      {"{{ ('[' + " + c + " + ']').replace('-', '|') }}", "[###|###]"},
      {"{{ (' [' + " + c + " + '] ') | trim }}", "[#######]"},
      {"{{ " + c + ".split('-') | join('|') }}", "###|###"},
      {"{{ '|'.join(" + c + ".split('-')) }}", "###|###"},
      {"{% for x in " + c + ".strip() %}{{ x }}.{% endfor %}", "#.#.#.#.#."},
      {"{{ " + c + " | upper }}!", "#######!"},
      {"[{{ messages[0] | tojson }}]", "[" + std::string(38, '#') + "]"},
      {"[{{ {'a': " + c + "} }}]", "[################]"},
      {"[{{ {'a': 1} | tojson }}]", "[{\"a\": 1}]"},
      {"{% set x %}<{{ " + c + " }}>{% endset %}{{ x }}", "<#######>"},
      {"{% macro f(x) %}({{ x }}){% endmacro %}{{ f(" + c + ") }}{{ f('y') }}", "(#######)(y)"},
      {"{% for k in messages[0] %}{{ k }},{% endfor %}", "####,#######,"},
      {"{% for k, v in messages[0].items() %}{{ k }},{% endfor %}", "####,#######,"},
      {"{% set n = namespace(x='<') %}{% set n.x = n.x + " + c + " %}{{ n.x }}", "<#######"},
      {"{{ (" + c + ").rpartition('-')[0] }}-", "###-"},
      {"{{ bos_token }}{{ " + c + " | length }}{{ eos_token }}", "<s>7</s>"},
      {"{{ " + c + " * 2 }}", "##############"},
      {"{{ k }}", "#"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(Masked(source, user, {{"k", "v"}}), expected) << source;
  }
}

// Templates build control tokens from roles: "<|" + role + "|>".
TEST(ChatTemplate, OnlyKnownRolesAreTheTemplatesWords) {
  const char* source = "{{ '<|' + messages[0].role + '|>' }}";
  const auto with_role = [](const char* role) { return Json::array({{{"role", role}}}); };
  EXPECT_EQ(Masked(source, with_role("assistant")), "<|assistant|>");
  EXPECT_EQ(Masked(source, with_role("im_end")), "<|######|>");
  EXPECT_EQ(
      Masked("{{ messages[0].content }}", Json::parse(R"([{"role": "user", "content": "user"}])")),
      "####");
}

TEST(ChatTemplate, ArgumentsOfToolCallsArriveAsObjects) {
  const ChatTemplate t = *ChatTemplate::Create(
      "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }};{% endfor %}", "",
      "");
  const auto render = [&t](const Json& arguments) {
    Json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
    return t.Render(Json::array({{{"role", "assistant"}, {"tool_calls", {call}}}}), {}).value();
  };
  EXPECT_EQ(render("{\"b\": [1, 2.50], \"a\": \"\\u00e9\"}"), "{\"b\": [1, 2.5], \"a\": \"é\"};");
  EXPECT_EQ(render({{"x", 1}}), "{\"x\": 1};");
  EXPECT_EQ(render("not json"), "\"not json\";");
  EXPECT_EQ(render("[1]"), "\"[1]\";");
  EXPECT_EQ(render(""), "\"\";");
  const std::string deep = "{\"a\":" + std::string(100'000, '[');
  EXPECT_EQ(render(deep + std::string(100'000, ']') + "}").substr(0, 10), "\"{\\\"a\\\":[[");
}

// The library's own objects are searched for every key that is added to them.
TEST(ChatTemplate, ArgumentsWithManyKeysTakeLinearTime) {
  const ChatTemplate t = *ChatTemplate::Create(
      "{{ messages[0].tool_calls[0].function.arguments | length }} "
      "{{ messages[0].tool_calls[0].function.arguments['k7'] }}",
      "", "");
  std::string arguments = "{";
  for (int i = 0; i < 200'000; ++i) arguments += "\"k" + std::to_string(i) + "\": 1, ";
  arguments += "\"k7\": [{}, 2]}";
  Json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(t.Render(Json::array({{{"role", "assistant"}, {"tool_calls", {call}}}}), {}).value(),
            "200000 [{}, 2]");
  // Takes a quarter of a second; twenty billion comparisons take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ChatTemplate, TellsTheTimeItIsGiven) {
  RenderOptions options;
  options.now = std::tm{};
  options.now->tm_year = 126;
  options.now->tm_mon = 10;
  options.now->tm_mday = 3;
  const auto render = [&options](std::string_view format) {
    const std::string source = "{{ strftime_now('" + std::string(format) + "') }}";
    return ChatTemplate::Create(source, "", "")->Render(Messages(), options);
  };
  EXPECT_EQ(*render("%d %b %Y, %-d%%"), "03 Nov 2026, 3%");
  EXPECT_EQ(*render(""), "");
  for (const char* format : {"%", "%-", "%Q", "%99999999Y", "%Ey", "a\\x00b"}) {
    EXPECT_FALSE(render(format).ok()) << format;
  }
}

}  // namespace
}  // namespace tandem
