// What: a raw client on the loopback for this module's tests, and waiting for a condition.
// Not here: the tests, the fake engine (test_engine.h).
// Threads: a LoopbackClient belongs to one thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "server/http_message.h"

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
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
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

}  // namespace tandem
