#include "server/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "server/api_error.h"
#include "server/chat_message.h"
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

// Every field of the body.
std::vector<FieldInfo> AllFields() {
  std::vector<FieldInfo> fields = ChatRequestFields();
  for (const auto& more : {RenderingFieldInfos(), GenerationFieldInfos()}) {
    fields.insert(fields.end(), more.begin(), more.end());
  }
  return fields;
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
  EXPECT_EQ(request.messages[0], (Json{{"role", "user"}, {"content", "hi"}}));
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
  EXPECT_EQ(Parsed(Body(R"("top_k": -1)")).top_k, -1);
  EXPECT_EQ(Parsed(Body(R"("stop": "x")")).stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(Parsed(Body(R"("stop": [])")).stop.empty());
}

TEST(ChatRequest, NullMeansAbsentForEveryField) {
  for (const FieldInfo& field : AllFields()) {
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
  for (const FieldInfo& field : AllFields()) {
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
  EXPECT_EQ(Refused(Body(R"("priority": 1)")).param, "priority");
  Parsed(Body(R"("priority": 0.0)"));
}

TEST(ChatRequest, IgnoredFieldsHaveNoEffect) {
  for (const FieldInfo& field : AllFields()) {
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

constexpr BadValue kBadValues[] = {
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
    {R"("seed": -9223372036854775809)", "seed", "invalid_value"},
    {R"("seed": 1e300)", "seed", "invalid_value"},
    {R"("seed": "7")", "seed", "invalid_type"},
    {R"("max_tokens": 0)", "max_tokens", "invalid_value"},
    {R"("max_tokens": -5)", "max_tokens", "invalid_value"},
    {R"("max_tokens": 2.5)", "max_tokens", "invalid_type"},
    {R"("max_tokens": [1])", "max_tokens", "invalid_type"},
    {R"("max_tokens": 1, "max_completion_tokens": 2)", "max_tokens", "invalid_value"},
    {R"("n": 0)", "n", "invalid_value"},
    {R"("n": 129)", "n", "invalid_value"},
    {R"("n": "1")", "n", "invalid_type"},
    {R"("min_p": 1.01)", "min_p", "invalid_value"},
    {R"("repetition_penalty": 0)", "repetition_penalty", "invalid_value"},
    {R"("frequency_penalty": 2.1)", "frequency_penalty", "invalid_value"},
    {R"("presence_penalty": -2.1)", "presence_penalty", "invalid_value"},
    {R"("logit_bias": [1])", "logit_bias", "invalid_type"},
    {R"("logit_bias": {"x": 1})", "logit_bias", "invalid_value"},
    {R"("logit_bias": {"-1": 1})", "logit_bias", "invalid_value"},
    {R"("logit_bias": {"007": 1})", "logit_bias", "invalid_value"},
    {R"("logit_bias": {"7": 101})", "logit_bias.7", "invalid_value"},
    {R"("logit_bias": {"7": "1"})", "logit_bias.7", "invalid_type"},
    {R"("stop_token_ids": 5)", "stop_token_ids", "invalid_type"},
    {R"("stop_token_ids": [1, -1])", "stop_token_ids[1]", "invalid_value"},
    {R"("ignore_eos": 1)", "ignore_eos", "invalid_type"},
    {R"("min_tokens": 5, "max_tokens": 4)", "min_tokens", "invalid_value"},
    {R"("logprobs": 1)", "logprobs", "invalid_type"},
    {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "invalid_value"},
    {R"("top_logprobs": 1)", "top_logprobs", "invalid_value"},
    {R"("reasoning_effort": "huge")", "reasoning_effort", "invalid_value"},
    {R"("chat_template_kwargs": [])", "chat_template_kwargs", "invalid_type"},
    {R"("continue_final_message": true)", "continue_final_message", "invalid_value"},
    {R"("response_format": {"type": "json_object"})", "response_format", "unsupported_parameter"},
    {R"("tools": {})", "tools", "invalid_type"},
    {R"("tools": [{}])", "tools[0].type", "missing_required_parameter"},
    {R"("tools": [{"type": "function"}])", "tools[0].function", "missing_required_parameter"},
    {R"("tools": [{"type": "web", "function": {"name": "f"}}])", "tools[0].type",
     "unsupported_value"},
    {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name",
     "invalid_value"},
    {R"("tools": [{"type": "function", "function": {"name": "f", "strict": true}}])",
     "tools[0].function.strict", "unsupported_parameter"},
    {R"("tools": [{"type": "function", "function": {"name": "f"}},
                         {"type": "function", "function": {"name": "f"}}])",
     "tools[1].function.name", "invalid_value"},
    {R"("tool_choice": "any")", "tool_choice", "invalid_value"},
    {R"("tool_choice": 5)", "tool_choice", "invalid_type"},
    {R"("tool_choice": "required")", "tool_choice", "invalid_value"},
    {R"("tools": [{"type": "function", "function": {"name": "f"}}],
               "tool_choice": {"type": "function", "function": {"name": "g"}})",
     "tool_choice.function.name", "invalid_value"},
    {R"("tool_choice": {"type": "function"})", "tool_choice.function",
     "missing_required_parameter"},
    {R"("stop": 5)", "stop", "invalid_type"},
    {R"("stop": "")", "stop", "invalid_value"},
    {R"("stop": ["a", 5])", "stop[1]", "invalid_type"},
    {R"("stop": ["a", ""])", "stop[1]", "invalid_value"},
    {R"("stop": ["a", "b", "c", "d", "e"])", "stop", "invalid_value"},
    {R"("stream": "yes")", "stream", "invalid_type"},
    {R"("stream": 1)", "stream", "invalid_type"},
    {R"("stream_options": {"include_usage": true})", "stream_options", "invalid_value"},
    {R"("stream": true, "stream_options": [])", "stream_options", "invalid_type"},
    {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage",
     "invalid_type"},
};

TEST(ChatRequest, BadValuesNameTheirField) {
  for (const BadValue& bad : kBadValues) {
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
           {R"([{"role": "tool", "content": "x"}])", "messages[0].tool_call_id",
            "missing_required_parameter"},
           {R"([{"role": "tool", "tool_call_id": "c"}])", "messages[0].content",
            "missing_required_parameter"},
           {R"([{"role": "user", "content": "x", "tool_call_id": "c"}])",
            "messages[0].tool_call_id", "invalid_value"},
           {R"([{"role": "user", "content": "x", "reasoning_content": "c"}])",
            "messages[0].reasoning_content", "invalid_value"},
           {R"([{"role": "assistant"}])", "messages[0].content", "missing_required_parameter"},
           {R"([{"role": "user", "content": "x", "tool_calls":
                 [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}])",
            "messages[0].tool_calls", "invalid_value"},
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
            "messages[0].tool_calls[0].id", "missing_required_parameter"},
           {R"([{"role": "assistant", "tool_calls": [{"id": "c", "type": "x",
                 "function": {"name": "f", "arguments": "{}"}}]}])",
            "messages[0].tool_calls[0].type", "invalid_value"},
           {R"([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}])",
            "messages[0].tool_calls[0].function.arguments", "missing_required_parameter"},
           {R"([{"role": "assistant", "tool_calls": [{"id": "c",
                 "function": {"name": "f", "arguments": {}}}]}])",
            "messages[0].tool_calls[0].function.arguments", "invalid_type"},
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
  EXPECT_EQ(request.messages[0].at("role"), "system");
  EXPECT_EQ(request.messages[2].at("content"), "a\nb");
  EXPECT_EQ(request.messages[2].at("name"), "ann");
  EXPECT_EQ(request.messages[3].at("content"), "");
  EXPECT_FALSE(request.messages[3].contains("tool_calls"));
}

