// Choices, log probabilities, reasoning, tools and completions, as clients see them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/test_server.h"

namespace tandem {
namespace {

using Json = TestJson;
using testing::HasSubstr;

// Bytes of the entries of "logprobs.content".
std::string BytesOf(const Json& content) {
  std::string bytes;
  for (const Json& entry : content) {
    for (const Json& byte : entry["bytes"]) bytes.push_back(static_cast<char>(byte.get<int>()));
  }
  return bytes;
}

std::vector<TokenId> Reply(std::string_view text, std::initializer_list<int> more = {}) {
  std::vector<TokenId> tokens = BytesAsTokens(text);
  for (const int token : more) tokens.emplace_back(token);
  return tokens;
}

class AnswerTest : public ServerTest {
 protected:
  Json Whole(const HttpResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body);
  }
  // Every choice says which sample it is.
  static FakeEngine::Options Samples() {
    return {.reply_to = [](const Request& request) {
      return Reply("sample " + std::to_string(request.sample_index));
    }};
  }
  static ServedModel HermesModel() {
    ServedModel model = MakeModel();
    model.answer_format = {ToolFormat::kHermes, true, "<think>", "</think>"};
    return model;
  }
};

constexpr std::string_view kTool =
    R"("tools": [{"type": "function", "function": {"name": "add", "parameters": {"z": 1, "a": 2}}}])";

TEST_F(AnswerTest, SamplesAreRequestsOfOnePromptAndSeed) {
  Start(Samples());
  const Json answer = Whole(Chat(ChatBody(R"("n": 3, "seed": 5, "max_tokens": 20)")));
  ASSERT_EQ(answer["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["message"]["content"], "sample " + std::to_string(i));
    const Request request = engine_->WaitFor(i + 1);
    EXPECT_EQ(request.sample_index, i);
    EXPECT_EQ(request.sampling.seed, 5u);
    EXPECT_EQ(request.prompt, engine_->WaitFor(1).prompt);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], engine_->WaitFor(1).prompt.size());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 24);
  const JoinedStream streamed = ReadStream(
      Chat(ChatBody(R"("n": 3, "stream": true, "stream_options": {"include_usage": true})")));
  EXPECT_EQ(streamed.answer["choices"], answer["choices"]);
  EXPECT_EQ(streamed.answer["usage"], answer["usage"]);
  EXPECT_TRUE(streamed.done);
}

TEST_F(AnswerTest, FieldsReachTheEngine) {
  Start({.reply = "x"});
  Whole(Chat(ChatBody(
      R"("top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": -0.5,
         "frequency_penalty": 0.25, "logit_bias": {"7": -100, "0": 2.5}, "min_tokens": 2,
         "stop_token_ids": [9, 257], "max_tokens": 8, "logprobs": true, "top_logprobs": 2)")));
  Request request = engine_->WaitFor(1);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(request.sampling.presence_penalty, -0.5);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.25);
  EXPECT_EQ(request.sampling.min_tokens, 2);
  EXPECT_EQ(request.sampling.top_logprobs, 2);
  EXPECT_EQ(request.logit_bias,
            (std::vector<LogitBias>{{TokenId(7), -100.0f}, {TokenId(0), 2.5f}}));
  EXPECT_EQ(request.stop_tokens, (std::vector<TokenId>{TokenId(257), TokenId(9)}));
  Whole(Chat(ChatBody(R"("ignore_eos": true, "stop_token_ids": [9], "top_k": -1)")));
  request = engine_->WaitFor(2);
  EXPECT_EQ(request.stop_tokens, std::vector<TokenId>{TokenId(9)});
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_FALSE(request.sampling.wants_logprobs());
}

TEST_F(AnswerTest, LogprobsRebuildTheText) {
  Start({.reply = "n\xC3\xA9 \xF0\x9F\x98\x80"});
  const Json answer = Whole(Chat(ChatBody(R"("logprobs": true, "top_logprobs": 3)")));
  const Json& choice = answer["choices"][0];
  const Json& content = choice["logprobs"]["content"];
  ASSERT_EQ(content.size(), 8u);
  EXPECT_EQ(BytesOf(content), choice["message"]["content"].get<std::string>());
  EXPECT_EQ(content[0]["token"], "n");
  EXPECT_EQ(content[1]["token"], "\\xc3") << "half a character is escaped";
  EXPECT_EQ(content[1]["bytes"], Json::array({0xC3}));
  ASSERT_EQ(content[0]["top_logprobs"].size(), 3u);
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "n");
  EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"]);
  EXPECT_LT(content[0]["top_logprobs"][1]["logprob"], content[0]["logprob"]);
  const Json plain = Whole(Chat(ChatBody(R"("logprobs": true)")));
  EXPECT_EQ(plain["choices"][0]["logprobs"]["content"][0]["top_logprobs"], Json::array());
  EXPECT_TRUE(Whole(Chat(ChatBody()))["choices"][0]["logprobs"].is_null());
}

