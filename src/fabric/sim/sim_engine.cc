#include "fabric/sim/sim_engine.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr std::string_view kScheme = "sim:";

// "sim:<engine>:<node>"
std::string AddressOf(uint64_t engine, SimNodeId node) {
  return std::string(kScheme) + std::to_string(engine) + ":" + std::to_string(node.value());
}

template <typename T>
bool ReadNumber(std::string_view* text, T* value) {
  const auto result = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (result.ec != std::errc{}) return false;
  text->remove_prefix(static_cast<size_t>(result.ptr - text->data()));
  return true;
}

}  // namespace

std::unique_ptr<SimEngine> SimFabric::MakeEngine(SimNodeId node, const Limits& limits) {
  std::unique_ptr<SimEngine> engine(new SimEngine(this, ++last_engine_, node, limits));
  engines_.emplace(engine->number_, engine.get());
  return engine;
}

SimEngine::SimEngine(SimFabric* fabric, uint64_t number, SimNodeId node,
                     const SimFabric::Limits& limits)
    : fabric_(fabric), number_(number), node_(node), limits_(limits), expectations_(limits.slots) {}

SimEngine::~SimEngine() { fabric_->engines_.erase(number_); }

std::string SimEngine::address() const { return AddressOf(number_, node_); }

void SimEngine::Emit(FabricEvent event) {
  events_.push_back(std::move(event));
  if (wake_) wake_();
}

// ---------------------------------------------------------------- peers

Result<PeerId> SimEngine::AddPeer(std::string_view address) {
  Peer peer;
  int32_t node = -1;
  std::string_view rest = address;
  const bool scheme = rest.starts_with(kScheme);
  if (scheme) rest.remove_prefix(kScheme.size());
  const bool good = scheme && ReadNumber(&rest, &peer.engine) && rest.starts_with(':');
  if (good) rest.remove_prefix(1);
  if (!good || !ReadNumber(&rest, &node) || !rest.empty()) {
    return InvalidArgumentError("'{}' is no address of a simulated engine", address);
  }
  peer.node = SimNodeId(node);
  const PeerId id(++last_peer_);
  peers_.emplace(id, peer);
  TryConnect(id, world().now() + limits_.connect_timeout);
  return id;
}

void SimEngine::TryConnect(PeerId id, TimeNs give_up) {
  SimFabric* const fabric = fabric_;
  const uint64_t self = number_;
  const Peer& peer = peers_.at(id);
  // Finds the peer again in whoever is still there when the packet arrives.
  auto find = [fabric, self, id]() -> SimEngine* {
    const auto it = fabric->engines_.find(self);
    return it != fabric->engines_.end() && it->second->peers_.contains(id) ? it->second : nullptr;
  };
  const bool sent = world().Deliver(node_, peer.node, [fabric, find, id] {
    SimEngine* const here = find();
    if (here == nullptr) return;
    Peer& target = here->peers_.at(id);
    if (!fabric->engines_.contains(target.engine)) {
      return here->PeerDied(id, UnavailableError("nobody answers at this address"));
    }
    target.state = PeerState::kUp;
    here->Emit(PeerChanged{id, PeerState::kUp, OkStatus()});
    for (auto& [transfer, open] : here->transfers_) {
      if (open.peer == id) here->PostPieces(transfer);
    }
  });
  if (sent) return;
  world().At(world().now() + 5 * kNsPerMs, [find, id, give_up] {
    SimEngine* const here = find();
    if (here == nullptr) return;
    if (here->world().now() < give_up) return here->TryConnect(id, give_up);
    here->PeerDied(id, UnavailableError("no connection in time"));
  });
}

void SimEngine::PeerDied(PeerId id, const Status& why) {
  Peer& peer = peers_.at(id);
  if (peer.state == PeerState::kDead) return;
  peer.state = PeerState::kDead;
  std::vector<TransferId> lost;
  for (const auto& [transfer, open] : transfers_) {
    if (open.peer == id) lost.push_back(transfer);
  }
  for (const TransferId transfer : lost) EndTransfer(transfer, why);
  Emit(PeerChanged{id, PeerState::kDead, why});
}

