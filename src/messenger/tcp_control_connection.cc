#include "messenger/tcp_control_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::string_view kMagic = "TNDMHO01";
constexpr size_t kNonceBytes = std::tuple_size_v<LinkNonce>;
constexpr size_t kProofBytes = std::tuple_size_v<LinkProof>;
constexpr size_t kHelloBytes = kMagic.size() + kNonceBytes;
constexpr size_t kVerdictBytes = 1 + kProofBytes;
constexpr char kAccepted = 1;
// Of a host that has vanished; one that only stands still is the protocol's to notice.
constexpr int kKeepIdleSeconds = 5;
constexpr int kKeepIntervalSeconds = 2;
constexpr int kKeepProbes = 3;

std::string PeerName(const tcp::socket& socket) {
  boost::system::error_code error;
  const tcp::endpoint end = socket.remote_endpoint(error);
  return error ? "?" : HostPort{end.address().to_string(), end.port()}.ToString();
}

}  // namespace

TcpControlConnection::TcpControlConnection(Socket socket, LinkRole role, LinkId link,
                                           const LinkSecret& secret,
                                           const TcpConnectionLimits& limits, Listener& listener)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      resolver_(socket_.get_executor()),
      role_(role),
      link_(link),
      secret_(secret),
      limits_(limits),
      listener_(listener) {}

// ---- Beginning

void TcpControlConnection::StartListening() {
  peer_ = PeerName(socket_);
  SetSocketOptions();
  SetDeadline(limits_.handshake_timeout_ms);
  ReadHello();
}

void TcpControlConnection::StartConnecting(const HostPort& address) {
  peer_ = address.ToString();
  SetDeadline(limits_.handshake_timeout_ms);
  resolver_.async_resolve(address.host, std::to_string(address.port),
                          [self = shared_from_this()](const error_code& error, const auto& found) {
                            if (self->state_ != State::kHandshake) return;
                            if (error) {
                              return self->Fail(UnavailableError("{}: the name is unknown: {}",
                                                                 self->peer_, error.message()));
                            }
                            self->Connect(found);
                          });
}

void TcpControlConnection::Connect(const tcp::resolver::results_type& found) {
  const bool all_here = std::all_of(found.begin(), found.end(), [](const auto& entry) {
    return entry.endpoint().address().is_loopback();
  });
  if (secret_.empty() && !all_here) {
    return Fail(FailedPreconditionError(
        "{} is another machine: without a key only this one is trusted; give all nodes the same "
        "--handoff-key-file",
        peer_));
  }
  asio::async_connect(
      socket_, found, [self = shared_from_this()](const error_code& error, const tcp::endpoint&) {
        if (self->state_ != State::kHandshake) return;
        if (error) return self->Fail(UnavailableError("{}: {}", self->peer_, error.message()));
        self->SetSocketOptions();
        self->SendHello();
      });
}

void TcpControlConnection::SetSocketOptions() {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  const int fd = socket_.native_handle();
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kKeepIdleSeconds, sizeof kKeepIdleSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kKeepIntervalSeconds, sizeof kKeepIntervalSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kKeepProbes, sizeof kKeepProbes);
}

void TcpControlConnection::SetDeadline(int64_t after_ms) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(after_ms);
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    // One that was set anew meanwhile has a wait of its own.
    if (cancelled || std::chrono::steady_clock::now() < self->deadline_) return;
    self->OnDeadline();
  });
}

void TcpControlConnection::OnDeadline() {
  switch (state_) {
    case State::kHandshake:
      return Fail(UnavailableError("{}: no hand-off node answered within {} ms", peer_,
                                   limits_.handshake_timeout_ms));
    case State::kUp:
      return Fail(UnavailableError("{}: took nothing for {} ms", peer_, limits_.stall_timeout_ms));
    case State::kClosing: return End();
    case State::kGone: return;
  }
}

// ---- Handshake

void TcpControlConnection::WriteHandshake(size_t bytes, Step next) {
  asio::async_write(socket_, asio::buffer(handshake_out_.data(), bytes),
                    [self = shared_from_this(), next](const error_code& error, size_t) {
                      if (self->state_ != State::kHandshake) return;
                      if (error) {
                        return self->Fail(UnavailableError("{}: closed by the other side: {}",
                                                           self->peer_, error.message()));
                      }
                      (self.get()->*next)();
                    });
}

