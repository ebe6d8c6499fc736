// What: a server over a fake engine for this module's tests, and a client's view of its streams.
// Not here: the tests.
// Threads: as the tests use it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/server.h"
#include "server/test_engine.h"
#include "text/chat_template.h"
#include "text/unicode.h"

namespace tandem {

using TestJson = nlohmann::json;

// Shows tools as JSON, calls and results like the Hermes format, and two variables of a request.
inline constexpr std::string_view kTestTemplate =
    "{% if tools %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% if reasoning_effort %}{{ '<|im_start|>effort ' + reasoning_effort + '<|im_end|>\\n' }}"
    "{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "}}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '[' + call.function.name + ' ' + (call.function.arguments | tojson) + ']' }}{% endfor %}"
    "{{ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n' "
    "}}"
    "{% endif %}{% endif %}";

inline std::shared_ptr<const ChatTemplate> MakeTemplate() {
  Result<ChatTemplate> made = ChatTemplate::Create(kTestTemplate, "", "<|im_end|>");
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::make_shared<const ChatTemplate>(std::move(made).value());
}

inline ServedModel MakeModel() {
  ServedModel model;
  model.name = "org/test-model";
  model.aliases = {"other-name"};
  model.created_s = 1'700'000'000;
  model.fingerprint = "fp_test";
  model.tokenizer = MakeByteTokenizer();
  model.chat_template = MakeTemplate();
  model.stop_tokens = {TokenId(257)};
  return model;
}

inline std::string ChatBody(std::string_view more = {}, std::string_view content = "hi") {
  TestJson body = {{"model", "org/test-model"},
                   {"messages", {{{"role", "user"}, {"content", std::string(content)}}}}};
  std::string text = body.dump();
  if (!more.empty()) text.insert(text.size() - 1, ", " + std::string(more));
  return text;
}

inline std::string CompletionBody(std::string_view more) {
  return R"({"model": "org/test-model", )" + std::string(more) + "}";
}

// A stream's chunks joined to what the whole answer would say; the stream's form is checked on the
// way. Error and usage chunks become "error" and "usage".
struct JoinedStream {
  TestJson answer = TestJson::object();
  bool done = false;
  int chunks = 0;
};

class StreamJoiner {
 public:
  static JoinedStream Join(const HttpResponse& response) {
    StreamJoiner joiner;
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(LoopbackClient::Header(response, "Content-Type"),
                testing::HasSubstr("text/event-stream"));
    size_t from = 0;
    while (from < response.body.size()) {
      const size_t end = response.body.find("\n\n", from);
      EXPECT_NE(end, std::string::npos);
      if (end == std::string::npos) break;
      joiner.Event(response.body.substr(from, end - from));
      from = end + 2;
    }
    return joiner.Take();
  }

 private:
  void Event(const std::string& event) {
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_FALSE(out_.done) << "nothing follows [DONE]";
    if (event == "data: [DONE]") {
      out_.done = true;
      return;
    }
    ++out_.chunks;
    const TestJson chunk = TestJson::parse(event.substr(6));
    if (chunk.contains("error")) {
      out_.answer["error"] = chunk["error"];
      return;
    }
    EXPECT_TRUE(id_.empty() || id_ == chunk["id"]);
    id_ = chunk["id"];
    if (chunk.contains("prompt_token_ids")) {
      EXPECT_EQ(out_.chunks, 1);
      out_.answer["prompt_token_ids"] = chunk["prompt_token_ids"];
    }
    if (chunk["choices"].empty()) {
      out_.answer["usage"] = chunk["usage"];
      return;
    }
    EXPECT_EQ(chunk["choices"].size(), 1u);
    Choice(chunk["choices"][0]);
  }

