#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <random>

#include "server/test_client.h"

namespace tandem {
namespace {

// /hello, /echo and /big answer at once; /later leaves its exchange to the test; /drop lets go of
// it.
class TestHandler final : public HttpHandler {
 public:
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    ++handled;
    if (request.path == "/hello") {
      exchange->Respond({.content_type = "text/plain", .body = "hello"});
    } else if (request.path == "/echo") {
      exchange->Respond({.content_type = "text/plain", .body = request.body});
    } else if (request.path == "/big") {
      exchange->Respond({.content_type = "text/plain", .body = std::string(100'000, 'b')});
    } else if (request.path == "/later") {
      exchange->OnAbort([this] { ++aborted; });
      std::lock_guard lock(mutex);
      later.push_back(std::move(exchange));
    } else if (request.path != "/drop") {
      exchange->Respond(ErrorResponse(404, "no such path"));
    }
  }
  HttpResponse ErrorResponse(int status, std::string_view message) override {
    return {.status = status, .content_type = "text/plain", .body = std::string(message)};
  }

  // The n-th exchange left for later (from 0).
  std::shared_ptr<HttpExchange> Later(size_t n) {
    EXPECT_TRUE(Eventually([&] {
      std::lock_guard lock(mutex);
      return later.size() > n;
    }));
    std::lock_guard lock(mutex);
    return later.at(n);
  }

  std::atomic<int> handled{0};
  std::atomic<int> aborted{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpExchange>> later;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpConfig config = {}) {
    config.port = 0;
    auto server = HttpServer::Create(config, handler_);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(server).value();
    server_->Start();
  }
  uint16_t port() const { return server_->port(); }

  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

void RespondLater(const std::shared_ptr<HttpExchange>& exchange, std::string body) {
  exchange->Post([exchange, body] { exchange->Respond({.body = body}); });
}

TEST_F(HttpServerTest, AnswersManyRequestsOnOneConnection) {
  Start();
  LoopbackClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.Get("/hello");
    const HttpResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
    EXPECT_EQ(LoopbackClient::Header(response, "Connection"), "keep-alive");
    EXPECT_NE(LoopbackClient::Header(response, "Date"), "");
  }
  client.Post("/echo", "some words");
  EXPECT_EQ(client.Read().body, "some words");
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, ConnectionCloseIsHonoured) {
  Start();
  LoopbackClient client(port());
  client.Send("GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.ReadToEnd().ends_with("hello"));
}

TEST_F(HttpServerTest, RequestsMayArriveByteByByte) {
  Start();
  LoopbackClient client(port());
  for (const char c : LoopbackClient::Request("POST", "/echo", "abc")) {
    client.Send(std::string_view(&c, 1));
  }
  EXPECT_EQ(client.Read().body, "abc");
}

TEST_F(HttpServerTest, LargeBodiesArriveWhole) {
  Start();
  LoopbackClient client(port());
  std::string body;
  for (int i = 0; body.size() < 3'000'000; ++i) body += std::to_string(i);
  client.Post("/echo", body);
  EXPECT_TRUE(client.Read().body == body);
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (size_t from = 0; from < body.size(); from += 0x10000) {
    const std::string chunk = body.substr(from, 0x10000);
    char size[16];
    snprintf(size, sizeof size, "%zx\r\n", chunk.size());
    client.Send(size + chunk + "\r\n");
  }
  client.Send("0\r\n\r\n");
  EXPECT_TRUE(client.Read().body == body);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  LoopbackClient client(port());
  client.Send(LoopbackClient::Request("GET", "/later") + LoopbackClient::Request("GET", "/hello") +
              "\r\n" + LoopbackClient::Request("POST", "/echo", "last"));
  const auto exchange = handler_.Later(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(handler_.handled, 1) << "the second must wait for the first";
  RespondLater(exchange, "first");
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "hello");
  EXPECT_EQ(client.Read().body, "last");
}

TEST_F(HttpServerTest, PipelinedFloodIsNotReadAhead) {
  Start({.pipelined_bytes_max = 16 * 1024});
  LoopbackClient client(port());
  client.Get("/later");
  handler_.Later(0);
  const std::string flood(64 * 1024, '\n');
  size_t sent = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t now = client.SendNoWait(flood);
    sent += now;
    if (now == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // What the two kernels' buffers take is some megabytes; the flood is 128 MiB.
  EXPECT_LT(sent, 32u * 1024 * 1024);
}

TEST_F(HttpServerTest, MalformedRequestsAreRefusedAndTheConnectionEnds) {
  Start();
  for (const char* bytes : {
           "nonsense\r\n\r\n", "GET\r\n\r\n", "GET /hello\r\n\r\n",
           "GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", "GET /hello HTTP/1.1\r\n\r\n",
           "GET /hel lo HTTP/1.1\r\nHost: x\r\n\r\n",
           "GET /hello HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
           "GET /hello HTTP/1.1\r\nHost: x\r\n: empty\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
           "chunked\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  // somebody speaks TLS
       }) {
    LoopbackClient client(port());
    client.Send(bytes);
    const HttpResponse response = client.Read();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_EQ(LoopbackClient::Header(response, "Connection"), "close") << bytes;
    client.ReadToEnd();
  }
  EXPECT_EQ(handler_.handled, 0);
}

TEST_F(HttpServerTest, RandomBytesNeverStopTheServer) {
  Start();
  std::mt19937 random(7);
  const std::string sample =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: "
      "x\r\n\r\n";
  for (int i = 0; i < 300; ++i) {
    std::string bytes = sample + sample;
    for (int edits = 0; edits < 4; ++edits) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % bytes.size() + 1);
    LoopbackClient client(port());
    client.Send(bytes);
  }
  LoopbackClient client(port());
  client.Get("/hello");
  EXPECT_EQ(client.Read().body, "hello");
}

TEST_F(HttpServerTest, OversizedHeadersAndBodiesAreRefused) {
  Start({.header_bytes_max = 1024, .body_bytes_max = 1000});
  {
    LoopbackClient client(port());
    client.Send("GET /hello HTTP/1.1\r\nHost: x\r\nA: " + std::string(2000, 'a') + "\r\n\r\n");
    EXPECT_EQ(client.Read().status, 431);
  }
  {
    LoopbackClient client(port());
    client.Send("GET /" + std::string(2000, 'a'));
    EXPECT_EQ(client.Read().status, 431);
  }
  {
    LoopbackClient client(port());
    client.Post("/echo", std::string(1001, 'a'));
    EXPECT_EQ(client.Read().status, 413);
  }
  {
    LoopbackClient client(port());
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" +
                std::string(1000, 'a') + "\r\n1\r\na\r\n0\r\n\r\n");
    EXPECT_EQ(client.Read().status, 413);
  }
  {
    LoopbackClient client(port());
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                std::string(40'000, 'e'));
    EXPECT_EQ(client.Read().status, 400);
  }
  LoopbackClient client(port());
  client.Post("/echo", std::string(1000, 'a'));
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpServerTest, LargeRefusedUploadStillSeesItsAnswer) {
  Start({.body_bytes_max = 1000});
  LoopbackClient client(port());
  EXPECT_TRUE(client.Send(LoopbackClient::Request("POST", "/echo", std::string(8'000'000, 'a'))));
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(HttpServerTest, AllBodiesTogetherAreBounded) {
  Start({.body_bytes_max = 1000, .all_bodies_bytes_max = 1500});
  LoopbackClient first(port());
  first.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\nabc");
  LoopbackClient second(port());
  ASSERT_TRUE(Eventually([&] {
    LoopbackClient probe(port());
    probe.Post("/echo", std::string(900, 'p'));
    return probe.Read().status == 503;
  }));
  first.Close();
  EXPECT_TRUE(Eventually([&] {
    LoopbackClient probe(port());
    probe.Post("/echo", std::string(900, 'p'));
    return probe.Read().status == 200;
  }));
}

TEST_F(HttpServerTest, SlowRequestsTimeOut) {
  Start({.header_timeout_ms = 100, .body_timeout_ms = 100});
  LoopbackClient header(port());
  header.Send("GET /hello HTTP/1.1\r\nHo");
  LoopbackClient body(port());
  body.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(header.Read().status, 408);
  EXPECT_EQ(body.Read().status, 408);
  // A byte now and then does not buy time.
  LoopbackClient drip(port());
  for (int i = 0; i < 50; ++i) {
    if (!drip.Send("x")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(drip.Read().status, 408);
}

TEST_F(HttpServerTest, IdleConnectionsAreClosedInTime) {
  Start({.idle_timeout_ms = 100});
  LoopbackClient never_spoke(port());
  LoopbackClient client(port());
  client.Get("/hello");
  client.Read();
  EXPECT_EQ(never_spoke.ReadToEnd(), "");
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  Start();
  LoopbackClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  const HttpResponse interim = client.Read();
  EXPECT_EQ(interim.status, 100);
  client.Send("ok");
  EXPECT_EQ(client.Read().body, "ok");
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_EQ(client.Read().status, 417);
}

TEST_F(HttpServerTest, ExpectContinueOfATooLargeBodyIsRefusedBeforeIt) {
  Start({.body_bytes_max = 1000});
  LoopbackClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n");
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(HttpServerTest, HeadAnswersWithoutBody) {
  Start();
  LoopbackClient client(port());
  client.Send(LoopbackClient::Request("HEAD", "/hello") + LoopbackClient::Request("GET", "/hello"));
  EXPECT_EQ(LoopbackClient::Header(client.Read(/*head_only=*/true), "Content-Length"), "5");
  EXPECT_EQ(client.Read().body, "hello");
}

TEST_F(HttpServerTest, ChunkedBodiesAreJoined) {
  Start();
  LoopbackClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.Send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "abcde");
}

TEST_F(HttpServerTest, StreamsLeaveAsTheyAreWritten) {
  Start();
  LoopbackClient client(port());
  client.Get("/later");
  const auto exchange = handler_.Later(0);
  exchange->Post([exchange] {
    exchange->StartStream({.content_type = "text/event-stream"});
    EXPECT_TRUE(exchange->Write("one,").ok());
  });
  EXPECT_TRUE(client.ReadUntil("one,"));
  exchange->Post([exchange] {
    EXPECT_TRUE(exchange->Write("two,").ok());
    exchange->Finish("three");
  });
  EXPECT_EQ(client.Read().body, "one,two,three");
  client.Get("/hello");
  EXPECT_EQ(client.Read().body, "hello");
  EXPECT_EQ(handler_.aborted, 0);
}

TEST_F(HttpServerTest, OldClientsGetTheStreamWithoutChunks) {
  Start();
  LoopbackClient client(port());
  client.Send("GET /later HTTP/1.0\r\n\r\n");
  const auto exchange = handler_.Later(0);
  exchange->Post([exchange] {
    exchange->StartStream({});
    exchange->Finish("all of it");
  });
  EXPECT_TRUE(client.ReadToEnd().ends_with("\r\n\r\nall of it"));
}

TEST_F(HttpServerTest, CallsOfAPastExchangeDoNothing) {
  Start();
  LoopbackClient client(port());
  client.Send(LoopbackClient::Request("GET", "/later") + LoopbackClient::Request("GET", "/later"));
  const auto first = handler_.Later(0);
  RespondLater(first, "first");
  const auto second = handler_.Later(1);
  RespondLater(first, "again");
  first->Post([first] { EXPECT_FALSE(first->Write("more").ok()); });
  RespondLater(second, "second");
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "second");
}

TEST_F(HttpServerTest, DroppedExchangeAnswers500) {
  Start();
  LoopbackClient client(port());
  client.Get("/drop");
  EXPECT_EQ(client.Read().status, 500);
  client.Get("/hello");
  EXPECT_EQ(client.Read().body, "hello");
}

TEST_F(HttpServerTest, DisconnectAbortsWhileTheAnswerIsComputed) {
  Start();
  LoopbackClient client(port());
  client.Get("/later");
  const auto exchange = handler_.Later(0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return handler_.aborted == 1; }));
  RespondLater(exchange, "too late");
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, DisconnectAbortsAStream) {
  Start();
  LoopbackClient client(port());
  client.Get("/later");
  const auto exchange = handler_.Later(0);
  exchange->Post([exchange] {
    exchange->StartStream({});
    EXPECT_TRUE(exchange->Write("some").ok());
  });
  EXPECT_TRUE(client.ReadUntil("some"));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return handler_.aborted == 1; }));
}

TEST_F(HttpServerTest, SlowReaderIsBoundedAndHoldsNobody) {
  Start({.unread_bytes_max = 64 * 1024, .send_buffer_bytes = 8 * 1024});
  LoopbackClient slow(port(), /*receive_buffer_bytes=*/4 * 1024);
  slow.Get("/later");
  const auto exchange = handler_.Later(0);
  std::atomic<int> written{0};
  std::atomic<bool> refused{false};
  exchange->Post([exchange] { exchange->StartStream({}); });
  for (int i = 0; i < 1000 && !refused; ++i) {
    exchange->Post([&, exchange] {
      if (refused) return;
      const Status status = exchange->Write(std::string(1000, 'w'));
      if (status.ok()) {
        ++written;
      } else {
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
        refused = true;
        exchange->Finish("given up");
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ASSERT_TRUE(Eventually([&] { return refused.load(); }));
  EXPECT_GE(written, 60);
  EXPECT_LT(written, 500) << "more was taken than the limit and the kernel's buffers explain";
  LoopbackClient other(port());
  other.Get("/hello");
  EXPECT_EQ(other.Read().body, "hello");
  // The reader that wakes up sees the end.
  EXPECT_TRUE(slow.Read().body.ends_with("given up"));
}

TEST_F(HttpServerTest, ReaderThatStopsIsCutOff) {
  Start({.send_buffer_bytes = 8 * 1024, .write_timeout_ms = 100});
  LoopbackClient stopped(port(), 4 * 1024);
  for (int i = 0; i < 20; ++i) stopped.Get("/big");
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
  EXPECT_LT(handler_.handled, 20);
}

TEST_F(HttpServerTest, ThousandIdleConnectionsNeedNoThreads) {
  Start();
  std::vector<std::unique_ptr<LoopbackClient>> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(std::make_unique<LoopbackClient>(port()));
    ASSERT_TRUE(idle.back()->connected()) << i;
    if (i % 2 == 0) idle.back()->Get("/hello");
  }
  for (size_t i = 0; i < idle.size(); i += 2) ASSERT_EQ(idle[i]->Read().body, "hello") << i;
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 1000; }));
  std::ifstream status("/proc/self/status");
  int threads = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) threads = std::atoi(line.c_str() + 8);
  }
  EXPECT_GT(threads, 0);
  EXPECT_LE(threads, 4);
  idle[999]->Get("/hello");
  EXPECT_EQ(idle[999]->Read().body, "hello");
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitWait) {
  Start({.connections_max = 2});
  auto first = std::make_unique<LoopbackClient>(port());
  LoopbackClient second(port());
  LoopbackClient third(port());
  ASSERT_TRUE(Eventually([&] { return server_->connections() == 2; }));
  third.Get("/hello");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(handler_.handled, 0);
  first.reset();
  EXPECT_EQ(third.Read().body, "hello");
}

