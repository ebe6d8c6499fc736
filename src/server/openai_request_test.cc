#include "server/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "server/api_error.h"
#include "server/json_body.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// A minimal valid body with more members put in.
std::string Body(std::string_view more = {}) {
  std::string text = R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])";
  if (!more.empty()) text += ", " + std::string(more);
  return text + "}";
}
std::string WithMessages(std::string_view messages) {
  return R"({"model": "m", "messages": )" + std::string(messages) + "}";
}

ChatRequest Parsed(std::string_view body) {
  ApiResult<ChatRequest> result = ParseChatRequest(body);
  EXPECT_TRUE(result.ok()) << body << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? result.value() : ChatRequest();
}

ApiError Refused(std::string_view body) {
  ApiResult<ChatRequest> result = ParseChatRequest(body);
  EXPECT_FALSE(result.ok()) << body;
  if (result.ok()) return {};
  EXPECT_EQ(result.error().http_status, 400);
  EXPECT_EQ(result.error().type, "invalid_request_error");
  return result.error();
}

TEST(ChatRequest, MinimalBodyLeavesEverythingOpen) {
  const ChatRequest request = Parsed(Body());
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.messages[0].role, "user");
  EXPECT_EQ(request.messages[0].content, "hi");
  EXPECT_FALSE(request.max_tokens || request.temperature || request.top_p || request.top_k ||
               request.seed || request.stream || request.include_usage);
  EXPECT_TRUE(request.stop.empty());
}

TEST(ChatRequest, HonouredFieldsAreRead) {
  const ChatRequest request = Parsed(Body(
      R"("max_tokens": 7, "temperature": 0.5, "top_p": 1, "top_k": 40, "seed": -9223372036854775808,
              "stop": ["a", "b"], "stream": true, "stream_options": {"include_usage": true}, "n": 1)"));
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.temperature, 0.5);
  EXPECT_EQ(request.top_p, 1.0);
  EXPECT_EQ(request.top_k, 40);
  EXPECT_EQ(request.seed, INT64_MIN);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.stream && request.include_usage);
  EXPECT_EQ(Parsed(Body(R"("max_completion_tokens": 8)")).max_tokens, 8);
  EXPECT_EQ(Parsed(Body(R"("max_completion_tokens": 8, "max_tokens": 8)")).max_tokens, 8);
  EXPECT_EQ(Parsed(Body(R"("max_tokens": 8.0)")).max_tokens, 8);
  EXPECT_EQ(Parsed(Body(R"("seed": 9223372036854775807)")).seed, INT64_MAX);
  EXPECT_EQ(Parsed(Body(R"("top_k": -1)")).top_k, 0);
  EXPECT_EQ(Parsed(Body(R"("stop": "x")")).stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(Parsed(Body(R"("stop": [])")).stop.empty());
}

TEST(ChatRequest, NullMeansAbsentForEveryField) {
  for (const FieldInfo& field : ChatRequestFields()) {
    if (field.name == "model" || field.name == "messages") continue;
    Parsed(Body("\"" + std::string(field.name) + "\": null"));
  }
  for (const FieldInfo& field : ChatMessageFields()) {
    if (field.name == "role" || field.name == "content") continue;
    Parsed(WithMessages(R"([{"role": "user", "content": "x", ")" + std::string(field.name) +
                        R"(": null}])"));
  }
}

TEST(ChatRequest, RefusedFieldsAreNamedAndNeutralValuesPass) {
  int refused = 0;
  for (const FieldInfo& field : ChatRequestFields()) {
    if (field.use != FieldUse::kRefused) continue;
    ++refused;
    const std::string name(field.name);
    const ApiError error = Refused(Body("\"" + name + "\": \"anything\""));
    EXPECT_EQ(error.code, "unsupported_parameter");
    EXPECT_EQ(error.param, name);
    EXPECT_THAT(error.message, HasSubstr(name));
    if (!field.neutral.empty()) Parsed(Body("\"" + name + "\": " + std::string(field.neutral)));
  }
  EXPECT_GT(refused, 20);
  EXPECT_EQ(Refused(Body(R"("frequency_penalty": 0.5)")).param, "frequency_penalty");
  Parsed(Body(R"("frequency_penalty": 0.0)"));
}

TEST(ChatRequest, IgnoredFieldsHaveNoEffect) {
  for (const FieldInfo& field : ChatRequestFields()) {
    if (field.use == FieldUse::kIgnored) Parsed(Body("\"" + std::string(field.name) + "\": \"x\""));
  }
}