void SimEngine::RemovePeer(PeerId id) {
  std::vector<TransferId> open;
  for (const auto& [transfer, what] : transfers_) {
    if (what.peer == id) open.push_back(transfer);
  }
  for (const TransferId transfer : open) EndTransfer(transfer, CancelledError("peer removed"));
  peers_.erase(id);
}

// ---------------------------------------------------------------- regions

Result<RegionId> SimEngine::RegisterLocal(std::span<std::byte> memory) {
  const RegionId id(++last_region_);
  regions_.emplace(id, Region{memory, 0});
  return id;
}

Result<RegionId> SimEngine::RegisterRemote(std::span<std::byte> memory, RemoteRegion* remote) {
  const RegionId id(++last_region_);
  const uint64_t key = ++fabric_->last_key_;
  regions_.emplace(id, Region{memory, key});
  *remote = {.bytes = memory.size(), .nics = {{.base = 0, .key = key}}};
  return id;
}

void SimEngine::CloseRegion(RegionId region) { regions_.erase(region); }

// ---------------------------------------------------------------- transfers

Result<TransferId> SimEngine::Write(PeerId peer, RegionId local, const RemoteRegion& remote,
                                    std::span<const WritePiece> pieces, TimeNs deadline) {
  const auto region = regions_.find(local);
  if (region == regions_.end()) return InvalidArgumentError("no such region");
  if (remote.nics.size() != 1)
    return InvalidArgumentError("a region of {} NICs", remote.nics.size());
  for (const WritePiece& piece : pieces) {
    const uint64_t local_bytes = region->second.memory.size();
    if (piece.local_offset > local_bytes || piece.bytes > local_bytes - piece.local_offset ||
        piece.remote_offset > remote.bytes || piece.bytes > remote.bytes - piece.remote_offset) {
      return InvalidArgumentError("a piece outside of its region");
    }
  }
  return Start({.peer = peer,
                .local = local,
                .remote = remote,
                .pieces = {pieces.begin(), pieces.end()},
                .deadline = deadline});
}

Result<TransferId> SimEngine::Send(PeerId peer, std::span<const std::byte> message,
                                   TimeNs deadline) {
  if (message.size() > kMaxMessageBytes) {
    return InvalidArgumentError("a message of {} bytes", message.size());
  }
  ++stats_.messages_sent;
  return Start({.peer = peer,
                .pieces = {WritePiece{.bytes = static_cast<uint32_t>(message.size())}},
                .message = {message.begin(), message.end()},
                .is_message = true,
                .deadline = deadline});
}

Result<TransferId> SimEngine::Start(Transfer transfer) {
  const auto peer = peers_.find(transfer.peer);
  if (peer == peers_.end() || peer->second.state == PeerState::kDead) {
    return UnavailableError("the peer is dead");
  }
  if (static_cast<int32_t>(transfers_.size()) >= limits_.transfers) {
    ++stats_.retries;
    return ResourceExhaustedError("{} transfers are in flight", transfers_.size());
  }
  const TransferId id(++last_transfer_);
  const TimeNs deadline = transfer.deadline;
  transfers_.emplace(id, std::move(transfer));
  ++stats_.transfers;
  world().At(deadline, [fabric = fabric_, self = number_, id] {
    const auto it = fabric->engines_.find(self);
    if (it == fabric->engines_.end() || !it->second->transfers_.contains(id)) return;
    it->second->EndTransfer(id, UnavailableError("the transfer is late"));
  });
  PostPieces(id);
  return id;
}

void SimEngine::PostPieces(TransferId id) {
  const auto it = transfers_.find(id);
  if (it == transfers_.end() || peers_.at(it->second.peer).state != PeerState::kUp) return;
  Transfer& transfer = it->second;
  while (transfer.next < transfer.pieces.size() && transfer.outstanding < limits_.pieces) {
    ++transfer.outstanding;
    const WritePiece piece = transfer.pieces[transfer.next++];
    const TimeNs when = world().now() + world().Between(0, 5 * kNsPerUs);
    world().At(when, [fabric = fabric_, self = number_, id, piece] {
      const auto engine = fabric->engines_.find(self);
      if (engine != fabric->engines_.end()) engine->second->ReadPiece(id, piece);
    });
  }
  if (transfer.pieces.empty()) EndTransfer(id, OkStatus());
}

