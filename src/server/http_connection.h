// What: one client's connection: reads and parses requests, writes answers, keeps the limits and
//   time-outs.
// Not here: accepting and stopping (http_server.cc), meaning (the handler). Included by the
//   http_*.cc only: it brings Asio and Beast.
// Threads: everything on the connection's strand, except where a method says otherwise.
// Invariants: at most one wait for reading and one for writing are pending; exactly one deadline is
//   watched; the registry holds the connection from construction to Close.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/thread_annotations.h"
#include "server/http_server.h"

namespace tandem {

class HttpConnection;

// The open connections, and the gate through which other threads reach them.
// Threads: every method from any thread.
class HttpRegistry {
 public:
  // False when the registry is closed: the connection must not start.
  bool Add(const std::shared_ptr<HttpConnection>& connection) TANDEM_EXCLUDES(mutex_);
  void Remove(const std::shared_ptr<HttpConnection>& connection) TANDEM_EXCLUDES(mutex_);
  // No connection joins from now on.
  void Close() TANDEM_EXCLUDES(mutex_);
  void WaitEmpty() TANDEM_EXCLUDES(mutex_);
  int32_t size() const TANDEM_EXCLUDES(mutex_);
  // Posts `task` to the strand of every open connection.
  void PostAll(const std::function<void(HttpConnection&)>& task) TANDEM_EXCLUDES(mutex_);
  // Posts to the connection's strand if it is still open.
  void Post(const std::weak_ptr<HttpConnection>& connection, std::function<void()> task)
      TANDEM_EXCLUDES(mutex_);
  // Nothing is posted any more: the io context is about to go.
  void CloseGate() TANDEM_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool closed_ TANDEM_GUARDED_BY(mutex_) = false;
  bool gate_open_ TANDEM_GUARDED_BY(mutex_) = true;
  std::unordered_set<std::shared_ptr<HttpConnection>> open_ TANDEM_GUARDED_BY(mutex_);
};

// What all connections of one server share.
struct HttpShared {
  HttpConfig config;
  HttpHandler* handler = nullptr;
  std::shared_ptr<HttpRegistry> registry = std::make_shared<HttpRegistry>();
  std::atomic<bool> draining{false};
  std::atomic<int64_t> body_bytes{0};  // reserved by requests being read or answered
  std::function<void()> on_closed;     // a connection has gone; any thread
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // `socket` runs on its own strand. `shared` outlives the io context's handlers.
  HttpConnection(Socket socket, HttpShared& shared);
  ~HttpConnection();

  void Start();
  Socket::executor_type executor() { return socket_.get_executor(); }

  // Closes at once if idle; otherwise after the answer in progress.
  void Drain();
  // Aborts the exchange and closes.
  void Abort();

  // The exchange's side; `number` names the exchange, calls of a past one do nothing.
  void OnAbort(uint64_t number, std::function<void()> on_abort);
  void Respond(uint64_t number, HttpResponse response);
  void StartStream(uint64_t number, const HttpResponse& head);
  Status Write(uint64_t number, std::string_view bytes);
  void Finish(uint64_t number, std::string_view last);
  void Abandoned(uint64_t number);

 private:
  enum class State { kIdle, kHeader, kBody, kHandling, kFlushing, kLingering, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using TimePoint = std::chrono::steady_clock::time_point;

  void WaitReadable();
  void OnReadable(const boost::system::error_code& error);
  void Parse();
  bool ParseSome();
  void BeginRequest();
  bool OnHeader();
  void Dispatch();
  void RejectParse(const boost::system::error_code& error);
  void Reject(int status, std::string_view message);

  bool Current(uint64_t number) const { return state_ == State::kHandling && number == number_; }
  void AppendHead(const HttpResponse& response, bool stream);
  void AppendChunk(std::string_view bytes);
  void QueueResponse(const HttpResponse& response);
  void EndExchange();
  void ScheduleFlush();
  void Flush();
  void OnFlushed();
  void NextRequest();

  void ReserveBody(int64_t bytes);
  void ArmDeadline(int64_t after_ms);
  void DisarmDeadline() { deadline_.reset(); }
  void WatchDeadline();
  void OnDeadline();

  void PeerGone();
  void BeginLinger();
  void Close();

  HttpShared& shared_;
  Socket socket_;
  State state_ = State::kIdle;
  bool waiting_readable_ = false;
  bool waiting_writable_ = false;
  bool flush_scheduled_ = false;

  // The request being read.
  std::string input_;
  std::optional<Parser> parser_;
  int64_t body_reserved_bytes_ = 0;

  // The exchange being answered.
  uint64_t number_ = 0;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
  bool head_only_ = false;
  bool streaming_ = false;
  std::function<void()> on_abort_;

  // What the client has not taken yet: output_ from output_sent_ on.
  std::string output_;
  size_t output_sent_ = 0;
  size_t lingered_bytes_ = 0;

  boost::asio::steady_timer timer_;
  std::optional<TimePoint> deadline_;
  std::optional<TimePoint> timer_at_;  // when the pending wait of timer_ ends
};

}  // namespace tandem