void TcpControlConnection::ReadHandshake(size_t bytes, Step next) {
  asio::async_read(socket_, asio::buffer(handshake_in_.data(), bytes),
                   [self = shared_from_this(), next](const error_code& error, size_t) {
                     if (self->state_ != State::kHandshake) return;
                     if (error) {
                       return self->Fail(UnavailableError("{}: closed by the other side: {}",
                                                          self->peer_, error.message()));
                     }
                     (self.get()->*next)();
                   });
}

void TcpControlConnection::SendHello() {
  const auto nonce = NewLinkNonce();
  if (!nonce.ok()) return Fail(nonce.status());
  (role_ == LinkRole::kConnector ? nonces_.connector : nonces_.listener) = *nonce;
  std::copy(kMagic.begin(), kMagic.end(), handshake_out_.begin());
  std::memcpy(handshake_out_.data() + kMagic.size(), nonce->data(), kNonceBytes);
  WriteHandshake(kHelloBytes, role_ == LinkRole::kConnector ? &TcpControlConnection::ReadHello
                                                            : &TcpControlConnection::ReadProof);
}

void TcpControlConnection::ReadHello() {
  ReadHandshake(kHelloBytes, &TcpControlConnection::OnHello);
}

void TcpControlConnection::OnHello() {
  if (std::string_view(handshake_in_.data(), kMagic.size()) != kMagic) {
    return Fail(DataLossError("{}: speaks no hand-off protocol of this version", peer_));
  }
  LinkNonce nonce;
  std::memcpy(nonce.data(), handshake_in_.data() + kMagic.size(), kNonceBytes);
  if (role_ == LinkRole::kListener) {
    nonces_.connector = nonce;
    return SendHello();
  }
  if (nonce == nonces_.connector) {
    return Fail(FailedPreconditionError("{}: sends back what it is sent", peer_));
  }
  nonces_.listener = nonce;
  const LinkProof proof = secret_.Prove(role_, nonces_);
  std::memcpy(handshake_out_.data(), proof.data(), kProofBytes);
  WriteHandshake(kProofBytes, &TcpControlConnection::ReadVerdict);
}

void TcpControlConnection::ReadProof() {
  ReadHandshake(kProofBytes, &TcpControlConnection::OnProof);
}

void TcpControlConnection::OnProof() {
  LinkProof proof;
  std::memcpy(proof.data(), handshake_in_.data(), kProofBytes);
  SendVerdict(secret_.Check(LinkRole::kConnector, nonces_, proof));
}

void TcpControlConnection::SendVerdict(bool accepted) {
  handshake_out_.fill(0);
  if (accepted) {
    const LinkProof proof = secret_.Prove(role_, nonces_);
    handshake_out_[0] = kAccepted;
    std::memcpy(handshake_out_.data() + 1, proof.data(), kProofBytes);
  }
  WriteHandshake(kVerdictBytes, accepted ? &TcpControlConnection::GoUp
                                         : &TcpControlConnection::RefuseAfterVerdict);
}

void TcpControlConnection::ReadVerdict() {
  ReadHandshake(kVerdictBytes, &TcpControlConnection::OnVerdict);
}

void TcpControlConnection::OnVerdict() {
  LinkProof proof;
  std::memcpy(proof.data(), handshake_in_.data() + 1, kProofBytes);
  if (handshake_in_[0] != kAccepted || !secret_.Check(LinkRole::kListener, nonces_, proof)) {
    return Fail(OtherKeyError());
  }
  GoUp();
}

void TcpControlConnection::RefuseAfterVerdict() { Fail(OtherKeyError()); }

Status TcpControlConnection::OtherKeyError() const {
  return FailedPreconditionError(
      "{}: has another hand-off key than this node{}; give all nodes the same --handoff-key-file",
      peer_, secret_.empty() ? ", which has none" : "");
}

void TcpControlConnection::GoUp() {
  const LinkRole other = role_ == LinkRole::kConnector ? LinkRole::kListener : LinkRole::kConnector;
  tags_out_ = secret_.TaggerOf(role_, nonces_);
  tags_in_ = secret_.TaggerOf(other, nonces_);
  ClearDeadline();
  state_ = State::kUp;
  was_up_ = listener_.OnUp(*this);
  if (!was_up_) return Fail(ResourceExhaustedError("{}: too many hand-off links", peer_));
  ReadHead();
}

// ---- Frames