void SimEngine::ReadPiece(TransferId id, const WritePiece& piece) {
  const auto it = transfers_.find(id);
  if (it == transfers_.end()) return;  // ended: local memory is not read any more
  const Transfer& transfer = it->second;
  const Peer& peer = peers_.at(transfer.peer);
  auto packet = std::make_shared<Packet>();
  packet->from = number_;
  packet->from_node = node_;
  packet->to = peer.engine;
  packet->to_node = peer.node;
  packet->transfer = id;
  packet->piece = piece;
  packet->is_message = transfer.is_message;
  packet->give_up = transfer.deadline + limits_.late_landing;
  if (transfer.is_message) {
    packet->bytes = transfer.message;
  } else {
    const auto region = regions_.find(transfer.local);
    TANDEM_CHECK(region != regions_.end());  // closed while a transfer uses it
    packet->key = transfer.remote.nics[0].key;
    const auto bytes = region->second.memory.subspan(piece.local_offset, piece.bytes);
    packet->bytes.assign(bytes.begin(), bytes.end());
  }
  Transmit(fabric_, packet);
}

// ---------------------------------------------------------------- the wire

void SimEngine::Transmit(SimFabric* fabric, const PacketPtr& packet) {
  SimWorld& world = *fabric->world_;
  if (world.now() >= packet->give_up) return;
  if (!packet->is_message && world.Chance(world.faults().duplicate)) {
    // The bytes land once on their own; then the write is sent, so that they land again before its
    // immediate. Lost copies do not matter.
    const bool sent = world.Deliver(packet->from_node, packet->to_node, [fabric, packet] {
      Land(fabric, packet, true);
      fabric->world_->At(fabric->world_->now() + fabric->world_->Delay(),
                         [fabric, packet] { Land(fabric, packet, false); });
    });
    if (sent) return;
  } else if (world.Deliver(packet->from_node, packet->to_node,
                           [fabric, packet] { Land(fabric, packet, false); })) {
    return;
  }
  world.At(world.now() + world.faults().resend_after,
           [fabric, packet] { Transmit(fabric, packet); });
}

void SimEngine::Land(SimFabric* fabric, const PacketPtr& packet, bool repeat) {
  const auto target = fabric->engines_.find(packet->to);
  if (target == fabric->engines_.end()) {
    return Answer(fabric, packet, UnavailableError("the peer's process has ended"));
  }
  SimWorld& world = *fabric->world_;
  if (!world.faults().stopped_nodes_receive && world.stopped(packet->to_node)) {
    return world.WhenRunning(packet->to_node,
                             [fabric, packet, repeat] { Land(fabric, packet, repeat); });
  }
  const Status taken = target->second->Take(*packet, repeat);
  if (!repeat) Answer(fabric, packet, taken);
}

Status SimEngine::Take(const Packet& packet, bool repeat) {
  if (packet.is_message) {
    ++stats_.messages_received;
    PeerId from;
    for (const auto& [id, peer] : peers_) {
      if (peer.engine == packet.from) from = id;
    }
    Emit(MessageReceived{from, packet.bytes});
    return OkStatus();
  }
  for (const auto& [id, region] : regions_) {
    if (region.key == 0 || region.key != packet.key) continue;
    const auto memory = region.memory.subspan(packet.piece.remote_offset, packet.piece.bytes);
    if (fabric_->hook_) fabric_->hook_(node_, memory, packet.bytes);
    std::memcpy(memory.data(), packet.bytes.data(), packet.bytes.size());
    if (repeat) return OkStatus();
    const TimeNs lag =
        world().Chance(world().faults().lag) ? world().Between(0, world().faults().delay_slow) : 0;
    CountAt(world().now() + lag, packet.piece.immediate);
    if (world().Chance(world().faults().duplicate)) {
      // So late that its slot may have been given out again, under another generation.
      CountAt(world().now() + lag + world().Between(1, 10 * kNsPerMs), packet.piece.immediate);
    }
    return OkStatus();
  }
  return FailedPreconditionError("no region has this key");
}

void SimEngine::Answer(SimFabric* fabric, const PacketPtr& packet, const Status& status) {
  SimWorld& world = *fabric->world_;
  const bool sent = world.Deliver(packet->to_node, packet->from_node, [fabric, packet, status] {
    const auto it = fabric->engines_.find(packet->from);
    if (it != fabric->engines_.end()) it->second->PieceEnded(*packet, status);
  });
  if (sent || world.now() >= packet->give_up) return;
  world.At(world.now() + world.faults().resend_after,
           [fabric, packet, status] { Answer(fabric, packet, status); });
}

