// What: what the tests of this module share: a raw loopback client, a byte-level tokenizer, a fake engine.
// Not here: the tests.
// Threads: a LoopbackClient belongs to one thread; FakeEngine's methods are for any.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/engine_client.h"
#include "server/http_message.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace tandem {

// True as soon as `condition` is, within ten seconds.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

// Speaks to 127.0.0.1 byte by byte; no read waits longer than ten seconds.
class LoopbackClient {
 public:
  explicit LoopbackClient(uint16_t port, int receive_buffer_bytes = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_GE(fd_, 0);
    if (receive_buffer_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    const timeval timeout{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~LoopbackClient() { Close(); }
  LoopbackClient(const LoopbackClient&) = delete;
  LoopbackClient& operator=(const LoopbackClient&) = delete;

  bool connected() const { return connected_; }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // As much as the kernel takes now.
  size_t SendNoWait(std::string_view bytes) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }
  void Get(std::string_view path) { Send(Request("GET", path)); }
  void Post(std::string_view path, std::string_view body) { Send(Request("POST", path, body)); }

  static std::string Request(std::string_view method, std::string_view path,
                             std::string_view body = {}) {
    std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
    if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + std::string(body);
  }

  // Reads at least one more byte; false at the end of the connection.
  bool ReadMore() {
    char bytes[16 * 1024];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  bool ReadUntil(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  // All that comes until the server closes. Fails the test if it does not.
  std::string ReadToEnd() {
    while (ReadMore()) {
    }
    EXPECT_NE(errno, EAGAIN) << "the server did not close";
    return std::exchange(buffer_, {});
  }

  // One whole response, its chunks joined. Status 0 when the connection ends first.
  HttpResponse Read(bool head_only = false) {
    HttpResponse response;
    response.status = 0;
    if (!ReadUntil("\r\n\r\n")) return response;
    const size_t head_end = buffer_.find("\r\n\r\n") + 4;
    std::string head = buffer_.substr(0, head_end);
    buffer_.erase(0, head_end);
    size_t line = head.find("\r\n") + 2;
    while (line + 2 < head.size()) {
      const size_t end = head.find("\r\n", line);
      const size_t colon = head.find(": ", line);
      response.headers.push_back(
          {head.substr(line, colon - line), head.substr(colon + 2, end - colon - 2)});
      line = end + 2;
    }
    const int status = std::atoi(head.c_str() + 9);
    const std::string length = Header(response, "Content-Length");
    if (!length.empty() && !head_only) {
      const size_t size = std::strtoul(length.c_str(), nullptr, 10);
      while (buffer_.size() < size) {
        if (!ReadMore()) return response;
      }
      response.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    } else if (Header(response, "Transfer-Encoding") == "chunked") {
      if (!ReadChunks(response.body)) return response;
    }
    response.status = status;
    return response;
  }

  static std::string Header(const HttpResponse& response, std::string_view name) {
    HttpRequest lookup;
    lookup.headers = response.headers;
    return std::string(lookup.Header(name));
  }

  void ShutdownWrite() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  const std::string& buffer() const { return buffer_; }

 private:
  bool ReadChunks(std::string& body) {
    for (;;) {
      if (!ReadUntil("\r\n")) return false;
      const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      const size_t start = buffer_.find("\r\n") + 2;
      while (buffer_.size() < start + size + 2) {
        if (!ReadMore()) return false;
      }
      body += buffer_.substr(start, size);
      buffer_.erase(0, start + size + 2);
      if (size == 0) return true;
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string buffer_;
};

// Every byte is a token of the same number; 256 is <|im_start|>, 257 <|im_end|>, the end of a turn.
inline std::shared_ptr<const Tokenizer> MakeByteTokenizer() {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "smollm";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(EncodeByteLevel(std::string(1, static_cast<char>(byte))));
    vocabulary.types.push_back(TokenType::kNormal);
  }
  for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
    vocabulary.tokens.push_back(special);
    vocabulary.types.push_back(TokenType::kControl);
  }
  vocabulary.eos = TokenId(257);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer).value());
}

inline std::vector<TokenId> BytesAsTokens(std::string_view bytes) {
  std::vector<TokenId> tokens;
  for (const char c : bytes) tokens.emplace_back(static_cast<uint8_t>(c));
  return tokens;
}

// An engine that says what the test tells it: either each request by hand (Emit, Finish), or all of them the same
// reply, `tokens_per_output` tokens at a time, from its own thread.
class FakeEngine final : public EngineClient {
 public:
  struct Options {
    int32_t max_context_tokens = 4096;
    std::optional<std::string> reply;  // one token per byte; none: by hand
    size_t tokens_per_output = 1;
    std::chrono::microseconds step{0};
    Status refuse;  // what Submit answers when not ok
  };

  FakeEngine() : FakeEngine(Options()) {}
  explicit FakeEngine(Options options) : options_(std::move(options)) {
    if (options_.reply) thread_ = std::thread([this] { Run(); });
  }
  ~FakeEngine() override {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    std::lock_guard lock(mutex_);
    while (!active_.empty()) End(active_.begin()->first, FinishReason::kCancelled, {});
  }

  Result<RequestId> Submit(Request request, std::unique_ptr<RequestSink> sink) override {
    std::lock_guard lock(mutex_);
    if (!options_.refuse.ok()) return options_.refuse;
    const RequestId id(++last_id_);
    request.id = id;
    submitted_.push_back(request);
    active_[id.value()] = Active{std::move(request), std::move(sink), 0, {}};
    return id;
  }

  void Cancel(RequestId id) override {
    std::lock_guard lock(mutex_);
    const auto it = active_.find(id.value());
    if (it == active_.end()) return;
    ++cancelled_;
    End(id.value(), FinishReason::kCancelled, {});
  }

  int32_t max_context_tokens() const override { return options_.max_context_tokens; }

  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.requests_running = static_cast<int32_t>(active_.size());
    stats.requests_finished = finished_;
    stats.requests_cancelled = cancelled_;
    return stats;
  }

  // The n-th request submitted (from 1), once it is there.
  Request WaitFor(size_t n) {
    EXPECT_TRUE(Eventually([&] {
      std::lock_guard lock(mutex_);
      return submitted_.size() >= n;
    }));
    std::lock_guard lock(mutex_);
    return submitted_.size() >= n ? submitted_[n - 1] : Request();
  }
  void Emit(RequestId id, std::string_view bytes) {
    std::lock_guard lock(mutex_);
    Output(id.value(), BytesAsTokens(bytes));
  }
  void Finish(RequestId id, FinishReason reason, Status status = {}) {
    std::lock_guard lock(mutex_);
    if (active_.count(id.value())) End(id.value(), reason, std::move(status));
  }
  void set_stats(EngineStats stats) {
    std::lock_guard lock(mutex_);
    stats_ = stats;
  }
  void set_refuse(Status status) {
    std::lock_guard lock(mutex_);
    options_.refuse = std::move(status);
  }
  int64_t cancelled() const { return stats().requests_cancelled; }
  size_t active() const { return static_cast<size_t>(stats().requests_running); }

 private:
  struct Active {
    Request request;
    std::unique_ptr<RequestSink> sink;
    size_t made = 0;
    RequestOutput last;
  };

  void Output(uint64_t id, std::vector<TokenId> tokens) {
    const auto it = active_.find(id);
    if (it == active_.end()) return;
    Active& active = it->second;
    active.made += tokens.size();
    RequestOutput output;
    output.id = RequestId(id);
    output.tokens = std::move(tokens);
    output.prompt_tokens = static_cast<int32_t>(active.request.prompt.size());
    output.output_tokens = static_cast<int32_t>(active.made);
    active.sink->OnOutput(output);
  }

  void End(uint64_t id, FinishReason reason, Status status) {
    const auto it = active_.find(id);
    RequestOutput output;
    output.id = RequestId(id);
    output.prompt_tokens = static_cast<int32_t>(it->second.request.prompt.size());
    output.output_tokens = static_cast<int32_t>(it->second.made);
    output.finish = reason;
    output.status = std::move(status);
    it->second.sink->OnOutput(output);
    active_.erase(it);
    if (reason == FinishReason::kStop || reason == FinishReason::kLength) ++finished_;
  }

  void Step(uint64_t id) {
    const Active& active = active_.at(id);
    const size_t limit =
        std::min(options_.reply->size(),
                 static_cast<size_t>(active.request.max_output_tokens.value_or(INT32_MAX)));
    if (active.made < limit) {
      const size_t count = std::min(options_.tokens_per_output, limit - active.made);
      Output(id, BytesAsTokens(options_.reply->substr(active.made, count)));
    } else {
      End(id, limit < options_.reply->size() ? FinishReason::kLength : FinishReason::kStop, {});
    }
  }

  void Run() {
    while (!stop_.load()) {
      bool idle = false;
      {
        std::lock_guard lock(mutex_);
        std::vector<uint64_t> ids;
        for (const auto& [id, active] : active_) ids.push_back(id);
        for (const uint64_t id : ids) Step(id);
        idle = ids.empty();
      }
      if (idle || options_.step.count() > 0) {
        std::this_thread::sleep_for(std::max(options_.step, std::chrono::microseconds(100)));
      }
    }
  }

  mutable std::mutex mutex_;
  Options options_;
  std::map<uint64_t, Active> active_;
  std::deque<Request> submitted_;
  uint64_t last_id_ = 0;
  int64_t cancelled_ = 0;
  int64_t finished_ = 0;
  EngineStats stats_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tandem
