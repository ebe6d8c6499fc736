#include "server/access.h"

#include <gtest/gtest.h>

#include "server/test_server.h"

namespace tandem {
namespace {

using Json = TestJson;

TEST(EqualInConstantTime, ComparesWholeKeys) {
  EXPECT_TRUE(EqualInConstantTime("secret", "secret"));
  EXPECT_FALSE(EqualInConstantTime("secret", "secre"));
  EXPECT_FALSE(EqualInConstantTime("secret", "secrets"));
  EXPECT_FALSE(EqualInConstantTime("secret", "Secret"));
  EXPECT_FALSE(EqualInConstantTime("secret", ""));
  EXPECT_FALSE(EqualInConstantTime("ab", "abab")) << "no key is a repeated one";
}

class AccessTest : public ServerTest {
 protected:
  HttpResponse Send(std::string_view method, std::string_view path, std::string_view headers,
                    std::string_view body = {}) {
    LoopbackClient client(server_->port());
    std::string text = LoopbackClient::Request(method, path, body);
    text.insert(text.find("\r\n") + 2, headers);
    client.Send(text);
    return client.Read(method == "HEAD");
  }
};

TEST_F(AccessTest, EverythingButHealthNeedsAKey) {
  ServerConfig config;
  config.api_keys = {"first-key", "second"};
  Start({.reply = "x"}, config);
  for (const char* path : {"/health", "/health/live"}) EXPECT_EQ(Get(path).status, 200) << path;
  for (const char* path : {"/v1/models", "/metrics", "/version", "/openapi.json", "/health/ready",
                           "/nothing", "/v1/models/org/test-model"}) {
    const HttpResponse response = Get(path);
    EXPECT_EQ(response.status, 401) << path;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "invalid_api_key");
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(LoopbackClient::Header(response, "WWW-Authenticate"), "Bearer");
  }
  const auto chat = [&](std::string_view header) {
    return Send("POST", "/v1/chat/completions", header, ChatBody()).status;
  };
  EXPECT_EQ(chat(""), 401);
  EXPECT_EQ(chat("Authorization: Bearer second\r\n"), 200);
  EXPECT_EQ(chat("authorization: bearer first-key\r\n"), 200);
  EXPECT_EQ(chat("Authorization: Bearer secon\r\n"), 401);
  EXPECT_EQ(chat("Authorization: Bearer secondd\r\n"), 401);
  EXPECT_EQ(chat("Authorization: Bearer\r\n"), 401);
  EXPECT_EQ(chat("Authorization: Basic second\r\n"), 401);
  EXPECT_EQ(chat("Authorization: second\r\n"), 401);
  EXPECT_EQ(Send("GET", "/nothing", "Authorization: Bearer second\r\n").status, 404);
  EXPECT_EQ(engine_->WaitFor(2).prompt.empty(), false);
}

TEST_F(AccessTest, KeysShareNoCache) {
  ServerConfig config;
  config.api_keys = {"first-key", "second", "first-key"};
  Start({.reply = "x"}, config);
  auto salt = [&, n = size_t{0}](std::string_view key, std::string_view more) mutable {
    const std::string header = "Authorization: Bearer " + std::string(key) + "\r\n";
    EXPECT_EQ(Send("POST", "/v1/chat/completions", header, ChatBody(more)).status, 200);
    return engine_->WaitFor(++n).cache_salt;
  };
  const std::string first = salt("first-key", "");
  const std::string second = salt("second", "");
  EXPECT_NE(first, second);
  EXPECT_EQ(first.size(), second.size());
  EXPECT_EQ(salt("first-key", ""), first);
  EXPECT_EQ(salt("first-key", R"("cache_salt": "s")"), first + "s");
  EXPECT_EQ(salt("second", R"("cache_salt": "s")"), second + "s");
  EXPECT_EQ(first.find("first-key"), std::string::npos) << "the engine's logs have the salt";
}

TEST_F(AccessTest, WithoutKeysAnyAuthorizationPasses) {
  Start();
  EXPECT_EQ(Send("GET", "/v1/models", "Authorization: Bearer none\r\n").status, 200);
}

TEST_F(AccessTest, PagesOfAllowedOriginsMayRead) {
  ServerConfig config;
  config.cors_origins = {"https://a.example", "http://localhost:3000"};
  config.api_keys = {"k"};
  Start({.reply = "x"}, config);
  const auto origin = [&](std::string_view headers) {
    return LoopbackClient::Header(Send("GET", "/health", headers), "Access-Control-Allow-Origin");
  };
  EXPECT_EQ(origin("Origin: http://localhost:3000\r\n"), "http://localhost:3000");
  EXPECT_EQ(origin("Origin: https://evil.example\r\n"), "");
  EXPECT_EQ(origin(""), "");
  // Errors and streams can be read too, and a preflight needs no key.
  EXPECT_EQ(LoopbackClient::Header(Send("GET", "/v1/models", "Origin: https://a.example\r\n"),
                                   "Access-Control-Allow-Origin"),
            "https://a.example");
  const HttpResponse stream = Send("POST", "/v1/chat/completions",
                                   "Origin: https://a.example\r\nAuthorization: Bearer k\r\n",
                                   ChatBody(R"("stream": true)"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(LoopbackClient::Header(stream, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(LoopbackClient::Header(stream, "Vary"), "Origin");
  EXPECT_EQ(LoopbackClient::Header(stream, "Access-Control-Expose-Headers"),
            "retry-after, retry-after-ms, x-should-retry, x-retry-elsewhere");
  const HttpResponse preflight =
      Send("OPTIONS", "/v1/chat/completions",
           "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
           "Access-Control-Request-Headers: authorization, x-stainless-lang\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(LoopbackClient::Header(preflight, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(LoopbackClient::Header(preflight, "Access-Control-Allow-Methods"), "POST, OPTIONS");
  EXPECT_EQ(LoopbackClient::Header(preflight, "Access-Control-Allow-Headers"),
            "authorization, x-stainless-lang");
}

TEST_F(AccessTest, AllOriginsOrNone) {
  ServerConfig config;
  config.cors_origins = {"*"};
  Start({}, config);
  EXPECT_EQ(LoopbackClient::Header(Send("GET", "/health", "Origin: https://b.example\r\n"),
                                   "Access-Control-Allow-Origin"),
            "*");
  server_.reset();
  Start();
  const HttpResponse response = Send("GET", "/health", "Origin: https://b.example\r\n");
  EXPECT_EQ(LoopbackClient::Header(response, "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(LoopbackClient::Header(response, "Vary"), "");
}

TEST_F(AccessTest, FormsAreRefusedAndJsonIsTakenUnderAnyName) {
  Start({.reply = "x"});
  const auto status = [&](std::string_view type, std::string_view body) {
    return Send("POST", "/v1/chat/completions", "Content-Type: " + std::string(type) + "\r\n", body)
        .status;
  };
  EXPECT_EQ(status("application/json; charset=utf-8", ChatBody()), 200);
  EXPECT_EQ(status("text/plain", ChatBody()), 200);
  EXPECT_EQ(status("application/x-www-form-urlencoded", ChatBody()), 200);
  EXPECT_EQ(status("application/x-www-form-urlencoded", "model=x&prompt=y"), 415);
  EXPECT_EQ(status("multipart/form-data; boundary=b", "--b\r\n"), 415);
}

}  // namespace
}  // namespace tandem
