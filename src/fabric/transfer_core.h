// What: TransferCore: peers and transfers over one or more NICs, without threads or a clock of its
//   own: links to each peer, pieces balanced over them, deadlines, cancels, ends.
// Not here: threads and expectations (fabric_engine.h), networks (nic.h).
// Threads: one owner calls everything.
// Invariants (checked by CheckIntegrity()):
//   - A peer has one lane to each pair of NICs that reach each other; where one is of the same
//     host, that is the only one until it fails to connect. Lanes are opened with AddPeer.
//   - A peer is up when each of its lanes is up or given up, and one is up. A lane that is lost is
//     opened again; when none is up for `connect_timeout`, the peer is dead and all of its
//     transfers end.
//   - A transfer that ends with posts outstanding takes their links down: nothing reads its memory
//     afterwards. Other transfers to that peer that had posts on them fail too.
//   - An op is live from its post to its completion or its link's close; its context has the
//     generation of its slot.
// Cost: a post and a completion are O(1); nothing is scanned but peers and lanes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fabric/engine_address.h"
#include "fabric/nic.h"
#include "fabric/transfer_engine.h"

namespace tandem {

class TransferCore {
 public:
  struct Config {
    // A peer that answers nowhere for so long is dead; so is a lane that takes nothing for so long.
    TimeNs connect_timeout = 3 * kNsPerS;
    TimeNs reconnect_interval = 50 * kNsPerMs;
  };
  struct NewTransfer {
    TransferId id;
    PeerId peer;
    RegionId local;
    RemoteRegion remote;
    std::vector<WritePiece> pieces;
    bool is_message = false;
    std::vector<std::byte> message;
    TimeNs deadline = 0;
  };
  // What Turn has found: immediates of peers' writes, and events in order.
  struct Output {
    std::vector<Immediate> immediates;
    std::vector<FabricEvent> events;
  };

  // Requires 1 to RemoteRegion::kMaxNics NICs.
  TransferCore(std::vector<std::unique_ptr<Nic>> nics, Config config);
  ~TransferCore();

  const EngineAddress& address() const { return address_; }
  // Whether any NIC reaches one of the address's.
  bool Reaches(const EngineAddress& address) const;

  // Each registers at all NICs, or at none. `remote` may be null: local memory.
  Status Register(RegionId region, std::span<std::byte> memory, RemoteRegion* remote);
  // As TransferEngine's: the fence. Transfers that read from it end first, with CANCELLED.
  void CloseRegion(RegionId region);

  void AddPeer(PeerId peer, EngineAddress address, TimeNs now);
  void RemovePeer(PeerId peer);
  // An unknown peer or region ends it at once, at the next Turn. Requires pieces within the region.
  void Begin(NewTransfer transfer);
  // Unknown ones have ended already.
  void Cancel(TransferId transfer);

  // One round: completions, deadlines, connections, posts. Returns whether anything was done.
  bool Turn(TimeNs now, Output* output);
  // When Turn must be called even if no NIC has anything.
  TimeNs next_deadline(TimeNs now) const;

  const std::vector<std::unique_ptr<Nic>>& nics() const { return nics_; }
  void AddTo(FabricStats* stats) const;
  void CheckIntegrity() const;

 private:
  struct Lane {
    size_t nic = 0;         // ours
    size_t remote_nic = 0;  // the peer's
    NicLinkId link;         // 0: to be opened at `retry_at`
    bool up = false;
    bool given_up = false;
    TimeNs retry_at = 0;
    std::optional<TimeNs> stalled_since;  // takes nothing although nothing is on its way
    uint32_t posts = 0;
    uint64_t bytes = 0;  // posted, not done
  };
  struct Peer {
    PeerId id;
    EngineAddress address;
    PeerState state = PeerState::kConnecting;
    std::vector<Lane> lanes;
    bool same_host = false;  // the lanes are of the same host
    bool was_up = false;
    TimeNs connect_deadline = 0;
    Status why;                      // the last lane was lost
    std::deque<TransferId> queue;    // have pieces to post
    std::set<TransferId> transfers;  // all
  };
  struct Transfer {
    NewTransfer what;
    size_t next = 0;  // piece to post
    uint32_t outstanding = 0;
    bool queued = false;     // in its peer's queue
    bool stopped = false;    // posts nothing more; ends with `status`
    bool cancelled = false;  // by its owner, and nothing that was posted has failed since
    Status status;
    size_t num_posts() const { return what.is_message ? 1 : what.pieces.size(); }
    bool all_posted() const { return stopped || next == num_posts(); }
  };
  struct Op {
    uint32_t generation = 1;
    bool live = false;
    TransferId transfer;
    PeerId peer;
    uint32_t lane = 0;
    uint32_t bytes = 0;
  };
  struct Region {
    std::span<std::byte> memory;
    std::vector<NicRegionId> nics;
  };
  enum class Posted : uint8_t { kYes, kNoRoom, kFailed };

  void ChooseLanes(Peer* peer, bool same_host_allowed);
  void OpenLane(Peer* peer, Lane* lane, TimeNs now);
  void LoseLane(Peer* peer, size_t lane, const Status& why, TimeNs now);
  void CloseLane(Peer* peer, size_t lane, const Status& why);
  bool TendPeer(Peer* peer, TimeNs now);
  void SettleState(Peer* peer, TimeNs now);
  void SetState(Peer* peer, PeerState state, const Status& why);
  void Bury(Peer* peer, const Status& why);

  void OnNicEvents(size_t nic, TimeNs now);
  void OnOpEnded(uint64_t context, const Status& status);
  void OnLinkEvent(size_t nic, const NicEvent& event, TimeNs now);
  void OnMessage(const NicEvent& event);

  bool PostFor(Peer* peer, TimeNs now);
  Posted PostOne(Peer* peer, Transfer* transfer, TimeNs now);
  size_t BestLane(const Peer& peer, const Transfer& transfer) const;
  bool Fits(const Peer& peer, const Lane& lane, const Transfer& transfer) const;
  Nic::Taken PostOn(Peer* peer, size_t lane, Transfer* transfer);
  size_t TakeOp();
  void FreeOp(size_t index);

  bool Expire(TimeNs now);
  void Stop(Transfer* transfer, const Status& why);
  // Ends it now, taking down the links that its posts are on.
  void EndNow(TransferId id, const Status& why, TimeNs now);
  void EndIfOver(TransferId id);
  void Finish(TransferId id, const Status& status);

  const Config config_;
  EngineAddress address_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::map<RegionId, Region> regions_;
  std::map<PeerId, Peer> peers_;
  std::vector<std::unordered_map<NicLinkId, std::pair<PeerId, size_t>>> links_;  // per NIC
  std::unordered_map<TransferId, Transfer> transfers_;
  std::set<std::pair<TimeNs, TransferId>> deadlines_;
  std::vector<Op> ops_;
  std::vector<uint32_t> free_ops_;
  std::vector<NicEvent> nic_events_;
  Output output_;
  TimeNs now_ = 0;  // of the current or last turn
  FabricStats stats_;
};

}  // namespace tandem
