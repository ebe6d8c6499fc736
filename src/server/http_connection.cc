#include "server/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <ctime>
#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// Read at once from a socket; on the stack, so an idle connection holds no buffer.
constexpr size_t kReadBytes = 32 * 1024;
// What one framing element besides the header (chunk sizes, extensions, trailer) may take.
constexpr size_t kChunkHeaderBytesMax = 16 * 1024;
// Read and thrown away after a refusal, so that a client which is still sending sees the answer and
// no reset.
constexpr size_t kLingerBytesMax = 64 * 1024 * 1024;
// Buffers that grew beyond this are given back when empty.
constexpr size_t kKeptBufferBytes = 4 * 1024;
// Room beyond unread_bytes_max for the last words of a stream that is given up.
constexpr size_t kLastWordsBytes = 16 * 1024;

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  const size_t size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return std::string(text, size);
}

class ConnectionExchange final : public HttpExchange {
 public:
  ConnectionExchange(std::shared_ptr<HttpRegistry> registry,
                     std::weak_ptr<HttpConnection> connection, uint64_t number)
      : registry_(std::move(registry)), connection_(std::move(connection)), number_(number) {}

  ~ConnectionExchange() override {
    registry_->Post(connection_, [weak = connection_, number = number_] {
      if (auto c = weak.lock()) c->Abandoned(number);
    });
  }

  void Post(std::function<void()> task) override { registry_->Post(connection_, std::move(task)); }

  void OnAbort(std::function<void()> on_abort) override {
    if (auto c = connection_.lock()) c->OnAbort(number_, std::move(on_abort));
  }
  void Respond(HttpResponse response) override {
    if (auto c = connection_.lock()) c->Respond(number_, std::move(response));
  }
  void StartStream(HttpResponse head) override {
    if (auto c = connection_.lock()) c->StartStream(number_, head);
  }
  Status Write(std::string_view bytes) override {
    if (auto c = connection_.lock()) return c->Write(number_, bytes);
    return CancelledError("the client has gone");
  }
  void Finish(std::string_view last) override {
    if (auto c = connection_.lock()) c->Finish(number_, last);
  }

 private:
  const std::shared_ptr<HttpRegistry> registry_;
  const std::weak_ptr<HttpConnection> connection_;
  const uint64_t number_;
};

}  // namespace

// ---- HttpRegistry

bool HttpRegistry::Add(const std::shared_ptr<HttpConnection>& connection) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  open_.insert(connection);
  return true;
}

void HttpRegistry::Remove(const std::shared_ptr<HttpConnection>& connection) {
  MutexLock lock(mutex_);
  open_.erase(connection);
  if (open_.empty()) changed_.NotifyAll();
}

void HttpRegistry::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

void HttpRegistry::WaitEmpty() {
  MutexLock lock(mutex_);
  while (!open_.empty()) changed_.Wait(mutex_);
}

int32_t HttpRegistry::size() const {
  MutexLock lock(mutex_);
  return static_cast<int32_t>(open_.size());
}

void HttpRegistry::PostAll(const std::function<void(HttpConnection&)>& task) {
  MutexLock lock(mutex_);
  if (!gate_open_) return;
  for (const auto& c : open_) asio::post(c->executor(), [c, task] { task(*c); });
}

void HttpRegistry::Post(const std::weak_ptr<HttpConnection>& connection,
                        std::function<void()> task) {
  MutexLock lock(mutex_);
  if (!gate_open_) return;
  if (auto c = connection.lock()) {
    asio::post(c->executor(), [c, task = std::move(task)] { task(); });
  }
}

void HttpRegistry::CloseGate() {
  MutexLock lock(mutex_);
  gate_open_ = false;
}

// ---- HttpConnection: life

HttpConnection::HttpConnection(Socket socket, HttpShared& shared)
    : shared_(shared), socket_(std::move(socket)), timer_(socket_.get_executor()) {}

HttpConnection::~HttpConnection() { ReserveBody(0); }

void HttpConnection::Start() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (shared_.config.send_buffer_bytes > 0) {
    socket_.set_option(asio::socket_base::send_buffer_size(shared_.config.send_buffer_bytes),
                       ignored);
  }
  error_code error;
  socket_.non_blocking(true, error);
  if (error) return Close();
  ArmDeadline(shared_.config.idle_timeout_ms);
  WaitReadable();
}