TEST(ChatRequest, ToolsAndTheirTurnsReachTheTemplateInTheirOrder) {
  const ChatRequest request = Parsed(
      R"({"model": "m", "tool_choice": {"type": "function", "function": {"name": "f"}},
          "tools": [{"type": "function", "function": {"name": "f", "description": null,
            "parameters": {"zeta": 1, "alpha": 2}, "strict": false}}],
          "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
              {"id": "c1", "type": "function", "index": 0,
               "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "9"}]}]})");
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(request.tool_choice.name, "f");
  EXPECT_EQ(DumpJson(request.tools[0]["function"]["parameters"]), R"({"zeta":1,"alpha":2})");
  const Json& call = request.messages[1];
  EXPECT_EQ(call.at("content"), "");
  EXPECT_EQ(call.at("reasoning_content"), "hm");
  EXPECT_EQ(DumpJson(call.at("tool_calls")),
            R"([{"id":"c1","type":"function","function":{"name":"f","arguments":)"
            R"("{\"b\": 1, \"a\": 2}"}}])");
  for (const char* words : {"", "true", "[1]", "{\\\"a", "no JSON"}) {
    Parsed(WithMessages(R"([{"role": "assistant", "tool_calls": [{"id": "c",
        "function": {"name": "f", "arguments": ")" +
                        std::string(words) + R"("}}]}])"));
  }
  EXPECT_EQ(DumpJson(request.messages[2]), R"({"role":"tool","content":"9","tool_call_id":"c1"})");
}

TEST(ChatRequest, TheLastMessageIsContinuedWithoutGenerationPrompt) {
  const ChatRequest request = Parsed(R"({"model": "m", "messages":
      [{"role": "assistant", "content": "x"}], "continue_final_message": true})");
  EXPECT_FALSE(request.add_generation_prompt);
  EXPECT_EQ(Refused(R"({"model": "m", "messages": [{"role": "assistant", "content": "x"}],
                        "continue_final_message": true, "add_generation_prompt": true})")
                .param,
            "continue_final_message");
}

TEST(ChatRequest, HostileObjectsAreRefusedQuickly) {
  std::string keys = "\"metadata\": {";
  for (int i = 0; i < 100'000; ++i) keys += "\"k" + std::to_string(i) + "\": 1,";
  EXPECT_THAT(Refused(Body(keys + "\"z\": 1}")).message, HasSubstr("keys"));
  std::string arguments = "{";
  for (int i = 0; i < 5000; ++i) arguments += "\\\"k" + std::to_string(i) + "\\\": 1,";
  arguments += "\\\"z\\\": 1}";
  EXPECT_EQ(Refused(WithMessages(R"([{"role": "assistant", "tool_calls": [{"id": "c",
                "function": {"name": "f", "arguments": ")" +
                                 arguments + R"("}}]}])"))
                .param,
            "messages[0].tool_calls[0].function.arguments");
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
  for (int64_t i = 0; i < kJsonValuesMax; ++i) crowded += ",0";
  EXPECT_THAT(Refused(Body(crowded + "]")).message, HasSubstr("values"));
}

TEST(ChatRequest, FieldNamesAreUnique) {
  std::set<std::string_view> names;
  for (const FieldInfo& field : AllFields()) {
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

}  // namespace
}  // namespace tandem