TEST_F(AnswerTest, LogprobsEndWhereTheTextDoes) {
  Start({.reply = "one STOP two"});
  const Json answer =
      Whole(Chat(ChatBody(R"("logprobs": true, "stop": "STOP", "return_token_ids": true)")));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "one ");
  EXPECT_EQ(BytesOf(choice["logprobs"]["content"]), "one ");
  EXPECT_EQ(choice["token_ids"].size(), 8u) << "the ids are what usage counts";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
  EXPECT_EQ(answer["prompt_token_ids"].size(), answer["usage"]["prompt_tokens"]);
  const Json with = Whole(
      Chat(ChatBody(R"("logprobs": true, "stop": "STOP", "include_stop_str_in_output": true)")));
  EXPECT_EQ(with["choices"][0]["message"]["content"], "one STOP");
  EXPECT_EQ(BytesOf(with["choices"][0]["logprobs"]["content"]), "one STOP");
}

TEST_F(AnswerTest, ControlTokensAreShownWhereAskedFor) {
  Start({.reply_to = [](const Request&) { return Reply("a", {256, 'b'}); }});
  const Json hidden = Whole(Chat(ChatBody(R"("logprobs": true)")));
  EXPECT_EQ(hidden["choices"][0]["message"]["content"], "ab");
  EXPECT_EQ(BytesOf(hidden["choices"][0]["logprobs"]["content"]), "ab");
  EXPECT_EQ(hidden["choices"][0]["logprobs"]["content"][1]["token"], "<|im_start|>");
  const Json shown = Whole(Chat(ChatBody(R"("skip_special_tokens": false)")));
  EXPECT_EQ(shown["choices"][0]["message"]["content"], "a<|im_start|>b");
}

TEST_F(AnswerTest, ContinuousUsageIsInEveryChunk) {
  Start({.reply = "abc"});
  const HttpResponse response = Chat(ChatBody(
      R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true})"));
  EXPECT_THAT(response.body, HasSubstr(R"("completion_tokens":2,)"));
  EXPECT_THAT(response.body, testing::Not(HasSubstr(R"("usage":null)")));
  EXPECT_EQ(ReadStream(response).answer["usage"]["completion_tokens"], 3);
}

