#include "server/http_server.h"

#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "server/http_connection.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Before the next accept after one failed for want of descriptors or memory.
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

Status Check(const HttpConfig& config) {
  if (config.io_threads < 1 || config.io_threads > 64) {
    return InvalidArgumentError("{} I/O threads: use 1 to 64", config.io_threads);
  }
  if (config.connections_max < 1) {
    return InvalidArgumentError("{} connections: at least 1", config.connections_max);
  }
  if (config.header_bytes_max < 256 || config.header_bytes_max > (1u << 20)) {
    return InvalidArgumentError("header limit {}: use 256 to 1048576 bytes",
                                config.header_bytes_max);
  }
  return OkStatus();
}

Status BindError(const HttpConfig& config, const error_code& error) {
  if (error == asio::error::address_in_use) {
    return UnavailableError("port {} is in use: choose another with --port", config.port);
  }
  if (error == asio::error::access_denied) {
    return FailedPreconditionError("port {} needs privileges: choose one above 1023 with --port",
                                   config.port);
  }
  if (error == boost::system::errc::address_not_available) {
    return InvalidArgumentError("{} is no address of this machine: choose another with --host",
                                config.host);
  }
  return UnavailableError("cannot listen on {}:{}: {}", config.host, config.port, error.message());
}

// Thousands of connections need as many descriptors; the soft limit is often 1024.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) LogWarning("cannot raise the limit of open files");
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpConfig& config, HttpHandler& handler)
      : io_(config.io_threads),
        acceptor_(asio::make_strand(io_)),
        accept_retry_(acceptor_.get_executor()) {
    shared_.config = config;
    shared_.handler = &handler;
    shared_.on_closed = [this] {
      if (accept_paused_.exchange(false)) {
        asio::post(acceptor_.get_executor(), [this] { Accept(); });
      }
    };
  }

  ~Impl() {
    StopNow();
    shared_.registry->CloseGate();
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  Status Listen() {
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(shared_.config.host, std::to_string(shared_.config.port),
                                        tcp::resolver::passive, error);
    if (error || found.empty()) {
      return InvalidArgumentError("--host {}: {}", shared_.config.host, error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) return BindError(shared_.config, error);
    port_ = acceptor_.local_endpoint(error).port();
    return OkStatus();
  }

  void Start() {
    TANDEM_CHECK(threads_.empty());
    RaiseDescriptorLimit();
    asio::post(acceptor_.get_executor(), [this] { Accept(); });
    for (int i = 0; i < shared_.config.io_threads; ++i) {
      threads_.emplace_back([this] { RunLoop(); });
    }
  }

  void Stop() {
    TANDEM_CHECK(!threads_.empty());
    StopAccepting();
    shared_.registry->PostAll([](HttpConnection& connection) { connection.Drain(); });
    shared_.registry->WaitEmpty();
  }

  void StopNow() {
    StopAccepting();
    if (threads_.empty()) return;
    shared_.registry->PostAll([](HttpConnection& connection) { connection.Abort(); });
    shared_.registry->WaitEmpty();
  }

  uint16_t port() const { return port_; }
  int32_t connections() const { return shared_.registry->size(); }

 private:
  void RunLoop() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& e) {
        LogError("an I/O thread goes on after: {}", e.what());
      }
    }
  }

  void StopAccepting() {
    shared_.draining.store(true);
    shared_.registry->Close();
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      accept_retry_.cancel(ignored);
      acceptor_.close(ignored);
    });
  }

  void Accept() {
    if (shared_.draining.load()) return;
    if (connections() >= shared_.config.connections_max) {
      accept_paused_.store(true);
      // One may have closed in between; whoever clears the flag goes on.
      if (connections() >= shared_.config.connections_max || !accept_paused_.exchange(false))
        return;
    }
    acceptor_.async_accept(asio::make_strand(io_),
                           [this](const error_code& error, HttpConnection::Socket socket) {
                             OnAccepted(error, std::move(socket));
                           });
  }

  void OnAccepted(const error_code& error, HttpConnection::Socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      LogWarning("cannot accept a connection: {}", error.message());
      accept_retry_.expires_after(kAcceptRetry);
      accept_retry_.async_wait([this](const error_code& cancelled) {
        if (!cancelled) Accept();
      });
      return;
    }
    auto connection = std::make_shared<HttpConnection>(std::move(socket), shared_);
    if (shared_.registry->Add(connection)) {
      asio::post(connection->executor(), [connection] { connection->Start(); });
    }
    Accept();
  }

  HttpShared shared_;  // before io_: its handlers refer to it
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_;
  std::atomic<bool> accept_paused_{false};
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Create(const HttpConfig& config,
                                                       HttpHandler& handler) {
  TANDEM_RETURN_IF_ERROR(Check(config));
  auto impl = std::make_unique<Impl>(config, handler);
  TANDEM_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
void HttpServer::Start() { impl_->Start(); }
uint16_t HttpServer::port() const { return impl_->port(); }
int32_t HttpServer::connections() const { return impl_->connections(); }
void HttpServer::Stop() { impl_->Stop(); }
void HttpServer::StopNow() { impl_->StopNow(); }

}  // namespace tandem