void HttpConnection::Drain() {
  keep_alive_ = false;
  if (state_ == State::kIdle) Close();
}

void HttpConnection::Abort() { PeerGone(); }

void HttpConnection::PeerGone() {
  if (state_ == State::kClosed) return;
  ++number_;  // the exchange is over before its owner hears of it
  if (auto on_abort = std::exchange(on_abort_, nullptr)) on_abort();
  Close();  // last: a Stop that waits for it may count on the call above
}

void HttpConnection::BeginLinger() {
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  state_ = State::kLingering;
  ArmDeadline(shared_.config.linger_timeout_ms);
  WaitReadable();
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  on_abort_ = nullptr;
  DisarmDeadline();
  ReserveBody(0);
  error_code ignored;
  timer_.cancel(ignored);
  socket_.close(ignored);
  shared_.registry->Remove(shared_from_this());
  if (shared_.on_closed) shared_.on_closed();
}

// ---- Reading

void HttpConnection::WaitReadable() {
  if (waiting_readable_ || state_ == State::kClosed) return;
  const bool answering = state_ == State::kHandling || state_ == State::kFlushing;
  if (answering && input_.size() >= shared_.config.pipelined_bytes_max) return;
  waiting_readable_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->OnReadable(error);
  });
}

void HttpConnection::OnReadable(const error_code& error) {
  waiting_readable_ = false;
  if (state_ == State::kClosed) return;
  if (error) return PeerGone();
  char bytes[kReadBytes];
  error_code read_error;
  const size_t count = socket_.read_some(asio::buffer(bytes), read_error);
  if (read_error == asio::error::would_block || read_error == asio::error::interrupted) {
    return WaitReadable();
  }
  if (state_ == State::kFlushing && read_error == asio::error::eof) {
    keep_alive_ = false;  // it will send no more, but may still read the answer
    return;
  }
  if (read_error || count == 0) return PeerGone();
  if (state_ == State::kLingering) {
    lingered_bytes_ += count;
    if (lingered_bytes_ > kLingerBytesMax) return Close();
    return WaitReadable();
  }
  input_.append(bytes, count);
  Parse();
  WaitReadable();
}

// Takes as many requests from input_ as the order of answers allows.
void HttpConnection::Parse() {
  while (!input_.empty() &&
         (state_ == State::kIdle || state_ == State::kHeader || state_ == State::kBody)) {
    if (!ParseSome()) break;
  }
  if (input_.empty() && input_.capacity() > kKeptBufferBytes) std::string().swap(input_);
}

// False when more bytes are needed or the request has been refused.
bool HttpConnection::ParseSome() {
  if (state_ == State::kIdle) {
    // An empty line or two before a request line is allowed (RFC 9112, 2.2).
    input_.erase(0, std::min(input_.find_first_not_of("\r\n"), input_.size()));
    if (input_.empty()) return false;
    BeginRequest();
  }
  error_code error;
  const size_t used = parser_->put(asio::buffer(input_), error);
  input_.erase(0, used);
  const bool need_more = error == http::error::need_more;
  if (error && !need_more) {
    RejectParse(error);
    return false;
  }
  if (state_ == State::kHeader && parser_->is_header_done() && !OnHeader()) return false;
  if (state_ == State::kBody && parser_->is_done()) {
    Dispatch();
    return true;
  }
  if (need_more && state_ == State::kBody && input_.size() > kChunkHeaderBytesMax) {
    Reject(400, "a chunk's header is too long");
    return false;
  }
  return !need_more && used > 0;
}

void HttpConnection::BeginRequest() {
  state_ = State::kHeader;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_.config.header_bytes_max));
  parser_->body_limit(shared_.config.body_bytes_max);
  ArmDeadline(shared_.config.header_timeout_ms);
}

// False when the request has been refused.
bool HttpConnection::OnHeader() {
  const auto& message = parser_->get();
  state_ = State::kBody;
  if (message.version() >= 11 && message.find(http::field::host) == message.end()) {
    Reject(400, "the Host header is missing");
    return false;
  }
  const auto length = parser_->content_length();
  const bool chunked = parser_->chunked();
  ReserveBody(chunked ? static_cast<int64_t>(shared_.config.body_bytes_max)
                      : static_cast<int64_t>(length ? *length : 0));
  if (shared_.body_bytes.load() > static_cast<int64_t>(shared_.config.all_bodies_bytes_max)) {
    Reject(503, "the server holds too many request bodies: try again");
    return false;
  }
  if (const auto expect = message.find(http::field::expect); expect != message.end()) {
    if (!beast::iequals(expect->value(), "100-continue")) {
      Reject(417, "only the expectation 100-continue is known");
      return false;
    }
    if (input_.empty() && !parser_->is_done()) {
      output_ += "HTTP/1.1 100 Continue\r\n\r\n";
      ScheduleFlush();
    }
  }
  parser_->eager(true);
  ArmDeadline(shared_.config.body_timeout_ms);
  return true;
}

