// What: ControlLink: authenticated, ordered connections that carry small frames between two nodes.
//   The seam between the protocol (messenger.h) and a network: TCP (tcp_control.h), a simulation
//   (testing/sim_control.h).
// Not here: what frames mean (protocol.h); who connects to whom, and again after a break
//   (messenger.h).
// Threads: one owner calls everything; implementations have threads of their own. The wake callback
//   comes from any thread.
// Invariants:
//   - Frames of a link arrive whole, once and in the order of Send, or the link goes down.
//   - No event of a link comes before its LinkUp, except the LinkDown of a connection that was
//     never made. Before LinkUp both sides have proved that they know the shared secret.
//   - A link ends with exactly one LinkDown, or with Close, after which nothing of it comes.
//   - Nothing here blocks on a peer; memory per link is bounded in both directions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tandem {

using LinkId = StrongId<struct LinkIdTag, uint64_t>;  // of one ControlLink; never reused

struct LinkUp {
  LinkId link;
  bool inbound = false;  // the other side has connected
  std::string peer;      // "host:port" of the other side, for people
};
struct FrameReceived {
  LinkId link;
  std::string frame;
};
struct LinkDown {
  LinkId link;
  Status status;  // never ok. UNAVAILABLE: could not be made, or broke; FAILED_PRECONDITION: the
                  // other side does not know the secret; DATA_LOSS: it broke the framing
};
using LinkEvent = std::variant<LinkUp, FrameReceived, LinkDown>;

class ControlLink {
 public:
  virtual ~ControlLink() = default;

  // A longer frame is a programmer's error at Send, and ends the link with DATA_LOSS when received.
  static constexpr size_t kMaxFrameBytes = 16u << 20;

  // Starts to connect to "host:port"; LinkUp or LinkDown says how it went, within a bounded time.
  // INVALID_ARGUMENT for what is no address.
  virtual Result<LinkId> Connect(std::string_view address) = 0;

  // Queues a frame. RESOURCE_EXHAUSTED when the peer reads too slowly and the link's outgoing queue
  // is full: nothing is queued; the sensible answer is Close. A link that is not up, or no more, is
  // ignored: its LinkDown is on the way.
  virtual Status Send(LinkId link, std::string_view frame) = 0;

  // Nothing of the link is reported any more. Frames queued before are still sent if the peer takes
  // them within a short time. Unknown ids are ignored.
  virtual void Close(LinkId link) = 0;

  // Appends what has happened since the last call. Returns whether anything was appended.
  virtual bool Poll(std::vector<LinkEvent>* events) = 0;
  // Called when Poll has something again; must not call back. Set before the first Connect.
  virtual void SetWake(std::function<void()> wake) = 0;
};

}  // namespace tandem