void SimEngine::PieceEnded(const Packet& packet, const Status& status) {
  const TransferId id = packet.transfer;
  const auto it = transfers_.find(id);
  if (it == transfers_.end()) return;
  Transfer& transfer = it->second;
  if (status.code() == StatusCode::kUnavailable) return PeerDied(transfer.peer, status);
  if (!status.ok()) return EndTransfer(id, status);
  --transfer.outstanding;
  if (!transfer.is_message) {
    ++stats_.pieces_written;
    stats_.bytes_written += packet.piece.bytes;
  }
  if (transfer.cancelled) {
    if (transfer.outstanding == 0) EndTransfer(id, CancelledError("cancelled"));
    return;
  }
  PostPieces(id);
  if (transfer.next == transfer.pieces.size() && transfer.outstanding == 0) {
    EndTransfer(id, OkStatus());
  }
}

void SimEngine::Cancel(TransferId id) {
  const auto it = transfers_.find(id);
  if (it == transfers_.end()) return;
  Transfer& transfer = it->second;
  if (transfer.next == transfer.pieces.size()) return;  // all are posted: it ends by itself
  transfer.cancelled = true;
  transfer.next = transfer.pieces.size();
  if (transfer.outstanding == 0) EndTransfer(id, CancelledError("cancelled"));
}

void SimEngine::EndTransfer(TransferId id, const Status& status) {
  if (!status.ok()) ++stats_.transfers_failed;
  transfers_.erase(id);
  Emit(TransferEnded{id, status, world().now()});
}

// ---------------------------------------------------------------- expectations

Result<Expectation> SimEngine::Expect(uint32_t pieces, TimeNs deadline) {
  auto expectation = expectations_.Expect(pieces, deadline);
  if (!expectation.ok()) return expectation;
  world().At(deadline, [fabric = fabric_, self = number_] {
    const auto it = fabric->engines_.find(self);
    if (it == fabric->engines_.end()) return;
    SimEngine& here = *it->second;
    while (auto late = here.expectations_.TakeLate(here.world().now())) {
      ++here.stats_.expectations_late;
      here.Emit(*late);
    }
  });
  return expectation;
}

void SimEngine::CountAt(TimeNs when, Immediate immediate) {
  if (when == world().now()) return Count(immediate);
  world().At(when, [fabric = fabric_, self = number_, immediate] {
    const auto it = fabric->engines_.find(self);
    if (it != fabric->engines_.end()) it->second->Count(immediate);
  });
}

void SimEngine::Count(Immediate immediate) {
  switch (expectations_.Count(immediate)) {
    case ExpectationTable::Seen::kCounted: return;
    case ExpectationTable::Seen::kMet:
      ++stats_.expectations_met;
      return Emit(ExpectationEnded{immediate & ~(kMaxExpectedPieces - 1), OkStatus(), 0});
    case ExpectationTable::Seen::kStale: ++stats_.immediates_stale; return;
    case ExpectationTable::Seen::kDuplicate: ++stats_.immediates_duplicate; return;
    case ExpectationTable::Seen::kUnknown: ++stats_.immediates_unknown; return;
  }
}

void SimEngine::Abandon(Immediate first) { expectations_.Abandon(first); }
void SimEngine::Drained(Immediate first) { expectations_.Drained(first); }

// ---------------------------------------------------------------- owner

bool SimEngine::Poll(std::vector<FabricEvent>* events) {
  if (events_.empty()) return false;
  events->insert(events->end(), std::make_move_iterator(events_.begin()),
                 std::make_move_iterator(events_.end()));
  events_.clear();
  return true;
}

FabricStats SimEngine::stats() const {
  FabricStats stats = stats_;
  for (const auto& [id, peer] : peers_) {
    switch (peer.state) {
      case PeerState::kConnecting: ++stats.peers_connecting; break;
      case PeerState::kUp: ++stats.peers_up; break;
      case PeerState::kDead: ++stats.peers_dead; break;
    }
  }
  return stats;
}

}  // namespace tandem