  void Choice(const TestJson& choice) {
    TestJson& to = choices_[choice["index"].get<int>()];
    EXPECT_FALSE(to.contains("finish_reason")) << "nothing follows the finish";
    const bool first = to.is_null();
    if (first) to = {{"index", choice["index"]}};
    if (choice.contains("delta")) Delta(choice["delta"], first, to["message"]);
    if (choice.contains("text")) AppendText(choice["text"], to["text"]);
    if (!to.contains("logprobs")) to["logprobs"] = nullptr;
    if (!choice["logprobs"].is_null()) {
      for (const auto& [name, list] : choice["logprobs"].items()) {
        TestJson& joined = to["logprobs"][name];
        if (list.is_null()) joined = nullptr;
        for (const TestJson& entry : list) joined.push_back(entry);
        if (list.is_array() && joined.is_null()) joined = TestJson::array();
      }
    }
    for (const char* name : {"token_ids", "prompt_token_ids"}) {
      if (!choice.contains(name)) continue;
      if (!to.contains(name)) to[name] = TestJson::array();
      for (const TestJson& id : choice[name]) to[name].push_back(id);
    }
    EXPECT_EQ(choice.contains("stop_reason"), !choice["finish_reason"].is_null());
    if (choice["finish_reason"].is_null()) return;
    to["finish_reason"] = choice["finish_reason"];
    to["stop_reason"] = choice["stop_reason"];
  }

  static void AppendText(const TestJson& piece, TestJson& to) {
    EXPECT_TRUE(IsValidUtf8(piece.get<std::string>()));
    if (to.is_null()) to = "";
    to.get_ref<std::string&>() += piece.get<std::string>();
  }

  static void Delta(const TestJson& delta, bool first, TestJson& message) {
    EXPECT_EQ(delta.contains("role"), first) << "the role comes first and once";
    if (first) message = {{"role", delta.value("role", "")}, {"content", nullptr}};
    for (const char* name : {"content", "reasoning_content"}) {
      if (delta.contains(name)) AppendText(delta[name], message[name]);
    }
    if (!delta.contains("tool_calls")) return;
    EXPECT_EQ(delta["tool_calls"].size(), 1u);
    const TestJson& call = delta["tool_calls"][0];
    TestJson& calls = message["tool_calls"];
    if (call.contains("id")) {
      EXPECT_EQ(call["index"], calls.size());
      EXPECT_EQ(call["type"], "function");
      calls.push_back({{"id", call["id"]},
                       {"type", "function"},
                       {"function", {{"name", call["function"]["name"]}, {"arguments", ""}}}});
    }
    AppendText(call["function"]["arguments"],
               calls[call["index"].get<size_t>()]["function"]["arguments"]);
  }

  JoinedStream Take() {
    out_.answer["choices"] = TestJson::array();
    for (auto& [index, choice] : choices_) {
      EXPECT_EQ(index, static_cast<int>(out_.answer["choices"].size()));
      // A whole answer has null where there is nothing but calls.
      if (choice.contains("message")) {
        TestJson& message = choice["message"];
        if (message["content"] == "" && message.contains("tool_calls"))
          message["content"] = nullptr;
        message["refusal"] = nullptr;
      }
      out_.answer["choices"].push_back(choice);
    }
    return std::move(out_);
  }

  JoinedStream out_;
  std::map<int, TestJson> choices_;
  std::string id_;
};

inline JoinedStream ReadStream(const HttpResponse& response) {
  return StreamJoiner::Join(response);
}

class ServerTest : public testing::Test {
 protected:
  void Start(FakeEngine::Options options = {}, ServerConfig config = {}) {
    engine_ = std::make_unique<FakeEngine>(std::move(options));
    config.http.port = 0;
    auto server = Server::Create(config, model_, *engine_, clock_);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(server).value();
    server_->Start();
  }
  HttpResponse Get(std::string_view path) {
    LoopbackClient client(server_->port());
    client.Get(path);
    return client.Read();
  }
  HttpResponse Post(std::string_view path, std::string_view body) {
    LoopbackClient client(server_->port());
    client.Post(path, body);
    return client.Read();
  }
  HttpResponse Chat(std::string_view body) { return Post("/v1/chat/completions", body); }
  HttpResponse Complete(std::string_view more) {
    return Post("/v1/completions", CompletionBody(more));
  }
  bool MetricsHave(const std::string& line) {
    return Get("/metrics").body.find(line + "\n") != std::string::npos;
  }

  ManualClock clock_;
  ServedModel model_ = MakeModel();
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace tandem
