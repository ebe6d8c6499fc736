// What: TcpControlLink: a ControlLink over TCP. Both sides prove that they know the shared secret;
//   without one, only this machine is trusted.
// Not here: one connection's life and what is on the wire (tcp_control_connection.h); what frames
//   mean (protocol.h).
// Threads: as ControlLink; one io thread of its own. Stats and port from any thread.
// Invariants: a connection that has not proved itself costs a descriptor and under 1 KiB for at
//   most the handshake's time, and there are at most `half_open_max` of them: one more ends the
//   oldest. Frames that the owner has not polled are bounded per link: beyond, it is not read.
// Cost: a frame is copied once and tagged once on each side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "messenger/control_link.h"
#include "messenger/membership.h"
#include "messenger/tcp_control_auth.h"
#include "messenger/tcp_control_connection.h"

namespace tandem {

struct TcpControlConfig {
  std::optional<HostPort> listen;  // port 0: any free one; none: others cannot connect
  LinkSecret secret;
  TcpConnectionLimits limits;
  size_t half_open_max = 64;
  size_t links_max = 1024;
  size_t outgoing_bytes_max = 2 * ControlLink::kMaxFrameBytes;  // per link
  size_t incoming_bytes_max = 2 * ControlLink::kMaxFrameBytes;  // per link, received and not polled
};

struct TcpControlStats {
  int32_t links_up = 0;
  int32_t half_open = 0;          // accepted, and not proved yet
  int64_t handshakes_failed = 0;  // of accepted connections, those ended for others included
  int64_t half_open_ended = 0;    // of these: to make room
};

class TcpControlLink final : public ControlLink {
 public:
  // Listens at once. FAILED_PRECONDITION: an address that others reach, and no secret; UNAVAILABLE:
  // the address is in use; INVALID_ARGUMENT: it is none of this machine. Messages name the flag.
  static Result<std::unique_ptr<TcpControlLink>> Create(const TcpControlConfig& config);
  // Cuts every connection.
  ~TcpControlLink() override;

  Result<LinkId> Connect(std::string_view address) override;
  Status Send(LinkId link, std::string_view frame) override;
  void Close(LinkId link) override;
  bool Poll(std::vector<LinkEvent>* events) override;
  void SetWake(std::function<void()> wake) override;

  // Of the address that it listens on; 0 when it does not.
  uint16_t port() const;
  TcpControlStats stats() const;

 private:
  class Impl;
  explicit TcpControlLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
