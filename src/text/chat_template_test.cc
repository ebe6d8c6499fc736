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

}  // namespace
}  // namespace tandem