void TcpControlConnection::ReadHead() {
  asio::async_read(
      socket_, asio::buffer(head_in_),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (self->state_ != State::kUp) return;
        if (error) {
          return self->Fail(
              UnavailableError("{}: the connection broke: {}", self->peer_, error.message()));
        }
        uint32_t bytes = 0;
        for (size_t i = 4; i-- > 0;) {
          bytes = bytes << 8 | static_cast<uint8_t>(self->head_in_[i]);
        }
        if (bytes > ControlLink::kMaxFrameBytes) {
          return self->Fail(DataLossError("{}: a frame of {} bytes; at most {}", self->peer_, bytes,
                                          ControlLink::kMaxFrameBytes));
        }
        self->ReadFrame(bytes);
      });
}

void TcpControlConnection::ReadFrame(size_t bytes) {
  frame_in_.resize(bytes);
  asio::async_read(
      socket_, asio::buffer(frame_in_),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (self->state_ != State::kUp) return;
        if (error) {
          return self->Fail(
              UnavailableError("{}: the connection broke: {}", self->peer_, error.message()));
        }
        FrameTag tag;
        std::memcpy(tag.data(), self->head_in_.data() + 4, tag.size());
        if (!self->tags_in_->CheckNext(self->frame_in_, tag)) {
          return self->Fail(DataLossError("{}: a frame that it has not sent so", self->peer_));
        }
        self->paused_ = !self->listener_.OnFrame(*self, std::move(self->frame_in_));
        self->frame_in_ = {};
        if (self->state_ == State::kUp && !self->paused_) self->ReadHead();
      });
}

void TcpControlConnection::Resume() {
  if (state_ != State::kUp || !paused_) return;
  paused_ = false;
  ReadHead();
}

void TcpControlConnection::Send(std::string wire) {
  if (state_ != State::kUp) return;
  TANDEM_CHECK_GE(wire.size(), kFrameHeadBytes);
  const std::string_view frame = std::string_view(wire).substr(kFrameHeadBytes);
  const FrameTag tag = tags_out_->Next(frame);
  for (size_t i = 0; i < 4; ++i) wire[i] = static_cast<char>(frame.size() >> (8 * i));
  std::memcpy(wire.data() + 4, tag.data(), tag.size());
  outgoing_.push_back(std::move(wire));
  if (!writing_) WriteSome();
}

void TcpControlConnection::WriteSome() {
  writing_ = true;
  if (state_ == State::kUp) SetDeadline(limits_.stall_timeout_ms);
  const std::string& front = outgoing_.front();
  socket_.async_write_some(asio::buffer(front.data() + front_sent_, front.size() - front_sent_),
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             self->writing_ = false;
                             if (self->state_ == State::kGone) return;
                             if (error) {
                               return self->Fail(UnavailableError("{}: the connection broke: {}",
                                                                  self->peer_, error.message()));
                             }
                             self->front_sent_ += bytes;
                             self->listener_.OnSent(*self, bytes);
                             if (self->front_sent_ == self->outgoing_.front().size()) {
                               self->outgoing_.pop_front();
                               self->front_sent_ = 0;
                             }
                             if (!self->outgoing_.empty()) return self->WriteSome();
                             if (self->state_ == State::kClosing) return self->Drain();
                             self->ClearDeadline();
                           });
}

// ---- End

void TcpControlConnection::Close() {
  if (state_ == State::kHandshake) return End();
  if (state_ != State::kUp) return;
  state_ = State::kClosing;
  SetDeadline(limits_.linger_timeout_ms);
  if (outgoing_.empty()) Drain();
}

// Reads until the other side closes: to close with bytes unread would reset the connection and
// with it what the other side has not read yet.
void TcpControlConnection::Drain() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  socket_.async_read_some(asio::buffer(handshake_in_),
                          [self = shared_from_this()](const error_code& error, size_t) {
                            if (self->state_ == State::kGone) return;
                            if (error) return self->End();
                            self->Drain();
                          });
}

void TcpControlConnection::Fail(Status status) {
  if (state_ == State::kGone) return;
  const bool closing = state_ == State::kClosing;
  const auto self = shared_from_this();
  if (!closing) listener_.OnDown(*this, std::move(status));
  End();
}

void TcpControlConnection::End() {
  if (state_ == State::kGone) return;
  state_ = State::kGone;
  error_code ignored;
  timer_.cancel(ignored);
  resolver_.cancel();
  socket_.close(ignored);
  outgoing_.clear();
  frame_in_ = {};
  listener_.OnGone(*this);
}

}  // namespace tandem