void HttpConnection::Dispatch() {
  auto message = parser_->release();
  keep_alive_ = message.keep_alive() && !shared_.draining.load();
  http_1_0_ = message.version() < 11;
  head_only_ = message.method() == http::verb::head;
  parser_.reset();
  ReserveBody(static_cast<int64_t>(message.body().size()));

  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target = WithoutOrigin({message.target().data(), message.target().size()});
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  request.body = std::move(message.body());

  state_ = State::kHandling;
  DisarmDeadline();
  ++number_;
  if (shared_.draining.load()) {
    return Respond(number_, shared_.handler->ErrorResponse(503, "the server is shutting down"));
  }
  shared_.handler->Handle(std::move(request), std::make_shared<ConnectionExchange>(
                                                  shared_.registry, weak_from_this(), number_));
}

void HttpConnection::RejectParse(const error_code& error) {
  if (error == http::error::header_limit) {
    return Reject(431, fmt::format("the request's header is longer than {} bytes",
                                   shared_.config.header_bytes_max));
  }
  if (error == http::error::body_limit) {
    return Reject(413, fmt::format("the request's body is longer than {} bytes",
                                   shared_.config.body_bytes_max));
  }
  Reject(400, fmt::format("not an HTTP/1.1 request: {}", error.message()));
}

// Answers what never became a request, and ends the connection.
void HttpConnection::Reject(int status, std::string_view message) {
  parser_.reset();
  std::string().swap(input_);
  ReserveBody(0);
  DisarmDeadline();
  keep_alive_ = false;
  http_1_0_ = false;
  head_only_ = false;
  state_ = State::kHandling;
  ++number_;
  Respond(number_, shared_.handler->ErrorResponse(status, message));
}

void HttpConnection::ReserveBody(int64_t bytes) {
  shared_.body_bytes.fetch_add(bytes - body_reserved_bytes_);
  body_reserved_bytes_ = bytes;
}

// ---- Answering

void HttpConnection::OnAbort(uint64_t number, std::function<void()> on_abort) {
  if (Current(number)) on_abort_ = std::move(on_abort);
}

void HttpConnection::Respond(uint64_t number, HttpResponse response) {
  if (!Current(number) || streaming_) return;
  AppendHead(response, false);
  if (!head_only_) output_ += response.body;
  EndExchange();
}

void HttpConnection::StartStream(uint64_t number, const HttpResponse& head) {
  if (!Current(number) || streaming_) return;
  if (http_1_0_)
    keep_alive_ = false;  // no chunks there: the end of the stream is the end of the connection
  streaming_ = true;
  AppendHead(head, true);
  ScheduleFlush();
}

Status HttpConnection::Write(uint64_t number, std::string_view bytes) {
  if (!Current(number) || !streaming_) return CancelledError("the client has gone");
  if (output_.size() - output_sent_ + bytes.size() > shared_.config.unread_bytes_max) {
    return ResourceExhaustedError("the client has left more than {} bytes unread",
                                  shared_.config.unread_bytes_max);
  }
  AppendChunk(bytes);
  ScheduleFlush();
  return OkStatus();
}

void HttpConnection::Finish(uint64_t number, std::string_view last) {
  if (!Current(number) || !streaming_) return;
  on_abort_ = nullptr;
  if (output_.size() - output_sent_ + last.size() >
      shared_.config.unread_bytes_max + kLastWordsBytes) {
    return PeerGone();  // a stream that lost its end must not look complete
  }
  AppendChunk(last);
  if (!http_1_0_ && !head_only_) output_ += "0\r\n\r\n";
  EndExchange();
}

void HttpConnection::Abandoned(uint64_t number) {
  if (!Current(number)) return;
  LogError("a request was dropped without an answer");
  if (streaming_) return PeerGone();  // an incomplete stream must not look complete
  Respond(number, shared_.handler->ErrorResponse(500, "the request was dropped"));
}

