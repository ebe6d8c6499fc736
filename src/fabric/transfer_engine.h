// What: TransferEngine: one-sided writes into the registered memory of peers, counted by their
//   immediates at the receiver. The seam between whoever moves state (messenger/) and a network:
//   libfabric (fabric_engine.h), memory of the same host, a simulation (sim/).
// Not here: blocks, layers, requests; how peers find and trust each other (messenger/).
// Threads: one owner calls everything; implementations have threads of their own. The wake callback
//   comes from any thread.
// Invariants:
//   - No ordering: pieces of a transfer, and transfers, may land in any order.
//   - Nothing here aborts or blocks on a peer; a failure is an event.
//   - Every transfer gets exactly one TransferEnded. OK means that each of its bytes is in the
//     peer's memory (delivery complete). After it, whatever its status, local memory is not read
//     any more for a write that counts; after an error remote memory may still be written until the
//     peer closes the region.
//   - An immediate is counted once its piece's bytes are visible to the owner's thread.
// Based on: fabric-lib of pplx-garden (counted immediates, one worker per NIC group); expectations
//   are bitmaps instead of counts, because a page that comes twice and one that never comes have
//   the right count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "fabric/fabric_stats.h"
#include "fabric/remote_region.h"

namespace tandem {

using PeerId = StrongId<struct PeerIdTag, uint32_t>;          // of one engine; never reused
using RegionId = StrongId<struct RegionIdTag, uint32_t>;      // of one engine; never reused
using TransferId = StrongId<struct TransferIdTag, uint64_t>;  // of one engine; never reused

// {generation 8 | slot 12 | ordinal 12}: which piece of which expectation a write is. 32 bits,
// because EFA and verbs carry no more.
using Immediate = uint32_t;
inline constexpr uint32_t kMaxExpectedPieces = 4096;
inline constexpr uint32_t kMaxExpectations = 4096;  // slots

// A range of slot numbers at one generation, as the receiver gives it to the writer: piece i
// carries `first + i`.
struct Expectation {
  Immediate first = 0;
  uint32_t pieces = 0;
};

enum class PeerState : uint8_t {
  kConnecting,  // not usable yet, or again
  kUp,
  kDead,  // for good; RemovePeer it
};
std::string_view NameOf(PeerState state);

struct WritePiece {
  uint64_t local_offset = 0;   // into the local region
  uint64_t remote_offset = 0;  // into the peer's
  uint32_t bytes = 0;          // 0: the immediate alone
  Immediate immediate = 0;
};

struct TransferEnded {
  TransferId transfer;
  // UNAVAILABLE: the peer, or the deadline; CANCELLED; FAILED_PRECONDITION: the region is closed,
  // or the key is wrong. A network may not tell that from a lost peer: then UNAVAILABLE.
  Status status;
  TimeNs finished = 0;
};
// Every piece of an expectation has come, or its deadline has passed with `missing` pieces.
struct ExpectationEnded {
  Immediate first = 0;
  Status status;
  uint32_t missing = 0;
};
struct MessageReceived {
  PeerId peer;
  std::vector<std::byte> bytes;
};
struct PeerChanged {
  PeerId peer;
  PeerState state;
  Status status;  // why it is dead
};
using FabricEvent = std::variant<TransferEnded, ExpectationEnded, MessageReceived, PeerChanged>;

class TransferEngine {
 public:
  virtual ~TransferEngine() = default;

  // What a peer needs for AddPeer: opaque bytes, at most 1 KiB.
  virtual std::string address() const = 0;

  // Starts to connect (the first write would pay for it otherwise); PeerChanged says how it went.
  // The same address may be added again after RemovePeer (a restarted process): a new id.
  // INVALID_ARGUMENT for bytes that are no address of this kind of engine.
  virtual Result<PeerId> AddPeer(std::string_view address) = 0;
  // Ends all of the peer's transfers with CANCELLED and forgets it.
  virtual void RemovePeer(PeerId peer) = 0;

  // Memory that transfers read from. It outlives the region.
  virtual Result<RegionId> RegisterLocal(std::span<std::byte> memory) = 0;
  // Memory that whoever knows the descriptor may write; each registration has a key of its own, so
  // one per peer lets one peer be fenced off alone. *remote goes to the peer.
  virtual Result<RegionId> RegisterRemote(std::span<std::byte> memory, RemoteRegion* remote) = 0;
  // On return nothing more lands in the region, bytes in flight included: the fence after which a
  // page may be used again. Local regions: no transfer may use it any more.
  virtual void CloseRegion(RegionId region) = 0;

  // Starts a transfer; the pieces are copied. It ends at the latest at `deadline`. Requires a local
  // region and pieces inside it; INVALID_ARGUMENT if not, or when a piece is outside `remote`.
  // RESOURCE_EXHAUSTED: too many in flight, try again after the next event.
  virtual Result<TransferId> Write(PeerId peer, RegionId local, const RemoteRegion& remote,
                                   std::span<const WritePiece> pieces, TimeNs deadline) = 0;
  // Posts no further piece; TransferEnded comes when those posted are known to be over. CANCELLED
  // then says that all of those were delivered: nothing of it lands any more. If one failed, or the
  // deadline passed, the status is that failure's.
  virtual void Cancel(TransferId transfer) = 0;

  // A small message (at most kMaxMessageBytes); delivered whole and at most once, in no order with
  // writes. The end comes as a TransferEnded.
  static constexpr size_t kMaxMessageBytes = 8192;
  virtual Result<TransferId> Send(PeerId peer, std::span<const std::byte> message,
                                  TimeNs deadline) = 0;

  // Announces that `pieces` (1 to kMaxExpectedPieces) writes will come. RESOURCE_EXHAUSTED when all
  // slots are taken.
  virtual Result<Expectation> Expect(uint32_t pieces, TimeNs deadline) = 0;
  // Nobody waits for it any more, but late pieces may still come: they are counted as stale. The
  // slot stays taken until Drained.
  virtual void Abandon(Immediate first) = 0;
  // No piece of it can come any more (it was met, the writer confirmed, or the region is closed):
  // the slot may be used again, with the next generation.
  virtual void Drained(Immediate first) = 0;

  // Appends what has happened since the last call. Returns whether anything was appended.
  virtual bool Poll(std::vector<FabricEvent>* events) = 0;
  // Called when Poll has something again; must not call back. Set before the first AddPeer.
  virtual void SetWake(std::function<void()> wake) = 0;

  virtual FabricStats stats() const = 0;
};

}  // namespace tandem
