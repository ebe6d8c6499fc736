#include "messenger/tcp_control.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <list>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/thread_annotations.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Before the next accept after one failed for want of descriptors or memory.
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

Status ListenError(const HostPort& address, const error_code& error) {
  const std::string name = address.ToString();
  if (error == asio::error::address_in_use) {
    return UnavailableError("hand-off address {} is in use: choose another with --handoff-listen",
                            name);
  }
  if (error == boost::system::errc::address_not_available) {
    return InvalidArgumentError(
        "hand-off address {} is none of this machine: choose another with --handoff-listen", name);
  }
  return UnavailableError("cannot listen on hand-off address {}: {}", name, error.message());
}

}  // namespace

class TcpControlLink::Impl final : public TcpControlConnection::Listener {
 public:
  explicit Impl(const TcpControlConfig& config)
      : config_(config), work_(io_.get_executor()), acceptor_(io_), accept_retry_(io_) {}

  ~Impl() override {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      ending_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      accept_retry_.cancel(ignored);
      while (!half_open_.empty()) half_open_.front()->Fail(CancelledError("ending"));
      while (!connections_.empty()) connections_.begin()->second->Fail(CancelledError("ending"));
    });
    work_.reset();  // the thread ends when the last connection has
    thread_.join();
  }

  Status Listen() {
    const HostPort& address = *config_.listen;
    error_code error;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(address.host, std::to_string(address.port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      return InvalidArgumentError("--handoff-listen {}: {}", address.ToString(), error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    if (config_.secret.empty() && !endpoint.address().is_loopback()) {
      return FailedPreconditionError(
          "--handoff-listen {}: other machines reach it, and without a key whoever does could "
          "write "
          "into this node's memory; give all nodes the same --handoff-key-file, or listen on "
          "127.0.0.1",
          address.ToString());
    }
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return ListenError(address, error);
    port_ = acceptor_.local_endpoint(error).port();
    return OkStatus();
  }

  void Start() {
    if (acceptor_.is_open()) {
      asio::post(io_, [this] { Accept(); });
    }
    thread_ = std::thread([this] { RunLoop(); });
  }

  uint16_t port() const { return port_; }

  // ---- The owner's thread

  Result<LinkId> Connect(std::string_view text) {
    TANDEM_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(text));
    LinkId id;
    {
      MutexLock lock(mutex_);
      id = LinkId(++last_link_);
      links_.emplace(id, Link());
    }
    asio::post(io_, [this, id, address] {
      auto connection = std::make_shared<TcpControlConnection>(
          tcp::socket(io_), LinkRole::kConnector, id, config_.secret, config_.limits, *this);
      connections_.emplace(id, connection);
      connection->StartConnecting(address);
    });
    return id;
  }

  Status Send(LinkId id, std::string_view frame) {
    TANDEM_CHECK_LE(frame.size(), kMaxFrameBytes);
    const size_t bytes = TcpControlConnection::kFrameHeadBytes + frame.size();
    {
      MutexLock lock(mutex_);
      const auto link = links_.find(id);
      if (link == links_.end() || !link->second.up) return OkStatus();
      if (link->second.outgoing_bytes + bytes > config_.outgoing_bytes_max) {
        return ResourceExhaustedError("{} bytes wait for the peer to read them",
                                      link->second.outgoing_bytes);
      }
      link->second.outgoing_bytes += bytes;
    }
    std::string wire(TcpControlConnection::kFrameHeadBytes, '\0');
    wire += frame;
    Post(id, [wire = std::move(wire)](TcpControlConnection& connection) mutable {
      connection.Send(std::move(wire));
    });
    return OkStatus();
  }

  void Close(LinkId id) {
    {
      MutexLock lock(mutex_);
      if (links_.erase(id) == 0) return;
      events_.erase(std::remove_if(events_.begin(), events_.end(),
                                   [id](const LinkEvent& event) {
                                     return std::visit([](const auto& e) { return e.link; },
                                                       event) == id;
                                   }),
                    events_.end());
    }
    Post(id, [](TcpControlConnection& connection) { connection.Close(); });
  }

  bool Poll(std::vector<LinkEvent>* events) {
    std::vector<LinkId> resume;
    bool any = false;
    {
      MutexLock lock(mutex_);
      any = !events_.empty();
      for (LinkEvent& event : events_) {
        if (const auto* received = std::get_if<FrameReceived>(&event)) {
          if (const auto link = links_.find(received->link); link != links_.end()) {
            link->second.incoming_bytes = 0;
            if (std::exchange(link->second.paused, false)) resume.push_back(received->link);
          }
        } else if (const auto* down = std::get_if<LinkDown>(&event)) {
          links_.erase(down->link);
        }
        events->push_back(std::move(event));
      }
      events_.clear();
    }
    for (const LinkId id : resume) {
      Post(id, [](TcpControlConnection& connection) { connection.Resume(); });
    }
    return any;
  }

  void SetWake(std::function<void()> wake) {
    MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }

  TcpControlStats stats() const {
    MutexLock lock(mutex_);
    return stats_;
  }

  // ---- The io thread

  bool OnUp(TcpControlConnection& connection) override {
    const bool inbound = connection.role() == LinkRole::kListener;
    const auto self = connection.shared_from_this();
    MutexLock lock(mutex_);
    if (inbound) {
      if (connections_.size() >= config_.links_max) return false;
      const LinkId id(++last_link_);
      links_.emplace(id, Link());
      connection.set_link(id);
      half_open_.remove(self);
      connections_.emplace(id, self);
    }
    stats_.half_open = static_cast<int32_t>(half_open_.size());
    ++stats_.links_up;
    const auto link = links_.find(connection.link());
    if (link == links_.end()) return true;  // closed meanwhile; Close is on its way
    link->second.up = true;
    Report(LinkUp{connection.link(), inbound, connection.peer()});
    return true;
  }

  bool OnFrame(TcpControlConnection& connection, std::string frame) override {
    MutexLock lock(mutex_);
    const auto link = links_.find(connection.link());
    if (link == links_.end()) return false;
    link->second.incoming_bytes += frame.size() + sizeof(FrameReceived);
    Report(FrameReceived{connection.link(), std::move(frame)});
    link->second.paused = link->second.incoming_bytes > config_.incoming_bytes_max;
    return !link->second.paused;
  }

  void OnSent(TcpControlConnection& connection, size_t bytes) override {
    MutexLock lock(mutex_);
    const auto link = links_.find(connection.link());
    if (link != links_.end()) link->second.outgoing_bytes -= bytes;
  }

  void OnDown(TcpControlConnection& connection, Status status) override {
    if (connection.link() == LinkId()) {  // accepted, and never up
      LogDebug("hand-off: {}", status.message());
      MutexLock lock(mutex_);
      ++stats_.handshakes_failed;
      return;
    }
    MutexLock lock(mutex_);
    const auto link = links_.find(connection.link());
    if (link == links_.end()) return;
    link->second.up = false;
    Report(LinkDown{connection.link(), std::move(status)});
  }

  void OnGone(TcpControlConnection& connection) override {
    const auto self = connection.shared_from_this();
    half_open_.remove(self);
    connections_.erase(connection.link());
    MutexLock lock(mutex_);
    stats_.half_open = static_cast<int32_t>(half_open_.size());
    if (connection.was_up()) --stats_.links_up;
  }

 private:
  // What the owner's methods need to know of a link without asking the io thread.
  struct Link {
    bool up = false;
    bool paused = false;
    size_t outgoing_bytes = 0;
    size_t incoming_bytes = 0;
  };

  void RunLoop() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& e) {
        LogError("the hand-off's I/O thread goes on after: {}", e.what());
      }
    }
  }

  template <typename Call>
  void Post(LinkId id, Call call) {
    asio::post(io_, [this, id, call = std::move(call)]() mutable {
      if (const auto at = connections_.find(id); at != connections_.end()) {
        const auto connection = at->second;  // outlives its own end
        call(*connection);
      }
    });
  }

  template <typename Event>
  void Report(Event event) TANDEM_REQUIRES(mutex_) {
    events_.emplace_back(std::move(event));
    if (events_.size() == 1 && wake_) wake_();
  }

  void Accept() {
    if (ending_) return;
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (ending_ || error == asio::error::operation_aborted) return;
      if (error) {
        LogWarning("hand-off: cannot accept a connection: {}", error.message());
        accept_retry_.expires_after(kAcceptRetry);
        accept_retry_.async_wait([this](const error_code& cancelled) {
          if (!cancelled) Accept();
        });
        return;
      }
      TakeAccepted(std::move(socket));
      Accept();
    });
  }

  void TakeAccepted(tcp::socket socket) {
    if (half_open_.size() >= config_.half_open_max) {
      {
        MutexLock lock(mutex_);
        ++stats_.half_open_ended;
      }
      const auto oldest = half_open_.front();
      oldest->Fail(
          ResourceExhaustedError("{}: too many connections that prove nothing", oldest->peer()));
    }
    auto connection = std::make_shared<TcpControlConnection>(
        std::move(socket), LinkRole::kListener, LinkId(), config_.secret, config_.limits, *this);
    half_open_.push_back(connection);
    {
      MutexLock lock(mutex_);
      stats_.half_open = static_cast<int32_t>(half_open_.size());
    }
    connection->StartListening();
  }

  const TcpControlConfig config_;
  uint16_t port_ = 0;

  mutable Mutex mutex_;
  uint64_t last_link_ TANDEM_GUARDED_BY(mutex_) = 0;
  std::unordered_map<LinkId, Link> links_ TANDEM_GUARDED_BY(mutex_);
  std::vector<LinkEvent> events_ TANDEM_GUARDED_BY(mutex_);
  std::function<void()> wake_ TANDEM_GUARDED_BY(mutex_);
  TcpControlStats stats_ TANDEM_GUARDED_BY(mutex_);

  // The io thread's. io_ last: its handlers refer to all of it.
  bool ending_ = false;
  std::list<std::shared_ptr<TcpControlConnection>> half_open_;  // the oldest first
  std::unordered_map<LinkId, std::shared_ptr<TcpControlConnection>> connections_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_;
  std::thread thread_;
};

Result<std::unique_ptr<TcpControlLink>> TcpControlLink::Create(const TcpControlConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (config.listen.has_value()) TANDEM_RETURN_IF_ERROR(impl->Listen());
  impl->Start();
  return std::unique_ptr<TcpControlLink>(new TcpControlLink(std::move(impl)));
}

TcpControlLink::TcpControlLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpControlLink::~TcpControlLink() = default;
Result<LinkId> TcpControlLink::Connect(std::string_view address) { return impl_->Connect(address); }
Status TcpControlLink::Send(LinkId link, std::string_view frame) {
  return impl_->Send(link, frame);
}
void TcpControlLink::Close(LinkId link) { impl_->Close(link); }
bool TcpControlLink::Poll(std::vector<LinkEvent>* events) { return impl_->Poll(events); }
void TcpControlLink::SetWake(std::function<void()> wake) { impl_->SetWake(std::move(wake)); }
uint16_t TcpControlLink::port() const { return impl_->port(); }
TcpControlStats TcpControlLink::stats() const { return impl_->stats(); }

}  // namespace tandem
