// What: SimEngine: a TransferEngine on a SimWorld. Writes really copy bytes, piece by piece in any
//   order; late pieces of ended transfers still land while their region is open; a closed region
//   takes nothing. A hook sees each write before it lands.
// Not here: time, faults, life and death of nodes (sim_world.h).
// Threads: the world's owner.
// Invariants: those of TransferEngine, as badly as they allow: local bytes are read at any time
//   between Write and the end; after an error, or RemovePeer, pieces on the wire still land. Bytes
//   that land twice do so before their immediate is counted; an immediate may come again later.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fabric/expectation_table.h"
#include "fabric/sim/sim_world.h"
#include "fabric/transfer_engine.h"

namespace tandem {

class SimEngine;

// What all engines of one world share: who is where.
class SimFabric {
 public:
  explicit SimFabric(SimWorld* world) : world_(world) {}

  struct Limits {
    uint32_t slots = kMaxExpectations;
    int32_t transfers = 64;  // in flight, of one engine
    int32_t pieces = 16;     // on the wire, of one transfer
    TimeNs connect_timeout = 300 * kNsPerMs;
    TimeNs late_landing = 200 * kNsPerMs;  // pieces of an ended transfer are sent again so long
  };

  // The engine of the process that lives at the node now. It is destroyed when that dies.
  std::unique_ptr<SimEngine> MakeEngine(SimNodeId node, const Limits& limits);

  // Bytes are about to be written to `memory` of the engine at `node`.
  using WriteHook = std::function<void(SimNodeId node, std::span<const std::byte> memory,
                                       std::span<const std::byte> bytes)>;
  void SetWriteHook(WriteHook hook) { hook_ = std::move(hook); }

 private:
  friend class SimEngine;

  SimWorld* const world_;
  WriteHook hook_;
  std::map<uint64_t, SimEngine*> engines_;  // by number: alive
  uint64_t last_engine_ = 0;
  uint64_t last_key_ = 0;
};

class SimEngine final : public TransferEngine {
 public:
  ~SimEngine() override;

  std::string address() const override;
  Result<PeerId> AddPeer(std::string_view address) override;
  void RemovePeer(PeerId peer) override;
  Result<RegionId> RegisterLocal(std::span<std::byte> memory) override;
  Result<RegionId> RegisterRemote(std::span<std::byte> memory, RemoteRegion* remote) override;
  void CloseRegion(RegionId region) override;
  Result<TransferId> Write(PeerId peer, RegionId local, const RemoteRegion& remote,
                           std::span<const WritePiece> pieces, TimeNs deadline) override;
  void Cancel(TransferId transfer) override;
  Result<TransferId> Send(PeerId peer, std::span<const std::byte> message,
                          TimeNs deadline) override;
  Result<Expectation> Expect(uint32_t pieces, TimeNs deadline) override;
  void Abandon(Immediate first) override;
  void Drained(Immediate first) override;
  bool Poll(std::vector<FabricEvent>* events) override;
  void SetWake(std::function<void()> wake) override { wake_ = std::move(wake); }
  FabricStats stats() const override;

 private:
  friend class SimFabric;

  struct Peer {
    uint64_t engine = 0;
    SimNodeId node;
    PeerState state = PeerState::kConnecting;
  };
  struct Region {
    std::span<std::byte> memory;
    uint64_t key = 0;  // 0: local
  };
  struct Transfer {
    PeerId peer;
    RegionId local;
    RemoteRegion remote;
    std::vector<WritePiece> pieces;
    std::vector<std::byte> message;  // of Send, which has one piece without a region
    size_t next = 0;                 // piece to post
    int32_t outstanding = 0;
    bool cancelled = false;
    bool is_message = false;
    TimeNs deadline = 0;
  };
  // A piece that has been read from its memory.
  struct Packet {
    uint64_t from = 0;  // engine
    SimNodeId from_node;
    uint64_t to = 0;
    SimNodeId to_node;
    TransferId transfer;
    WritePiece piece;
    uint64_t key = 0;
    bool is_message = false;
    TimeNs give_up = 0;
    std::vector<std::byte> bytes;
  };
  using PacketPtr = std::shared_ptr<Packet>;

  SimEngine(SimFabric* fabric, uint64_t number, SimNodeId node, const SimFabric::Limits& limits);

  SimWorld& world() const { return *fabric_->world_; }
  void Emit(FabricEvent event);
  void TryConnect(PeerId peer, TimeNs give_up);
  void PeerDied(PeerId peer, const Status& why);
  Result<TransferId> Start(Transfer transfer);
  void PostPieces(TransferId id);
  void ReadPiece(TransferId id, const WritePiece& piece);
  static void Transmit(SimFabric* fabric, const PacketPtr& packet);
  // At the target's node; `repeat`: the bytes alone, they come again.
  static void Land(SimFabric* fabric, const PacketPtr& packet, bool repeat);
  static void Answer(SimFabric* fabric, const PacketPtr& packet, const Status& status);
  Status Take(const Packet& packet, bool repeat);
  void CountAt(TimeNs when, Immediate immediate);
  void Count(Immediate immediate);
  void PieceEnded(const Packet& packet, const Status& status);
  void EndTransfer(TransferId id, const Status& status);

  SimFabric* const fabric_;
  const uint64_t number_;
  const SimNodeId node_;
  const SimFabric::Limits limits_;
  std::function<void()> wake_;
  std::vector<FabricEvent> events_;
  ExpectationTable expectations_;
  std::map<PeerId, Peer> peers_;
  std::map<RegionId, Region> regions_;
  std::map<TransferId, Transfer> transfers_;
  uint32_t last_peer_ = 0;
  uint32_t last_region_ = 0;
  uint64_t last_transfer_ = 0;
  FabricStats stats_;
};

}  // namespace tandem
