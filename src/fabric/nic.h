// What: Nic: what TransferCore needs of a network interface: regions, links to peers, posted writes
//   and messages, and events. Implementations: libfabric/ (fi_nic.h), memory of the same host
//   (host/host_nic.h), a fake for tests (fake_nic.h).
// Not here: transfers, deadlines, peers' states, balancing (transfer_core.h).
// Threads: one owner calls everything: its worker.
// Invariants:
//   - A post that was taken ends in exactly one kDone or kFailed, or in none once its link is
//     closed. kDone: the bytes are in the peer's memory and its immediate is on its way up there.
//   - After CloseLink nothing reads the local memory of its posts for a write that counts; after
//     CloseRegion nothing more lands in the region.
//   - Nothing blocks on a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/remote_region.h"
#include "fabric/transfer_engine.h"

namespace tandem {

using NicLinkId = StrongId<struct LinkIdTag, uint32_t>;         // of one NIC; never reused; 0: none
using NicRegionId = StrongId<struct NicRegionIdTag, uint32_t>;  // of one NIC; never reused

struct NicEvent {
  enum class Kind : uint8_t {
    kDone,       // context
    kFailed,     // context, status
    kImmediate,  // immediate: a write of a peer has landed
    kMessage,    // bytes
    kLinkUp,     // link: it takes posts
    kLinkLost,   // link, status: close it. Its posts may fail one by one before or never
  };
  Kind kind = Kind::kDone;
  uint64_t context = 0;
  NicLinkId link;
  Immediate immediate = 0;
  Status status;
  std::vector<std::byte> bytes;
};

struct NicWrite {
  NicRegionId local;
  const std::byte* from = nullptr;  // in `local`
  uint32_t bytes = 0;
  const RemoteRegion::Nic* remote = nullptr;
  uint64_t remote_offset = 0;  // from the start of the region
  Immediate immediate = 0;
  uint64_t context = 0;  // not 0, below 2^kNicContextBits
};
inline constexpr int kNicContextBits = 48;

class Nic {
 public:
  enum class Taken : uint8_t {
    kYes,
    kLater,  // try again after the next events
    kNever,  // the link is not usable
  };

  virtual ~Nic() = default;

  // Which provider it is ("net", "host"): only NICs of one kind can talk to each other. At most
  // EngineAddress::kMaxKindBytes.
  virtual std::string kind() const = 0;
  // Where peers open links to; at most kMaxAddressBytes.
  static constexpr size_t kMaxAddressBytes = 64;
  virtual std::string address() const = 0;
  // Whether the address, of a NIC of the same kind, is one that this one could talk to.
  virtual bool Reaches(std::string_view address) const = 0;
  // Whether it is to be preferred where it reaches: no network in between.
  virtual bool is_same_host() const = 0;
  // Posts of one link in flight that fill the pipe; more get kLater.
  virtual uint32_t link_depth() const = 0;

  // Memory that posts read from.
  virtual Result<NicRegionId> RegisterLocal(std::span<std::byte> memory) = 0;
  // Memory that peers may write, under a key of its own.
  virtual Result<NicRegionId> RegisterRemote(std::span<std::byte> memory,
                                             RemoteRegion::Nic* remote) = 0;
  virtual void CloseRegion(NicRegionId region) = 0;

  // Begins to connect; kLinkUp or kLinkLost follows. UNAVAILABLE when it fails at once.
  virtual Result<NicLinkId> OpenLink(std::string_view address) = 0;
  virtual void CloseLink(NicLinkId link) = 0;

  virtual Taken Write(NicLinkId link, const NicWrite& write) = 0;
  // The bytes are copied.
  virtual Taken Send(NicLinkId link, std::span<const std::byte> message, uint64_t context) = 0;

  // Makes progress, and appends what happened. Returns whether anything was done.
  virtual bool Poll(std::vector<NicEvent>* events) = 0;
  // Readable when Poll has something to do, provided that PrepareWait has returned true since the
  // last call of anything else.
  virtual int wait_fd() const = 0;
  virtual bool PrepareWait() = 0;
};

}  // namespace tandem
