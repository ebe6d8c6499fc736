// What: HostNic: a Nic to processes of the same user on the same host, through memory instead of a
//   network.
// Not here: the two ends of a link (outgoing_link.h, incoming_link.h).
// Threads: as Nic.
// Invariants:
//   - **The receiver copies.** A writer that wrote into the receiver's memory itself could be
//     stopped in the middle and go on after the memory was given to somebody else; no close would
//     be a fence. The receiver reads the writer's memory on its own thread instead, so a closed
//     region is closed; a writer that dies is an error of a system call; one that is stopped can be
//     read; and one that gives up withdraws its request by compare-and-swap.
//   - Both prove at the start of a link that it works (same user, memory readable); otherwise it is
//     lost before it is up, and whoever uses it falls back to a network.
//   - Death of a process is the end of its socket: at once, by the system.
// Cost: one copy of the bytes, no copy to or from a kernel's buffer.
// Based on: what the field's same-host paths do wrong (docs/fabric.md): hangs and lost completions
//   of shared queues with locks after a kill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fabric/host/incoming_link.h"
#include "fabric/host/outgoing_link.h"
#include "fabric/nic.h"

namespace tandem {

class HostNic final : public Nic {
 public:
  // UNAVAILABLE when the system refuses a socket.
  static Result<std::unique_ptr<HostNic>> Open();

  std::string kind() const override { return "host"; }
  std::string address() const override { return host_ + name_; }
  bool Reaches(std::string_view address) const override;
  bool is_same_host() const override { return true; }
  uint32_t link_depth() const override { return SharedRing::kEntries / 2; }
  Result<NicRegionId> RegisterLocal(std::span<std::byte> memory) override;
  Result<NicRegionId> RegisterRemote(std::span<std::byte> memory,
                                     RemoteRegion::Nic* remote) override;
  void CloseRegion(NicRegionId region) override;
  Result<NicLinkId> OpenLink(std::string_view address) override;
  void CloseLink(NicLinkId link) override;
  Taken Write(NicLinkId link, const NicWrite& write) override;
  Taken Send(NicLinkId link, std::span<const std::byte> message, uint64_t context) override;
  bool Poll(std::vector<NicEvent>* events) override;
  int wait_fd() const override { return epoll_.get(); }
  bool PrepareWait() override;

 private:
  using IncomingLinks = std::unordered_map<uint32_t, std::unique_ptr<IncomingLink>>;
  // What an event of epoll_ is about.
  enum class Source : uint32_t { kListener, kIncoming, kIncomingBell, kOutgoing, kOutgoingBell };

  HostNic() = default;
  bool Watch(int fd, Source source, uint32_t id);
  void Unwatch(int fd);
  void AcceptAll();
  IncomingLinks::iterator CloseIncoming(IncomingLinks::iterator link);
  void OnReady(Source source, uint32_t id, std::vector<NicEvent>* events);
  void WakeAll();
  void LoseOutgoing(uint32_t id, const Status& why, std::vector<NicEvent>* events);

  std::string host_;  // equal for processes that can reach each other
  std::string name_;  // of the listening socket
  Fd epoll_;
  Fd listener_;
  KeyedRegions regions_;
  std::unordered_map<NicRegionId, uint64_t> keys_;  // 0: local
  IncomingLinks incoming_;
  std::unordered_map<uint32_t, std::unique_ptr<OutgoingLink>> outgoing_;
  std::unordered_set<uint32_t> lost_;  // outgoing links that are to be closed
  uint32_t last_incoming_ = 0;
  uint32_t last_link_ = 0;
  uint32_t last_region_ = 0;
  bool asleep_ = false;  // PrepareWait has said so to the others
};

}  // namespace tandem
