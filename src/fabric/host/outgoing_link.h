// What: OutgoingLink: the writing end of a same-host link: it asks the receiver to copy.
// Not here: the other end (incoming_link.h).
// Threads: one owner: the NIC's worker.
// Invariants: each request that is posted ends in one event, in order, or in none once the link is
//   destroyed; then none of them counts at the receiver any more unless it had been copied whole.
// Cost: a post is some stores; a system call only to wake a receiver that sleeps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/host/host_socket.h"
#include "fabric/host/shared_ring.h"
#include "fabric/nic.h"

namespace tandem {

class OutgoingLink {
 public:
  // Connects to the socket `name` and introduces itself. UNAVAILABLE when nobody listens.
  static Result<std::unique_ptr<OutgoingLink>> Open(const std::string& name);
  // Withdraws what the receiver has not copied.
  ~OutgoingLink();

  int socket() const { return socket_.get(); }
  int bell() const { return bell_.get(); }

  Nic::Taken Write(const NicWrite& write);
  Nic::Taken Send(std::span<const std::byte> message, uint64_t context);

  // Reads packets. The link is lost unless OK.
  Status ReadSocket(NicLinkId self, std::vector<NicEvent>* events);
  // Appends what has been copied. Returns whether anything was.
  bool Reap(std::vector<NicEvent>* events);
  bool PrepareWait();
  void Awake();

 private:
  OutgoingLink() = default;
  Status OnPacket(NicLinkId self, const host::Packet& packet, std::vector<NicEvent>* events);

  Fd socket_;
  Fd bell_;           // to us
  Fd receiver_bell_;  // from us
  RingMapping ring_;
  std::unique_ptr<uint64_t> nonce_;  // what the receiver reads to see that it can
  bool up_ = false;
  uint64_t head_ = 0;    // entries posted
  uint64_t reaped_ = 0;  // entries whose end was told
  std::array<uint64_t, SharedRing::kEntries> contexts_ = {};
  uint64_t last_message_ = 0;
  std::unordered_map<uint64_t, uint64_t> messages_;  // id -> context: not acknowledged
};

}  // namespace tandem
