// What: an HTTP/1.1 server: keep-alive, pipelining in order, chunked streams with bounded buffers,
//   limits and time-outs, drain. It hands complete requests to one handler and carries the answers
//   back.
// Not here: TLS (a proxy's work), HTTP/2, what a path means (api.h).
// Threads: HttpServer: Start once, then any thread (not an io thread) may call Stop and StopNow.
//   The handler and every method of an exchange except Post run on an io thread, never two at once
//   for one connection.
// Invariants: one request of a connection is in the handler at a time; the next begins when the
//   answer before it has been handed to the kernel. What one connection can make the server hold is
//   bounded by HttpConfig.
// Cost: an idle connection holds its socket, a timer and under 2 KiB (measured with 5000); no
//   thread, no buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http_message.h"

namespace tandem {

struct HttpConfig {
  std::string host = "127.0.0.1";  // an address or a name
  uint16_t port = 8080;            // 0: any free one, see HttpServer::port
  int io_threads = 1;
  // At the limit the server accepts no more until one closes; the others wait in the kernel's
  // backlog.
  int32_t connections_max = 16'384;
  size_t header_bytes_max = 16 * 1024;
  size_t body_bytes_max = 8 * 1024 * 1024;  // beyond: 413
  size_t all_bodies_bytes_max =
      256 * 1024 * 1024;  // of all requests being read or answered; beyond: 503
  // Bytes a client may send ahead while its request is answered; beyond, the server stops reading.
  size_t pipelined_bytes_max = 64 * 1024;
  // Bytes of a stream that its client has not read yet; beyond, Write fails and the stream is given
  // up.
  size_t unread_bytes_max = 1024 * 1024;
  int send_buffer_bytes = 0;           // of the kernel, per socket; 0: the system's choice
  int64_t header_timeout_ms = 10'000;  // first byte of a request to the end of its header
  int64_t body_timeout_ms = 60'000;    // end of the header to the end of the body
  int64_t idle_timeout_ms = 120'000;   // between requests
  int64_t write_timeout_ms = 60'000;   // without the client reading a byte of what waits for it
  int64_t linger_timeout_ms = 2'000;   // for the client to close after a last answer
};

// One request's answer: either Respond once, or StartStream, any number of Write, Finish. Calls
// after the end, or after the client has gone, do nothing. Letting go of an unanswered exchange
// answers 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // From any thread: runs `task` on the exchange's io thread, in the order of posting. When the
  // connection is closed or the server gone, the task may be dropped instead.
  virtual void Post(std::function<void()> task) = 0;

  // `on_abort` runs at most once, if the client goes (or StopNow ends the connection) before the
  // answer is complete. Nothing reaches the client after it. Set it before returning from the
  // handler.
  virtual void OnAbort(std::function<void()> on_abort) = 0;

  virtual void Respond(HttpResponse response) = 0;

  // Sends status and headers of `head`; its body is ignored.
  virtual void StartStream(HttpResponse head) = 0;

  // Queues bytes of a started stream. Errors: CANCELLED (the client has gone), RESOURCE_EXHAUSTED
  // (the client reads too slowly: more than unread_bytes_max wait; these bytes were dropped, Finish
  // is what remains to call).
  virtual Status Write(std::string_view bytes) = 0;

  // Ends a started stream after `last`, for which some room beyond unread_bytes_max is kept; if
  // even that is too small, the connection is cut, so that the stream does not look complete.
  virtual void Finish(std::string_view last = {}) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Must not block: other connections wait for its return.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to what never became a request (malformed, too large, too slow, draining).
  virtual HttpResponse ErrorResponse(int status, std::string_view message) = 0;
};

class HttpServer {
 public:
  // Binds and listens; Start begins to accept. `handler` must outlive the server. Errors:
  // INVALID_ARGUMENT (host, limits), UNAVAILABLE (the port is in use), FAILED_PRECONDITION (not
  // allowed).
  static Result<std::unique_ptr<HttpServer>> Create(const HttpConfig& config, HttpHandler& handler);
  // As StopNow.
  ~HttpServer();

  void Start();
  uint16_t port() const;
  int32_t connections() const;

  // Stops accepting, closes idle connections, and returns when running exchanges have been
  // answered. A request that completes meanwhile is answered 503. Requires Start.
  void Stop();
  // Aborts every exchange and closes every connection; a Stop that waits returns.
  void StopNow();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