TEST_F(HttpServerTest, StopAnswersWhatRunsAndClosesTheRest) {
  Start();
  LoopbackClient idle(port());
  LoopbackClient busy(port());
  busy.Get("/later");
  const auto exchange = handler_.Later(0);
  LoopbackClient half(port());
  half.Send("GET /hello HTTP/1.1\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));

  std::atomic<bool> stopped{false};
  std::thread stopping([&] {
    server_->Stop();
    stopped = true;
  });
  EXPECT_EQ(idle.ReadToEnd(), "");
  half.Send("Host: x\r\n\r\n");
  EXPECT_EQ(half.Read().status, 503);
  EXPECT_FALSE(stopped);
  RespondLater(exchange, "done");
  const HttpResponse response = busy.Read();
  EXPECT_EQ(response.body, "done");
  EXPECT_EQ(LoopbackClient::Header(response, "Connection"), "close");
  busy.Close();
  half.Close();
  stopping.join();
  EXPECT_FALSE(LoopbackClient(port()).connected());
}

TEST_F(HttpServerTest, StopNowEndsAStopThatWaits) {
  Start();
  LoopbackClient busy(port());
  busy.Get("/later");
  handler_.Later(0);
  std::thread stopping([&] { server_->Stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server_->StopNow();
  stopping.join();
  EXPECT_EQ(handler_.aborted, 1);
  EXPECT_EQ(busy.ReadToEnd(), "");
}

TEST_F(HttpServerTest, ExchangesMayOutliveTheServer) {
  Start();
  LoopbackClient busy(port());
  busy.Get("/later");
  const auto exchange = handler_.Later(0);
  server_.reset();
  RespondLater(exchange, "nobody listens");
  EXPECT_FALSE(exchange->Write("nobody").ok());
}

TEST_F(HttpServerTest, BindErrorsNameTheFix) {
  Start();
  HttpConfig config;
  config.port = port();
  const auto second = HttpServer::Create(config, handler_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            "port " + std::to_string(port()) + " is in use: choose another with --port");
  config.port = 0;
  config.host = "192.0.2.1";  // a documentation address: never ours
  const auto elsewhere = HttpServer::Create(config, handler_);
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_NE(elsewhere.status().message().find("--host"), std::string::npos);
}

}  // namespace
}  // namespace tandem