TEST_F(AnswerTest, UsageSaysWhatWasCachedAndWhereTheTimeWent) {
  const auto annotate = [](const Request& request, RequestOutput& output) {
    // The samples of a prompt find all of it but the first; each choice runs 2 ms later.
    const auto sample = static_cast<int32_t>(request.sample_index);
    output.cached_tokens = sample == 0 ? 1 : 2;
    output.recomputed_tokens = 3;
    output.times = {.arrival = 10 * kNsPerMs,
                    .admitted = (11 + 2 * sample) * kNsPerMs,
                    .first_token = (14 + 2 * sample) * kNsPerMs + 500,
                    .finished = output.finish ? (20 + 2 * sample) * kNsPerMs : 0};
  };
  Start({.reply = "xy", .annotate = annotate});
  const Json whole = Whole(Complete(R"("prompt": ["aaa", "bbb"], "n": 2)"));
  EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 2) << "of the first samples";
  EXPECT_EQ(whole["usage"]["timing"], (Json{{"queue_ms", 1.0},
                                            {"prefill_ms", 3.001},
                                            {"decode_ms", 8.0},
                                            {"cached_tokens", 2},
                                            {"recomputed_tokens", 12}}));
  const std::string streamed = R"(, "stream": true, "stream_options": {"include_usage": true})";
  EXPECT_EQ(ReadStream(Complete(R"("prompt": ["aaa", "bbb"], "n": 2)" + streamed)).answer["usage"],
            whole["usage"]);
  const Json chat = Whole(Chat(ChatBody(R"("n": 2)")));
  EXPECT_EQ(chat["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(chat["usage"]["timing"]["recomputed_tokens"], 6);
  EXPECT_EQ(ReadStream(Chat(ChatBody(R"("n": 2)" + streamed))).answer["usage"], chat["usage"]);
}

TEST_F(AnswerTest, AStopStringEndsTheTimeToo) {
  clock_.Advance(9 * kNsPerMs);
  Start({.reply = "x STOP y", .annotate = [](const Request&, RequestOutput& output) {
           output.times.first_token = 4 * kNsPerMs;
         }});
  EXPECT_EQ(Whole(Chat(ChatBody(R"("stop": "STOP")")))["usage"]["timing"]["decode_ms"], 5.0);
}

TEST_F(AnswerTest, ReasoningIsCounted) {
  model_ = MakeModel();
  model_.answer_format = {ToolFormat::kNone, true, "<|im_start|>", "<|im_end|>"};
  model_.stop_tokens = {};
  Start({.reply_to = [](const Request&) {
    std::vector<TokenId> tokens = Reply("\n", {256, 'h', 'm', 257});
    for (const TokenId token : Reply("Yes.")) tokens.push_back(token);
    return tokens;
  }});
  const Json chat = Whole(Chat(ChatBody(R"("n": 2)")));
  EXPECT_EQ(chat["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(chat["usage"]["completion_tokens"], 18);
  EXPECT_EQ(chat["usage"]["completion_tokens_details"]["reasoning_tokens"], 8);
  const Json text = Whole(Complete(R"("prompt": "a")"));
  EXPECT_EQ(text["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

// ---- Deadlines and tenants

TEST_F(AnswerTest, DeadlinesAreFieldsOrHeaders) {
  Start({.reply = "x"});
  const auto send = [&](std::string_view headers, std::string_view more) {
    LoopbackClient client(server_->port());
    std::string text = LoopbackClient::Request("POST", "/v1/chat/completions", ChatBody(more));
    text.insert(text.find("\r\n") + 2, headers);
    client.Send(text);
    return client.Read();
  };
  constexpr std::string_view kHeaders = "X-Deadline-Ms: 2000\r\nx-ttft-target-ms: 0.5\r\n";
  ASSERT_EQ(send("", R"("deadline_ms": 1500.5, "ttft_target_ms": 1e-9)").status, 200);
  EXPECT_EQ(engine_->WaitFor(1).deadline, 1'500'500'000);
  EXPECT_EQ(engine_->WaitFor(1).ttft_target, 1) << "not 0";
  ASSERT_EQ(send(kHeaders, "").status, 200);
  EXPECT_EQ(engine_->WaitFor(2).deadline, 2000 * kNsPerMs);
  EXPECT_EQ(engine_->WaitFor(2).ttft_target, kNsPerMs / 2);
  ASSERT_EQ(send(kHeaders, R"("deadline_ms": 7, "ttft_target_ms": null)").status, 200);
  EXPECT_EQ(engine_->WaitFor(3).deadline, 7 * kNsPerMs) << "the body wins";
  EXPECT_EQ(engine_->WaitFor(3).ttft_target, kNsPerMs / 2);
  ASSERT_EQ(send("", "").status, 200);
  EXPECT_FALSE(engine_->WaitFor(4).deadline);
  for (const char* value : {"soon", "0", "-1", "nan", "inf", "1e10", "1 2", "1e999"}) {
    const HttpResponse bad = send(fmt::format("x-deadline-ms: {}\r\n", value), "");
    EXPECT_EQ(bad.status, 400) << value;
    EXPECT_EQ(Json::parse(bad.body)["error"]["param"], "x-deadline-ms");
  }
  for (const char* value : {"0", "-1", "1e10", "\"1\"", "true"}) {
    const HttpResponse bad = send("", fmt::format("\"ttft_target_ms\": {}", value));
    EXPECT_EQ(Json::parse(bad.body)["error"]["param"], "ttft_target_ms") << value;
  }
}

TEST_F(AnswerTest, ARefusedChoiceRefusesTheRequestWithTheNumbers) {
  Start();
  for (const bool stream : {false, true}) {
    LoopbackClient client(server_->port());
    client.Post("/v1/chat/completions",
                ChatBody(stream ? R"("n": 3, "deadline_ms": 1000, "stream": true)"
                                : R"("n": 3, "deadline_ms": 1000)"));
    const RequestId last = engine_->WaitFor(stream ? 6 : 3).id;
    engine_->RefuseLate(last, {.predicted = 5'200'250'000, .allowed = 1000 * kNsPerMs});
    const HttpResponse response = client.Read();
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(LoopbackClient::Header(response, "x-should-retry"), "false");
    EXPECT_EQ(LoopbackClient::Header(response, "x-retry-elsewhere"), "true");
    EXPECT_EQ(LoopbackClient::Header(response, "retry-after-ms"), "");
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "deadline_unmeetable");
    EXPECT_EQ(error["type"], "rate_limit_error");
    EXPECT_EQ(error["param"], "deadline_ms");
    EXPECT_EQ(error["predicted_ms"], 5200.25);
    EXPECT_EQ(error["allowed_ms"], 1000.0);
    EXPECT_THAT(error["message"].get<std::string>(),
                testing::AllOf(HasSubstr("5200.25 ms"), HasSubstr("1000 ms")));
    EXPECT_TRUE(Eventually([&] { return engine_->active() == 0; }));
  }
  EXPECT_EQ(engine_->cancelled(), 4) << "the other choices";
}

TEST_F(AnswerTest, ARefusalForTheSakeOfOthersSaysSo) {
  Start();
  LoopbackClient client(server_->port());
  client.Post("/v1/chat/completions", ChatBody(R"("ttft_target_ms": 100)"));
  engine_->RefuseLate(engine_->WaitFor(1).id,
                      {.first_token = true, .predicted = 50 * kNsPerMs, .allowed = 100 * kNsPerMs});
  const Json error = Json::parse(client.Read().body)["error"];
  EXPECT_EQ(error["param"], "ttft_target_ms");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("accepted before"));
}

TEST_F(AnswerTest, SaltsReachTheEngine) {
  Start({.reply = "x"});
  Whole(Chat(ChatBody()));
  Whole(Chat(ChatBody(R"("cache_salt": "s")")));
  Whole(Complete(R"("prompt": "a", "prompt_cache_key": "s")"));
  Whole(Chat(ChatBody(R"("prompt_cache_key": "s", "cache_salt": "s")")));
  EXPECT_EQ(engine_->WaitFor(1).cache_salt, "");
  for (const size_t n : {2, 3, 4}) EXPECT_EQ(engine_->WaitFor(n).cache_salt, "s");
  const auto param = [&](std::string_view more) {
    return Json::parse(Chat(ChatBody(more)).body)["error"]["param"];
  };
  EXPECT_EQ(param(R"("prompt_cache_key": "s", "cache_salt": "t")"), "cache_salt");
  EXPECT_EQ(param(R"("cache_salt": 1)"), "cache_salt");
  EXPECT_EQ(param(fmt::format(R"("cache_salt": "{}")", std::string(257, 'a'))), "cache_salt");
  EXPECT_EQ(Chat(ChatBody(fmt::format(R"("cache_salt": "{}")", std::string(256, 'a')))).status,
            200);
}

TEST_F(AnswerTest, OneFailedChoiceEndsAll) {
  Start();
  LoopbackClient client(server_->port());
  client.Post("/v1/chat/completions", ChatBody(R"("n": 3)"));
  const RequestId second = engine_->WaitFor(3).id;
  engine_->Finish(second, FinishReason::kFailed, InternalError("device lost"));
  EXPECT_EQ(client.Read().status, 500);
  EXPECT_TRUE(Eventually([&] { return engine_->active() == 0; }));
  EXPECT_EQ(engine_->cancelled(), 2);
}

TEST_F(AnswerTest, AClientThatLeavesCancelsAllChoices) {
  Start();
  auto client = std::make_unique<LoopbackClient>(server_->port());
  client->Post("/v1/completions", CompletionBody(R"("prompt": ["a", "b"], "n": 2)"));
  ASSERT_TRUE(Eventually([&] { return engine_->active() == 4; }));
  client.reset();
  EXPECT_TRUE(Eventually([&] { return engine_->active() == 0; }));
  EXPECT_EQ(engine_->cancelled(), 4);
}

// ---- Reasoning and tools

TEST_F(AnswerTest, ReasoningIsApart) {
  model_ = HermesModel();
  Start({.reply = "<think>\nhm\n</think>\n\nYes."});
  const Json answer = Whole(Chat(ChatBody()));
  EXPECT_EQ(answer["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Yes.");
  const Json without = Whole(Chat(ChatBody(R"("include_reasoning": false)")));
  EXPECT_FALSE(without["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_EQ(Whole(Complete(R"("prompt": "a", "max_tokens": 99)"))["choices"][0]["text"],
            "<think>\nhm\n</think>\n\nYes.");
  Whole(Chat(ChatBody(R"("reasoning_effort": "none")")));
  std::string prompt;
  for (const TokenId token : engine_->WaitFor(4).prompt) {
    prompt += static_cast<char>(token.value());
  }
  EXPECT_THAT(prompt, HasSubstr("effort none"));
  EXPECT_THAT(prompt, HasSubstr("<think>\n\n</think>"));
}

TEST_F(AnswerTest, CallsAreFoundAndNeverLost) {
  model_ = HermesModel();
  const std::string call =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  Start({.reply = "Let me see.\n" + call});
  const Json answer = Whole(Chat(ChatBody(kTool)));
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  ASSERT_EQ(message["tool_calls"].size(), 1u) << answer;
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "add");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"a\": 1}");
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_TRUE(message["tool_calls"][0]["id"].get<std::string>().starts_with("call_"));
  EXPECT_THAT(message["content"].get<std::string>(), HasSubstr("Let me see."));
  // Without tools, or with none allowed, a call is words.
  for (const std::string& more :
       {std::string(R"("n": 1)"), std::string(kTool) + R"(, "tool_choice": "none")"}) {
    const Json words = Whole(Chat(ChatBody(more)));
    EXPECT_EQ(words["choices"][0]["message"]["content"], "Let me see.\n" + call);
    EXPECT_EQ(words["choices"][0]["finish_reason"], "stop");
  }
}

TEST_F(AnswerTest, HalfACallIsContent) {
  model_ = HermesModel();
  Start({.reply = "<tool_call>\n{\"name\": \"add\", \"argum"});
  const Json answer = Whole(Chat(ChatBody(kTool)));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "<tool_call>\n{\"name\": \"add\", \"argum");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
}

TEST_F(AnswerTest, ChosenToolsBeginInThePrompt) {
  model_ = HermesModel();
  Start({.reply_to = [](const Request& request) {
    std::string prompt;
    for (const TokenId t : request.prompt) prompt += static_cast<char>(t.value());
    return prompt.ends_with("\"arguments\":") ? Reply(" {\"a\": 2}}\n</tool_call>")
                                              : Reply("add\", \"arguments\": {}}\n</tool_call>");
  }});
  const Json named = Whole(
      Chat(ChatBody(std::string(kTool) +
                    R"(, "tool_choice": {"type": "function", "function": {"name": "add"}})")));
  EXPECT_EQ(named["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 2}");
  EXPECT_TRUE(named["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(named["choices"][0]["finish_reason"], "tool_calls");
  const Json required =
      Whole(Chat(ChatBody(std::string(kTool) + R"(, "tool_choice": "required")")));
  EXPECT_EQ(required["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "add");
}

TEST_F(AnswerTest, OnlyOneCallWhereOnlyOneIsWanted) {
  model_ = HermesModel();
  const std::string call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>";
  Start({.reply = call + "\n" + call});
  const auto calls = [&](std::string_view more) {
    const Json answer = Whole(Chat(ChatBody(std::string(kTool) + std::string(more))));
    return answer["choices"][0]["message"]["tool_calls"].size();
  };
  EXPECT_EQ(calls(""), 2u);
  EXPECT_EQ(calls(R"(, "parallel_tool_calls": false)"), 1u);
}

TEST_F(AnswerTest, TheOnlyCallEndsTheEnginesRequest) {
  model_ = HermesModel();
  Start();  // by hand: this engine would go on for ever
  const std::string call = "<tool_call>{\"name\": \"add\"}</tool_call>";
  for (const bool stream : {false, true}) {
    LoopbackClient client(server_->port());
    client.Post("/v1/chat/completions",
                ChatBody(std::string(kTool) + R"(, "parallel_tool_calls": false, "stream": )" +
                         (stream ? "true" : "false")));
    const size_t number = stream ? 2 : 1;
    engine_->Emit(engine_->WaitFor(number).id, call + "\n" + call);
    const HttpResponse response = client.Read();
    const Json answer = stream ? ReadStream(response).answer : Whole(response);
    const Json& choice = answer["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["stop_reason"].is_null());
    EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
    if (!stream) {
      EXPECT_EQ(answer["usage"]["completion_tokens"], call.size());
    }
    EXPECT_TRUE(Eventually([&] { return engine_->active() == 0; }));
  }
  const std::string label = R"({model_name="org/test-model"} )";
  EXPECT_TRUE(MetricsHave("tandem:engine_requests_cancelled_total" + label + "0"));
  EXPECT_TRUE(MetricsHave("tandem:engine_requests_finished_total" + label + "2"));
}

TEST_F(AnswerTest, StopReasonNamesTheStringOrTheToken) {
  Start({.reply = "one STOP two", .annotate = [](const Request&, RequestOutput& output) {
           if (output.finish == FinishReason::kStop) output.stop_token = TokenId(257);
         }});
  const auto reason = [&](std::string_view more) {
    Json found;
    for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
      const bool chat = std::string_view(path).find("chat") != std::string_view::npos;
      const auto body = [&](std::string_view extra) {
        const std::string fields = std::string(more) + std::string(extra);
        return chat ? ChatBody(fields) : CompletionBody(R"("prompt": "p", )" + fields);
      };
      const Json whole = Whole(Post(path, body("")));
      const Json joined = ReadStream(Post(path, body(R"(, "stream": true)"))).answer;
      EXPECT_EQ(joined["choices"][0]["stop_reason"], whole["choices"][0]["stop_reason"]) << path;
      if (chat) {
        found = whole["choices"][0]["stop_reason"];
      } else {
        EXPECT_EQ(found, whole["choices"][0]["stop_reason"]) << path;
      }
    }
    return found;
  };
  EXPECT_EQ(reason(R"("max_tokens": 50, "stop": ["x", "STOP"])"), "STOP");
  EXPECT_EQ(reason(R"("max_tokens": 50, "stop": "STOP", "include_stop_str_in_output": true)"),
            "STOP");
  EXPECT_EQ(reason(R"("max_tokens": 50)"), nullptr);
  EXPECT_EQ(reason(R"("max_tokens": 3, "stop": "STOP")"), nullptr);
  // The model's own end of turn is the rule, not a reason; where it is ignored, the request's own.
  EXPECT_EQ(reason(R"("max_tokens": 50, "stop_token_ids": [257])"), nullptr);
  EXPECT_EQ(reason(R"("max_tokens": 50, "stop_token_ids": [257], "ignore_eos": true)"), 257);
}

TEST_F(AnswerTest, EveryFormatsCallsAreFound) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "add", "parameters": {"properties":
         {"s": {"type": "string"}, "n": {"type": "integer"}}}}}])";
  const std::pair<ToolFormat, std::string> kReplies[] = {
      {ToolFormat::kHermes,
       R"(<tool_call>{"name": "add", "arguments": {"s": "1", "n": 2}}</tool_call>)"},
      {ToolFormat::kLlama3Json, R"({"name": "add", "parameters": {"s": "1", "n": 2}})"},
      {ToolFormat::kQwenXml,
       "<tool_call>\n<function=add>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n2\n"
       "</parameter>\n</function>\n</tool_call>"},
      {ToolFormat::kGlm,
       "<tool_call>add\n<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n<arg_key>n</arg_key>\n"
       "<arg_value>2</arg_value>\n</tool_call>"},
      {ToolFormat::kMistralList,
       R"([TOOL_CALLS][{"name": "add", "arguments": {"s": "1", "n": 2}}])"},
      {ToolFormat::kMistralArgs, R"([TOOL_CALLS]add[ARGS]{"s": "1", "n": 2})"},
      {ToolFormat::kPythonic, "[add(s='1', n=2)]"},
      {ToolFormat::kPythonicTags, "<|tool_call_start|>[add(s='1', n=2)]<|tool_call_end|>"}};
  for (const auto& [format, reply] : kReplies) {
    model_.answer_format = {format};
    Start({.reply = reply});
    const Json whole = Whole(Chat(ChatBody(tools)));
    const Json joined = ReadStream(Chat(ChatBody(tools + R"(, "stream": true)"))).answer;
    for (const Json* answer : {&whole, &joined}) {
      const Json& choice = (*answer)["choices"][0];
      EXPECT_EQ(choice["finish_reason"], "tool_calls") << reply;
      EXPECT_TRUE(choice["message"]["content"].is_null()) << reply;
      ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << reply;
      const Json& call = choice["message"]["tool_calls"][0];
      EXPECT_EQ(call["function"]["name"], "add");
      EXPECT_EQ(call["function"]["arguments"], R"({"s": "1", "n": 2})") << reply;
      // Mistral's templates refuse any others.
      const bool mistral = format == ToolFormat::kMistralList || format == ToolFormat::kMistralArgs;
      EXPECT_EQ(call["id"].get<std::string>().size() == 9, mistral) << call["id"];
    }
    server_.reset();
  }
}

TEST_F(AnswerTest, ToolsReachTheTemplateAsWritten) {
  model_ = HermesModel();
  Start({.reply = "x"});
  Whole(Post("/v1/chat/completions",
             R"({"model": "org/test-model", )" + std::string(kTool) + R"(, "messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "add", "arguments": "{\"b\": 1, \"a\": [2]}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "3"}]})"));
  std::string prompt;
  for (const TokenId t : engine_->WaitFor(1).prompt) prompt += static_cast<char>(t.value());
  EXPECT_THAT(prompt, HasSubstr(R"("parameters": {"z": 1, "a": 2})"));
  EXPECT_THAT(prompt, HasSubstr(R"([add {"b": 1, "a": [2]}])"));
  EXPECT_THAT(prompt, HasSubstr("tool\n3"));
}

// ---- Completions

TEST_F(AnswerTest, CompletionsOfSeveralPrompts) {
  Start({.reply_to = [](const Request& request) {
    return Reply("<" + std::to_string(request.prompt.size()) +
                 std::to_string(request.sample_index) + ">");
  }});
  const Json answer = Whole(Complete(R"("prompt": ["a", "bc"], "n": 2)"));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  ASSERT_EQ(answer["choices"].size(), 4u);
  std::string texts;
  for (const Json& choice : answer["choices"]) texts += choice["text"].get<std::string>();
  EXPECT_EQ(texts, "<10><11><20><21>");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 16);
  EXPECT_EQ(answer["usage"]["total_tokens"], 19);
  EXPECT_EQ(engine_->WaitFor(1).max_output_tokens, 16);
  const JoinedStream streamed = ReadStream(Complete(
      R"("prompt": ["a", "bc"], "n": 2, "stream": true, "stream_options": {"include_usage": true})"));
  EXPECT_EQ(streamed.answer["choices"], answer["choices"]);
  EXPECT_EQ(streamed.answer["usage"], answer["usage"]);
  EXPECT_EQ(Whole(Complete(R"("prompt": [[97], [98, 99]])"))["choices"][1]["text"], "<20>");
}

TEST_F(AnswerTest, EchoScoresThePrompt) {
  Start({.reply = "yz"});
  const Json answer =
      Whole(Complete(R"("prompt": "a\u00e9b", "echo": true, "logprobs": 1, "max_tokens": 1)"));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "a\u00e9by");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"a", "bytes:\\xc3", "bytes:\\xa9", "b", "y"}));
  EXPECT_EQ(logprobs["text_offset"], (Json{0, 1, 1, 2, 3}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  for (int i = 1; i < 5; ++i) {
    const std::string token = logprobs["tokens"][i];
    EXPECT_EQ(logprobs["top_logprobs"][i][token], logprobs["token_logprobs"][i]) << i;
  }
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(engine_->WaitFor(1).prompt_logprobs);
  EXPECT_EQ(
      Whole(Complete(R"("prompt": "ab", "echo": true, "max_tokens": 5)"))["choices"][0]["text"],
      "abyz");
}

TEST_F(AnswerTest, ScoringAloneAnswersWithThePrompt) {
  Start({.reply = "yz"});
  const Json answer =
      Whole(Complete(R"("prompt": [97, 98], "echo": true, "logprobs": 0, "max_tokens": 0)"));
  EXPECT_EQ(answer["choices"][0]["text"], "ab");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"], (Json{"a", "b"}));
  EXPECT_EQ(answer["choices"][0]["logprobs"]["top_logprobs"][1].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  EXPECT_EQ(engine_->WaitFor(1).max_output_tokens, 1);
}

TEST_F(AnswerTest, TheDefaultLimitFitsTheContext) {
  Start({.max_context_tokens = 20, .reply = std::string(50, 'r')});
  const Json answer = Whole(Complete(R"("prompt": "0123456789")"));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 10);
}

// ---- Tokens

TEST_F(AnswerTest, TokenizeAndDetokenize) {
  Start();
  const Json prompt =
      Whole(Post("/tokenize", R"({"prompt": "h\u00e9<|im_end|>", "return_token_strs": true})"));
  EXPECT_EQ(prompt["tokens"], (Json{104, 0xC3, 0xA9, 257}));
  EXPECT_EQ(prompt["token_strs"], (Json{"h", "\\xc3", "\\xa9", "<|im_end|>"}));
  EXPECT_EQ(prompt["count"], 4);
  EXPECT_EQ(prompt["max_model_len"], 4096);
  const Json chat =
      Whole(Post("/tokenize", R"({"messages": [{"role": "user", "content": "<|im_end|>"}]})"));
  EXPECT_TRUE(chat["token_strs"].is_null());
  EXPECT_EQ(std::count(chat["tokens"].begin(), chat["tokens"].end(), 257), 1);
  const Json text = Whole(Post("/detokenize", R"({"tokens": [104, 195, 169, 257]})"));
  EXPECT_EQ(text, (Json{{"prompt", "h\u00e9<|im_end|>"}}));
  EXPECT_EQ(Whole(Post("/detokenize", R"({"tokens": []})"))["prompt"], "");
}

TEST_F(AnswerTest, TheTokenizerIsDescribed) {
  model_.chat_template_source = kTestTemplate;
  Start();
  const Json info = Whole(Get("/tokenizer_info"));
  EXPECT_EQ(info["eos_token"], "<|im_end|>");
  EXPECT_TRUE(info["bos_token"].is_null());
  EXPECT_TRUE(info["pad_token"].is_null());
  EXPECT_EQ(info["chat_template"], kTestTemplate);
  EXPECT_EQ(info["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(info["model_max_length"], 4096);
  EXPECT_EQ(info["added_tokens_decoder"].size(), 2u);
  EXPECT_EQ(info["added_tokens_decoder"]["256"]["content"], "<|im_start|>");
  EXPECT_EQ(info["added_tokens_decoder"]["256"]["special"], true);
}

TEST_F(AnswerTest, AModelWithoutTemplateStillCompletes) {
  model_.chat_template = nullptr;
  Start({.reply = "x"});
  EXPECT_EQ(Whole(Complete(R"("prompt": "a")"))["choices"][0]["text"], "x");
  const HttpResponse chat = Chat(ChatBody());
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(Json::parse(chat.body)["error"]["param"], "messages");
  EXPECT_THAT(chat.body, HasSubstr("/v1/completions"));
}

TEST_F(AnswerTest, TheLastMessageIsContinued) {
  Start({.reply = "x"});
  Whole(Post("/v1/chat/completions", R"({"model": "org/test-model", "continue_final_message": true,
      "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "So be "}]})"));
  const Request request = engine_->WaitFor(1);
  std::string end;
  for (size_t i = request.prompt.size() - 6; i < request.prompt.size(); ++i) {
    end += static_cast<char>(request.prompt[i].value());
  }
  EXPECT_EQ(end, "So be ");
}

// ---- Streamed and whole answers are the same for every cut

// Paths and bodies.
std::vector<std::pair<std::string, std::string>> KindsOfRequests() {
  return {
      {"/v1/chat/completions",
       ChatBody(std::string(kTool) + R"(, "seed": 1, "n": 2, "logprobs": true,
        "top_logprobs": 2, "return_token_ids": true, "stop": ["STOP", "never"])")},
      {"/v1/chat/completions",
       ChatBody(std::string(kTool) + R"(, "logprobs": true, "max_tokens": 60)")},
      {"/v1/chat/completions",
       ChatBody(std::string(kTool) + R"(, "logprobs": true, "return_token_ids": true,
        "parallel_tool_calls": false, "stop": "STOP")")},
      {"/v1/chat/completions", ChatBody(R"("stop": "\u20ac", "logprobs": true, "n": 3)")},
      {"/v1/chat/completions", ChatBody(std::string(kTool) + R"(, "stop": "STOP",
        "include_stop_str_in_output": true, "skip_special_tokens": false)")},
      {"/v1/completions", CompletionBody(R"("prompt": ["a\u00e9", "b"], "n": 2, "max_tokens": 300,
        "echo": true, "logprobs": 2, "stop": ["STOP"], "return_token_ids": true)")},
      {"/v1/completions", CompletionBody(R"("prompt": [[97, 195]], "max_tokens": 0, "echo": true,
        "logprobs": 1)")},
  };
}

TEST_F(AnswerTest, EveryCutOfEveryKindOfAnswerGivesTheSame) {
  model_ = HermesModel();
  const std::string call =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"t\": \"\xE2\x82\xAC\", \"n\": [1, "
      "2]}}\n</tool_call>";
  const std::string reply =
      "<think>\nna\xC3\xAFve\n</think>\n\nSTO \xF0\x9F\x98\x80 " + call + "\n" + call + " ST";
  const auto reply_to = [&](const Request& request) {
    std::vector<TokenId> tokens = Reply(reply, {256});
    for (const TokenId token : Reply(" tail STOP\xE2\x82" + std::to_string(request.sample_index))) {
      tokens.push_back(token);
    }
    return tokens;
  };
  const std::vector<std::pair<std::string, std::string>> calls = KindsOfRequests();
  std::vector<Json> first;
  for (uint32_t round = 0; round < 12; ++round) {
    FakeEngine::Options options{.reply_to = reply_to};
    options.annotate = [](const Request& request, RequestOutput& output) {
      output.cached_tokens = static_cast<int32_t>(request.prompt.size()) - 1;
      output.times.arrival = request.arrival;
    };
    if (round > 0) options.cut_seed = round;
    Start(std::move(options));
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto& [path, body] = calls[i];
      Json whole = Whole(Post(path, body));
      std::string stream = body;
      stream.insert(stream.size() - 1,
                    R"(, "stream": true, "stream_options": {"include_usage": true})");
      JoinedStream joined = ReadStream(Post(path, stream));
      EXPECT_TRUE(joined.done);
      for (Json* answer : {&whole, &joined.answer}) {
        for (const char* own : {"id", "created", "object", "model", "system_fingerprint"}) {
          answer->erase(own);
        }
        // Each is a request of its own.
        EXPECT_EQ((*answer)["usage"].erase("timing"), 1u);
        for (Json& choice : (*answer)["choices"]) {
          if (!choice.contains("message") || !choice["message"].contains("tool_calls")) continue;
          for (Json& made : choice["message"]["tool_calls"]) made.erase("id");
        }
      }
      ASSERT_EQ(joined.answer, whole) << path << " " << i << " round " << round;
      if (round == 0) {
        first.push_back(whole);
      } else {
        ASSERT_EQ(whole, first[i]) << path << " " << i << " round " << round;
      }
    }
    EXPECT_TRUE(Eventually([&] { return engine_->active() == 0; }));
    server_.reset();
  }
  EXPECT_EQ(first[0]["choices"][1]["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(first[0]["choices"][0]["message"]["reasoning_content"], "na\u00efve");
}

}  // namespace
}  // namespace tandem