void HttpConnection::AppendHead(const HttpResponse& response, bool stream) {
  fmt::format_to(std::back_inserter(output_), "HTTP/1.1 {} {}\r\nDate: {}\r\nServer: tandem\r\n",
                 response.status, HttpReason(response.status), DateNow());
  if (response.status != 204) {
    fmt::format_to(std::back_inserter(output_), "Content-Type: {}\r\n", response.content_type);
    if (!stream) {
      fmt::format_to(std::back_inserter(output_), "Content-Length: {}\r\n", response.body.size());
    } else if (!http_1_0_) {
      output_ += "Transfer-Encoding: chunked\r\n";
    }
  }
  for (const HttpHeader& header : response.headers) {
    fmt::format_to(std::back_inserter(output_), "{}: {}\r\n", header.name, header.value);
  }
  if (shared_.draining.load()) keep_alive_ = false;
  output_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpConnection::AppendChunk(std::string_view bytes) {
  if (bytes.empty() || head_only_) return;
  if (http_1_0_) {
    output_ += bytes;
    return;
  }
  fmt::format_to(std::back_inserter(output_), "{:x}\r\n", bytes.size());
  output_ += bytes;
  output_ += "\r\n";
}

void HttpConnection::EndExchange() {
  on_abort_ = nullptr;
  streaming_ = false;
  ReserveBody(0);
  state_ = State::kFlushing;
  ScheduleFlush();
}

// Writes happen from the strand's next turn: several pieces of one turn leave together, and a
// client found gone while writing never calls back into the code that is just writing.
void HttpConnection::ScheduleFlush() {
  if (flush_scheduled_ || waiting_writable_) return;
  flush_scheduled_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->flush_scheduled_ = false;
    self->Flush();
  });
}

void HttpConnection::Flush() {
  if (state_ == State::kClosed || waiting_writable_) return;
  const size_t sent_before = output_sent_;
  while (output_sent_ < output_.size()) {
    error_code error;
    const size_t count = socket_.write_some(
        asio::buffer(output_.data() + output_sent_, output_.size() - output_sent_), error);
    output_sent_ += count;
    if (error == asio::error::interrupted) continue;
    if (error && error != asio::error::would_block) return PeerGone();
    if (!error) continue;
    if (output_sent_ > sent_before || !deadline_) ArmDeadline(shared_.config.write_timeout_ms);
    output_.erase(0, output_sent_);
    output_sent_ = 0;
    waiting_writable_ = true;
    socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& failed) {
      self->waiting_writable_ = false;
      if (failed && self->state_ != State::kClosed) return self->PeerGone();
      self->Flush();
    });
    return;
  }
  OnFlushed();
}

void HttpConnection::OnFlushed() {
  output_sent_ = 0;
  output_.clear();
  if (output_.capacity() > kKeptBufferBytes && state_ != State::kHandling) {
    std::string().swap(output_);
  }
  if (state_ == State::kHandling) DisarmDeadline();
  if (state_ == State::kFlushing) NextRequest();
}

void HttpConnection::NextRequest() {
  if (!keep_alive_ || shared_.draining.load()) return BeginLinger();
  state_ = State::kIdle;
  ArmDeadline(shared_.config.idle_timeout_ms);
  Parse();
  WaitReadable();
}

// ---- Time

void HttpConnection::ArmDeadline(int64_t after_ms) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(after_ms);
  if (!timer_at_ || *timer_at_ > *deadline_) WatchDeadline();
}

// The timer is set anew only for an earlier deadline; a later one is found when it fires.
void HttpConnection::WatchDeadline() {
  timer_at_ = deadline_;
  timer_.expires_at(*deadline_);
  timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->state_ == State::kClosed) return;
    self->timer_at_.reset();
    if (!self->deadline_) return;
    if (std::chrono::steady_clock::now() < *self->deadline_) return self->WatchDeadline();
    self->OnDeadline();
  });
}

void HttpConnection::OnDeadline() {
  DisarmDeadline();
  switch (state_) {
    case State::kHeader:
    case State::kBody: return Reject(408, "the request did not arrive in time");
    case State::kHandling:
    case State::kFlushing: return PeerGone();  // it has stopped reading
    case State::kIdle:
    case State::kLingering:
    case State::kClosed: return Close();
  }
}

}  // namespace tandem
