// What: one TCP connection of TcpControlLink: the handshake, then frames in both directions, each
//   with its length and its tag.
// Not here: listening, the registry of links, the owner's queues (tcp_control.h); the cryptography
//   (tcp_control_auth.h).
// Threads: the io thread only.
// Invariants: until both proofs have been checked it reads at most 73 bytes, and no memory depends
//   on the other side. It ends by itself within a bounded time in every state.
//
// On the wire, integers little-endian:
//   connector -> listener   "TNDMHO01", nonce[32]
//   listener  -> connector  "TNDMHO01", nonce[32]
//   connector -> listener   proof[32]
//   listener  -> connector  verdict (1: accepted, 0: another key), proof[32]
//   then both ways          length u32, tag[16], frame
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "messenger/control_link.h"
#include "messenger/membership.h"
#include "messenger/tcp_control_auth.h"

namespace tandem {

// The part of TcpControlConfig that a connection needs.
struct TcpConnectionLimits {
  int64_t handshake_timeout_ms = 5'000;  // name, connection and proofs
  int64_t stall_timeout_ms = 10'000;     // without the peer taking a byte of what waits for it
  int64_t linger_timeout_ms = 1'000;     // for frames queued before Close, and the peer's close
};

class TcpControlConnection final : public std::enable_shared_from_this<TcpControlConnection> {
 public:
  static constexpr size_t kFrameHeadBytes = 20;

  // What a connection tells; no call comes after OnGone.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The peer has proved itself. False: there is no room for one more link.
    virtual bool OnUp(TcpControlConnection& connection) = 0;
    // False: Resume says when to go on reading.
    virtual bool OnFrame(TcpControlConnection& connection, std::string frame) = 0;
    // `bytes` of frame and head have been handed to the kernel.
    virtual void OnSent(TcpControlConnection& connection, size_t bytes) = 0;
    // It has ended, not by Close. `status` as in LinkDown.
    virtual void OnDown(TcpControlConnection& connection, Status status) = 0;
    // Nothing of it is left but this object.
    virtual void OnGone(TcpControlConnection& connection) = 0;
  };

  using Socket = boost::asio::ip::tcp::socket;

  // `secret` and `listener` outlive it. `link`: of one that connects; an accepted one gets it
  // later.
  TcpControlConnection(Socket socket, LinkRole role, LinkId link, const LinkSecret& secret,
                       const TcpConnectionLimits& limits, Listener& listener);

  // Of an accepted socket.
  void StartListening();
  void StartConnecting(const HostPort& address);

  // `wire`: a frame with room for its head in front.
  void Send(std::string wire);
  void Resume();
  // Sends what is queued, then ends; no OnDown comes.
  void Close();
  // Ends at once with OnDown, if that has not come yet.
  void Fail(Status status);

  LinkId link() const { return link_; }
  void set_link(LinkId link) { link_ = link; }
  // OnUp has taken it, whatever has become of it.
  bool was_up() const { return was_up_; }
  LinkRole role() const { return role_; }
  // "host:port" of the other side.
  const std::string& peer() const { return peer_; }

 private:
  enum class State { kHandshake, kUp, kClosing, kGone };
  using error_code = boost::system::error_code;

  void Connect(const boost::asio::ip::tcp::resolver::results_type& found);
  void SetSocketOptions();
  void SetDeadline(int64_t after_ms);
  void ClearDeadline() { deadline_ = std::chrono::steady_clock::time_point::max(); }
  void OnDeadline();

  // The handshake, in order. `next` runs when the bytes have gone or come.
  using Step = void (TcpControlConnection::*)();
  void WriteHandshake(size_t bytes, Step next);
  void ReadHandshake(size_t bytes, Step next);
  void SendHello();
  void ReadHello();
  void OnHello();
  void ReadProof();
  void OnProof();
  void SendVerdict(bool accepted);
  void ReadVerdict();
  void OnVerdict();
  void RefuseAfterVerdict();
  void GoUp();
  Status OtherKeyError() const;

  void ReadHead();
  void ReadFrame(size_t bytes);
  void WriteSome();
  void Drain();
  void End();

  Socket socket_;
  boost::asio::steady_timer timer_;
  boost::asio::ip::tcp::resolver resolver_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  const LinkRole role_;
  LinkId link_;
  const LinkSecret& secret_;
  const TcpConnectionLimits& limits_;
  Listener& listener_;
  std::string peer_;
  State state_ = State::kHandshake;

  LinkNonces nonces_;
  std::array<char, 64> handshake_in_{};
  std::array<char, 64> handshake_out_{};
  std::optional<FrameTagger> tags_in_;
  std::optional<FrameTagger> tags_out_;

  std::array<char, kFrameHeadBytes> head_in_{};
  std::string frame_in_;
  std::deque<std::string> outgoing_;
  size_t front_sent_ = 0;  // of outgoing_.front()
  bool writing_ = false;
  bool paused_ = false;
  bool was_up_ = false;
};

}  // namespace tandem