TEST(ChatRequest, UnknownFieldsAreRefusedWithTheNearestName) {
  ApiError error = Refused(Body(R"("temprature": 1)"));
  EXPECT_EQ(error.code, "unknown_parameter");
  EXPECT_EQ(error.param, "temprature");
  EXPECT_THAT(error.message, HasSubstr("'temperature'"));
  error = Refused(Body(R"("max_token": 1)"));
  EXPECT_THAT(error.message, HasSubstr("'max_tokens'"));
  error = Refused(Body(R"("xyzzy_plugh": 1)"));
  EXPECT_THAT(error.message, testing::Not(HasSubstr("Did you mean")));
  error = Refused(Body("\"" + std::string(100'000, 'k') + "\": 1"));
  EXPECT_LT(error.message.size(), 200u);
  error = Refused(Body(R"("stream": true, "stream_options": {"include_use": true})"));
  EXPECT_EQ(error.param, "stream_options.include_use");
}

struct BadValue {
  const char* member;
  const char* param;
  const char* code;
};

TEST(ChatRequest, BadValuesNameTheirField) {
  for (const BadValue& bad : std::initializer_list<BadValue>{
           {R"("temperature": -0.1)", "temperature", "invalid_value"},
           {R"("temperature": 2.01)", "temperature", "invalid_value"},
           {R"("temperature": "1")", "temperature", "invalid_type"},
           {R"("temperature": true)", "temperature", "invalid_type"},
           {R"("temperature": 1e999)", "temperature", "invalid_value"},
           {R"("top_p": 0)", "top_p", "invalid_value"},
           {R"("top_p": 1.1)", "top_p", "invalid_value"},
           {R"("top_k": -2)", "top_k", "invalid_value"},
           {R"("top_k": 1.5)", "top_k", "invalid_type"},
           {R"("top_k": 3000000000)", "top_k", "invalid_value"},
           {R"("seed": 9223372036854775808)", "seed", "invalid_value"},
           {R"("seed": 1e300)", "seed", "invalid_value"},
           {R"("seed": "7")", "seed", "invalid_type"},
           {R"("max_tokens": 0)", "max_tokens", "invalid_value"},
           {R"("max_tokens": -5)", "max_tokens", "invalid_value"},
           {R"("max_tokens": 2.5)", "max_tokens", "invalid_type"},
           {R"("max_tokens": [1])", "max_tokens", "invalid_type"},
           {R"("max_tokens": 1, "max_completion_tokens": 2)", "max_tokens", "invalid_value"},
           {R"("n": 0)", "n", "invalid_value"},
           {R"("n": 2)", "n", "unsupported_value"},
           {R"("stop": 5)", "stop", "invalid_type"},
           {R"("stop": "")", "stop", "invalid_value"},
           {R"("stop": ["a", 5])", "stop[1]", "invalid_type"},
           {R"("stop": ["a", ""])", "stop[1]", "invalid_value"},
           {R"("stop": ["a", "b", "c", "d", "e"])", "stop", "invalid_value"},
           {R"("stream": "yes")", "stream", "invalid_type"},
           {R"("stream": 1)", "stream", "invalid_type"},
           {R"("stream_options": {"include_usage": true})", "stream_options", "invalid_value"},
           {R"("stream": true, "stream_options": [])", "stream_options", "invalid_type"},
           {R"("stream": true, "stream_options": {"include_usage": 1})",
            "stream_options.include_usage", "invalid_type"},
       }) {
    const ApiError error = Refused(Body(bad.member));
    EXPECT_EQ(error.param, bad.param) << bad.member;
    EXPECT_EQ(error.code, bad.code) << bad.member;
    EXPECT_THAT(error.message, HasSubstr(error.param.value_or("?"))) << bad.member;
  }
  EXPECT_EQ(Refused(Body("\"stop\": \"" + std::string(5000, 's') + "\"")).param, "stop");
}

TEST(ChatRequest, MessagesAreChecked) {
  for (const BadValue& bad : std::initializer_list<BadValue>{
           {R"([])", "messages", "invalid_value"},
           {R"({})", "messages", "invalid_type"},
           {R"("hi")", "messages", "invalid_type"},
           {R"(["hi"])", "messages[0]", "invalid_type"},
           {R"([{"role": "user"}])", "messages[0].content", "missing_required_parameter"},
           {R"([{"role": "user", "content": null}])", "messages[0].content",
            "missing_required_parameter"},
           {R"([{"content": "x"}])", "messages[0].role", "missing_required_parameter"},
           {R"([{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}])",
            "messages[1].role", "invalid_value"},
           {R"([{"role": 5, "content": "x"}])", "messages[0].role", "invalid_type"},
           {R"([{"role": "tool", "content": "x", "tool_call_id": "c"}])", "messages[0].role",
            "unsupported_value"},
           {R"([{"role": "user", "content": 5}])", "messages[0].content", "invalid_type"},
           {R"([{"role": "user", "content": []}])", "messages[0].content", "invalid_value"},
           {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]", "invalid_type"},
           {R"([{"role": "user", "content": [{"text": "x"}]}])", "messages[0].content[0].type",
            "missing_required_parameter"},
           {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text",
            "missing_required_parameter"},
           {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
            "messages[0].content[0].text", "invalid_type"},
           {R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])",
            "messages[0].content[0].type", "unsupported_value"},
           {R"([{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}])",
            "messages[0].content[0].y", "unknown_parameter"},
           {R"([{"role": "user", "content": "x", "contents": "y"}])", "messages[0].contents",
            "unknown_parameter"},
           {R"([{"role": "assistant", "content": "x", "tool_calls": [{}]}])",
            "messages[0].tool_calls", "unsupported_parameter"},
       }) {
    const ApiError error = Refused(WithMessages(bad.member));
    EXPECT_EQ(error.param, bad.param) << bad.member;
    EXPECT_EQ(error.code, bad.code) << bad.member;
  }
  const ChatRequest request = Parsed(WithMessages(
      R"([{"role": "developer", "content": "d"}, {"role": "system", "content": "s"},
          {"role": "user", "name": "ann", "content": [{"type": "text", "text": "a"},
                                                     {"type": "text", "text": "b"}]},
          {"role": "assistant", "content": "", "refusal": null, "tool_calls": []}])"));
  ASSERT_EQ(request.messages.size(), 4u);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[2].content, "a\nb");
  EXPECT_EQ(request.messages[3].content, "");
}

TEST(ChatRequest, RequiredFieldsAreNamed) {
  ApiError error = Refused(R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(error.param, "model");
  EXPECT_EQ(error.code, "missing_required_parameter");
  EXPECT_EQ(Refused(R"({"model": "m"})").param, "messages");
  EXPECT_EQ(Refused(R"({"model": null, "messages": []})").param, "model");
}

TEST(ChatRequest, BrokenBodiesAreRefused) {
  const std::string deep = std::string(100'000, '[');
  for (const std::string& body : {
           std::string(),
           std::string("not json"),
           std::string("[]"),
           std::string("\"text\""),
           std::string("{"),
           std::string(R"({"model": "m",})"),
           std::string(R"({"model": NaN})"),
           std::string(R"({"model": Infinity})"),
           std::string(R"({"model": "\ud800"})"),
           std::string("{\"model\": \"\xFF\"}"),
           std::string("{\"model\": \"\xC0\xAF\"}"),
           std::string("{\"model\": \"a\0b\"}", 16),
           R"({"model": )" + deep,
           R"({"model": )" + deep + std::string(100'000, ']') + "}",
           Body(R"("seed": 1, "seed": 2)"),
           Body() + "x",
       }) {
    EXPECT_EQ(Refused(body).code, "invalid_json") << body.substr(0, 60);
  }
  EXPECT_EQ(Refused(Body(R"("seed": 1, "seed": 2)")).param, "seed");
  std::string crowded = "\"user\": [0";
  for (int64_t i = 0; i < 2 * kJsonValuesMax; ++i) crowded += ",0";
  EXPECT_THAT(Refused(Body(crowded + "]")).message, HasSubstr("values"));
}

TEST(ChatRequest, FieldNamesAreUnique) {
  std::set<std::string_view> names;
  for (const FieldInfo& field : ChatRequestFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    if (!field.neutral.empty()) {
      EXPECT_TRUE(Json::accept(field.neutral)) << field.name;
    }
  }
}

TEST(ApiErrors, EveryStatusCodeHasOneRow) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    int rows = 0;
    for (const StatusMapping& row : StatusMappings()) {
      rows += row.status == static_cast<StatusCode>(code) ? 1 : 0;
    }
    EXPECT_EQ(rows, 1) << StatusCodeName(static_cast<StatusCode>(code));
  }
}

TEST(ApiErrors, AreNestedAndCarryRetryHints) {
  const HttpResponse response = ToResponse(ToApiError(ResourceExhaustedError("queue full")));
  EXPECT_EQ(response.status, 429);
  const Json body = Json::parse(response.body);
  EXPECT_EQ(body["error"]["code"], "queue_full");
  EXPECT_EQ(body["error"]["type"], "rate_limit_error");
  EXPECT_TRUE(body["error"]["param"].is_null());
  EXPECT_EQ(body["error"]["message"], "queue full");
  ASSERT_EQ(response.headers.size(), 2u);
  EXPECT_EQ(response.headers[0].name, "retry-after-ms");
  EXPECT_EQ(response.headers[1].name, "retry-after");
  EXPECT_EQ(response.headers[1].value, "1");
  EXPECT_EQ(ToResponse(ToApiError(InternalError("x"))).status, 500);
  EXPECT_EQ(HttpLayerError(599, "x").http_status, 500);
}

TEST(NearestName, FindsSlipsOnly) {
  const std::string_view known[] = {"stop", "seed", "stream", "temperature"};
  EXPECT_EQ(NearestName("sead", known), "seed");
  EXPECT_EQ(NearestName("steam", known), "stream");
  EXPECT_EQ(NearestName("temparatur", known), "temperature");
  EXPECT_FALSE(NearestName("user", known));
  EXPECT_FALSE(NearestName("", known));
}

}  // namespace
}  // namespace tandem
