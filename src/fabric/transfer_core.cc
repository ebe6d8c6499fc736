#include "fabric/transfer_core.h"

#include <algorithm>

#include "base/check.h"
#include "fabric/random.h"
#include "fabric/wire.h"

namespace tandem {
namespace {

constexpr size_t kOpsMost = 1 << 16;  // a context has 16 bits for the slot
constexpr int kOpSlotBits = 16;
constexpr TimeNs kRetryPost = 500 * kNsPerUs;  // when a NIC puts posts off without an event to come
constexpr size_t kNoLane = SIZE_MAX;
constexpr int kTransfersAtOnce = 64;  // of one peer in one turn, so that others get theirs

}  // namespace

TransferCore::TransferCore(std::vector<std::unique_ptr<Nic>> nics, Config config)
    : config_(config), nics_(std::move(nics)), links_(nics_.size()) {
  TANDEM_CHECK(!nics_.empty() && nics_.size() <= RemoteRegion::kMaxNics);
  address_.engine = SecretUint64();
  for (const auto& nic : nics_) address_.nics.push_back({nic->kind(), nic->address()});
}

TransferCore::~TransferCore() = default;

// ---------------------------------------------------------------- regions

Status TransferCore::Register(RegionId id, std::span<std::byte> memory, RemoteRegion* remote) {
  Region region;
  region.memory = memory;
  RemoteRegion description;
  description.bytes = memory.size();
  for (size_t i = 0; i < nics_.size(); ++i) {
    RemoteRegion::Nic at;
    const auto made =
        remote == nullptr ? nics_[i]->RegisterLocal(memory) : nics_[i]->RegisterRemote(memory, &at);
    if (!made.ok()) {
      for (size_t k = 0; k < i; ++k) nics_[k]->CloseRegion(region.nics[k]);
      return made.status().WithContext("registering memory at " + nics_[i]->kind());
    }
    region.nics.push_back(*made);
    description.nics.push_back(std::move(at));
  }
  TANDEM_CHECK(regions_.emplace(id, std::move(region)).second);
  if (remote != nullptr) *remote = std::move(description);
  return OkStatus();
}

void TransferCore::CloseRegion(RegionId id) {
  const auto it = regions_.find(id);
  if (it == regions_.end()) return;
  std::vector<TransferId> readers;
  for (const auto& [transfer, what] : transfers_) {
    if (!what.what.is_message && what.what.local == id) readers.push_back(transfer);
  }
  for (const TransferId transfer : readers) {
    EndNow(transfer, CancelledError("its local region was closed"), now_);
  }
  for (size_t i = 0; i < nics_.size(); ++i) nics_[i]->CloseRegion(it->second.nics[i]);
  regions_.erase(it);
}

// ---------------------------------------------------------------- peers

bool TransferCore::Reaches(const EngineAddress& address) const {
  for (const auto& nic : nics_) {
    for (const auto& remote : address.nics) {
      if (nic->kind() == remote.kind && nic->Reaches(remote.address)) return true;
    }
  }
  return false;
}

void TransferCore::ChooseLanes(Peer* peer, bool same_host_allowed) {
  peer->lanes.clear();
  peer->same_host = false;
  // Per kind, our NICs and theirs that reach each other; the shorter list is gone through again, so
  // that every NIC of the longer one has a lane.
  std::map<std::string, std::pair<std::vector<size_t>, std::vector<size_t>>> kinds;
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (nics_[i]->is_same_host() && !same_host_allowed) continue;
    auto& [ours, theirs] = kinds[nics_[i]->kind()];
    ours.push_back(i);
    if (ours.size() > 1) continue;
    for (size_t k = 0; k < peer->address.nics.size(); ++k) {
      const auto& remote = peer->address.nics[k];
      if (remote.kind == nics_[i]->kind() && nics_[i]->Reaches(remote.address)) theirs.push_back(k);
    }
  }
  for (const auto& [kind, pair] : kinds) {
    const auto& [ours, theirs] = pair;
    if (theirs.empty()) continue;
    const bool same_host = nics_[ours[0]]->is_same_host();
    if (same_host) {
      peer->lanes.clear();
      peer->same_host = true;
    } else if (peer->same_host) {
      continue;
    }
    for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
      Lane lane;
      lane.nic = ours[i % ours.size()];
      lane.remote_nic = theirs[i % theirs.size()];
      peer->lanes.push_back(lane);
    }
  }
}

void TransferCore::AddPeer(PeerId id, EngineAddress address, TimeNs now) {
  Peer& peer = peers_[id];
  peer.id = id;
  peer.address = std::move(address);
  peer.connect_deadline = now + config_.connect_timeout;
  ChooseLanes(&peer, /*same_host_allowed=*/true);
  TANDEM_CHECK(!peer.lanes.empty());  // the caller has asked Reaches
  for (Lane& lane : peer.lanes) OpenLane(&peer, &lane, now);
}

void TransferCore::RemovePeer(PeerId id) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  const Status why = CancelledError("the peer was removed");
  while (!peer.transfers.empty()) {
    const TransferId transfer = *peer.transfers.begin();
    Stop(&transfers_.at(transfer), why);
    for (size_t i = 0; i < peer.lanes.size(); ++i) CloseLane(&peer, i, why);
    if (transfers_.contains(transfer)) EndIfOver(transfer);
  }
  for (size_t i = 0; i < peer.lanes.size(); ++i) CloseLane(&peer, i, why);
  peers_.erase(it);
}

void TransferCore::OpenLane(Peer* peer, Lane* lane, TimeNs now) {
  Nic& nic = *nics_[lane->nic];
  const auto link = nic.OpenLink(peer->address.nics[lane->remote_nic].address);
  lane->retry_at = now + config_.reconnect_interval;
  if (!link.ok()) {
    peer->why = link.status();
    return;
  }
  lane->link = *link;
  const auto index = static_cast<size_t>(lane - peer->lanes.data());
  links_[lane->nic].emplace(*link, std::pair(peer->id, index));
}

// Its posts are over, with `why`.
void TransferCore::CloseLane(Peer* peer, size_t index, const Status& why) {
  Lane& lane = peer->lanes[index];
  if (lane.link == NicLinkId()) return;
  nics_[lane.nic]->CloseLink(lane.link);
  links_[lane.nic].erase(lane.link);
  lane.link = NicLinkId();
  lane.up = false;
  lane.stalled_since.reset();
  if (lane.posts == 0) return;
  std::vector<TransferId> hit;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    if (!op.live || op.peer != peer->id || op.lane != index) continue;
    hit.push_back(op.transfer);
    --transfers_.at(op.transfer).outstanding;
    FreeOp(i);
  }
  lane.posts = 0;
  lane.bytes = 0;
  for (const TransferId id : hit) {
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) continue;
    Stop(&it->second, why);
    EndIfOver(id);
  }
}

void TransferCore::LoseLane(Peer* peer, size_t index, const Status& why, TimeNs now) {
  peer->why = why;
  CloseLane(peer, index, why);
  peer->lanes[index].retry_at = now + config_.reconnect_interval;
  if (peer->state == PeerState::kUp) {
    peer->connect_deadline = now + config_.connect_timeout;
    for (Lane& lane : peer->lanes) lane.given_up = false;
    SetState(peer, PeerState::kConnecting, why);
  }
  const bool other_ways =
      std::any_of(peer->address.nics.begin(), peer->address.nics.end(), [this](const auto& remote) {
        return std::any_of(nics_.begin(), nics_.end(), [&remote](const auto& nic) {
          return !nic->is_same_host() && nic->kind() == remote.kind && nic->Reaches(remote.address);
        });
      });
  // It says that it is on this host and cannot be reached there: another container, no permission.
  if (peer->same_host && !peer->was_up && other_ways) {
    ChooseLanes(peer, /*same_host_allowed=*/false);
    peer->connect_deadline = now + config_.connect_timeout;
    for (Lane& lane : peer->lanes) OpenLane(peer, &lane, now);
  }
}

void TransferCore::SetState(Peer* peer, PeerState state, const Status& why) {
  if (peer->state == state) return;
  peer->state = state;
  output_.events.push_back(PeerChanged{peer->id, state, why});
}

void TransferCore::Bury(Peer* peer, const Status& why) {
  for (size_t i = 0; i < peer->lanes.size(); ++i) CloseLane(peer, i, why);
  SetState(peer, PeerState::kDead, why);
  while (!peer->transfers.empty()) {
    const TransferId id = *peer->transfers.begin();
    Stop(&transfers_.at(id), why);
    EndIfOver(id);
  }
}

void TransferCore::SettleState(Peer* peer, TimeNs now) {
  if (peer->state != PeerState::kConnecting) return;
  const bool late = now >= peer->connect_deadline;
  size_t up = 0;
  size_t open = 0;
  for (Lane& lane : peer->lanes) {
    if (lane.up) ++up;
    if (!lane.up && !lane.given_up) ++open;
  }
  if (up > 0 && (open == 0 || late)) {
    for (size_t i = 0; i < peer->lanes.size(); ++i) {
      if (peer->lanes[i].up) continue;
      CloseLane(peer, i, UnavailableError("no answer"));
      peer->lanes[i].given_up = true;
    }
    peer->was_up = true;
    SetState(peer, PeerState::kUp, OkStatus());
  } else if (up == 0 && late) {
    Bury(peer, UnavailableError("the peer does not answer{}{}", peer->why.ok() ? "" : ": ",
                                peer->why.message()));
  }
}

// Reopens what is lost, ends what stalls.
bool TransferCore::TendPeer(Peer* peer, TimeNs now) {
  if (peer->state == PeerState::kDead) return false;
  bool any = false;
  for (size_t i = 0; i < peer->lanes.size(); ++i) {
    Lane& lane = peer->lanes[i];
    if (lane.stalled_since && now - *lane.stalled_since >= config_.connect_timeout) {
      const Status why = UnavailableError("the peer takes nothing");
      // The first in the queue is what it does not take.
      if (!peer->queue.empty()) {
        const TransferId first = peer->queue.front();
        Stop(&transfers_.at(first), why);
        EndIfOver(first);
      }
      LoseLane(peer, i, why, now);
      any = true;
      break;  // lanes may be others now
    }
    if (peer->state == PeerState::kConnecting && lane.link == NicLinkId() && !lane.given_up &&
        now >= lane.retry_at) {
      OpenLane(peer, &lane, now);
      any = true;
    }
  }
  SettleState(peer, now);
  return any;
}

// ---------------------------------------------------------------- events of NICs

void TransferCore::OnNicEvents(size_t nic, TimeNs now) {
  for (const NicEvent& event : nic_events_) {
    switch (event.kind) {
      case NicEvent::Kind::kDone: OnOpEnded(event.context, OkStatus()); break;
      case NicEvent::Kind::kFailed: OnOpEnded(event.context, event.status); break;
      case NicEvent::Kind::kImmediate: output_.immediates.push_back(event.immediate); break;
      case NicEvent::Kind::kMessage: OnMessage(event); break;
      case NicEvent::Kind::kLinkUp:
      case NicEvent::Kind::kLinkLost: OnLinkEvent(nic, event, now); break;
    }
  }
}

void TransferCore::OnOpEnded(uint64_t context, const Status& status) {
  const size_t index = context & (kOpsMost - 1);
  if (index >= ops_.size()) return;
  const Op op = ops_[index];
  // Anything else is a completion that came twice, or after its link was closed.
  if (!op.live || op.generation != static_cast<uint32_t>(context >> kOpSlotBits)) return;
  FreeOp(index);
  Lane& lane = peers_.at(op.peer).lanes[op.lane];
  --lane.posts;
  lane.bytes -= op.bytes;
  lane.stalled_since.reset();
  Transfer& transfer = transfers_.at(op.transfer);
  --transfer.outstanding;
  if (!status.ok()) {
    Stop(&transfer, status);
  } else if (transfer.what.is_message) {
    ++stats_.messages_sent;
  } else {
    ++stats_.pieces_written;
    stats_.bytes_written += op.bytes;
  }
  EndIfOver(op.transfer);
}

void TransferCore::OnLinkEvent(size_t nic, const NicEvent& event, TimeNs now) {
  const auto it = links_[nic].find(event.link);
  if (it == links_[nic].end()) return;
  const auto [id, lane] = it->second;
  Peer& peer = peers_.at(id);
  if (event.kind == NicEvent::Kind::kLinkLost) return LoseLane(&peer, lane, event.status, now);
  peer.lanes[lane].up = true;
  SettleState(&peer, now);
}

// A message names its sender's engine.
void TransferCore::OnMessage(const NicEvent& event) {
  constexpr size_t kPrefix = sizeof(uint64_t);
  if (event.bytes.size() < kPrefix) return;
  uint64_t engine = 0;
  wire::Reader({reinterpret_cast<const char*>(event.bytes.data()), kPrefix}).Read(&engine);
  for (const auto& [id, peer] : peers_) {
    if (peer.address.engine != engine) continue;
    ++stats_.messages_received;
    output_.events.push_back(
        MessageReceived{id, {event.bytes.begin() + kPrefix, event.bytes.end()}});
    return;
  }
}

// ---------------------------------------------------------------- transfers

void TransferCore::Begin(NewTransfer what) {
  ++stats_.transfers;
  const TransferId id = what.id;
  const PeerId peer_id = what.peer;
  const bool has_region = what.is_message || regions_.contains(what.local);
  deadlines_.emplace(what.deadline, id);
  Transfer& transfer = transfers_[id];
  transfer.what = std::move(what);
  const auto peer = peers_.find(peer_id);
  if (peer == peers_.end() || !has_region) {
    return Finish(id, peer == peers_.end() ? CancelledError("the peer was removed")
                                           : CancelledError("its local region was closed"));
  }
  peer->second.transfers.insert(id);
  if (peer->second.state == PeerState::kDead) {
    return Finish(id, UnavailableError("the peer is dead"));
  }
  if (transfer.num_posts() == 0) return Finish(id, OkStatus());
  peer->second.queue.push_back(id);
  transfer.queued = true;
}

void TransferCore::Stop(Transfer* transfer, const Status& why) {
  if (transfer->stopped && !transfer->cancelled) return;
  transfer->stopped = true;
  transfer->cancelled = false;
  transfer->status = why;
}

void TransferCore::EndIfOver(TransferId id) {
  const Transfer& transfer = transfers_.at(id);
  if (transfer.outstanding == 0 && transfer.all_posted()) Finish(id, transfer.status);
}

void TransferCore::Finish(TransferId id, const Status& status) {
  const auto it = transfers_.find(id);
  TANDEM_CHECK(it != transfers_.end() && it->second.outstanding == 0);
  output_.events.push_back(TransferEnded{id, status, now_});
  if (!status.ok()) ++stats_.transfers_failed;
  deadlines_.erase({it->second.what.deadline, id});
  const auto peer = peers_.find(it->second.what.peer);
  if (peer != peers_.end()) {
    peer->second.transfers.erase(id);
    if (it->second.queued) std::erase(peer->second.queue, id);
  }
  transfers_.erase(it);
}

void TransferCore::Cancel(TransferId id) {
  const auto it = transfers_.find(id);
  if (it == transfers_.end() || it->second.all_posted()) return;  // it ends by itself
  Stop(&it->second, CancelledError("cancelled"));
  it->second.cancelled = true;
  EndIfOver(id);
}

void TransferCore::EndNow(TransferId id, const Status& why, TimeNs now) {
  Stop(&transfers_.at(id), why);
  std::set<size_t> lanes;
  for (const Op& op : ops_) {
    if (op.live && op.transfer == id) lanes.insert(op.lane);
  }
  if (lanes.empty()) return EndIfOver(id);
  const PeerId peer_id = transfers_.at(id).what.peer;
  const Status others =
      UnavailableError("the link was taken down for another transfer: {}", why.message());
  for (const size_t lane : lanes) {
    const auto peer = peers_.find(peer_id);
    if (peer == peers_.end() || lane >= peer->second.lanes.size()) break;
    LoseLane(&peer->second, lane, others, now);
  }
  // A cancelled one whose last pieces are posted has not stopped: its end is that of its links.
  if (transfers_.contains(id)) EndIfOver(id);
}

bool TransferCore::Expire(TimeNs now) {
  bool any = false;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    EndNow(deadlines_.begin()->second, UnavailableError("the transfer's deadline has passed"), now);
    any = true;
  }
  return any;
}

// ---------------------------------------------------------------- posting

size_t TransferCore::TakeOp() {
  if (free_ops_.empty()) {
    ops_.emplace_back();
    return ops_.size() - 1;
  }
  const size_t index = free_ops_.back();
  free_ops_.pop_back();
  return index;
}

void TransferCore::FreeOp(size_t index) {
  ops_[index].live = false;
  ++ops_[index].generation;
  free_ops_.push_back(static_cast<uint32_t>(index));
}

// The peer's description has an entry for the lane's NIC, of a region that holds the piece.
bool TransferCore::Fits(const Peer& peer, const Lane& lane, const Transfer& transfer) const {
  return transfer.what.is_message || (lane.remote_nic < transfer.what.remote.nics.size() &&
                                      transfer.what.remote.nics.size() == peer.address.nics.size());
}

// The one that has the least to do; none when all are full or down.
size_t TransferCore::BestLane(const Peer& peer, const Transfer& transfer) const {
  size_t best = kNoLane;
  for (size_t i = 0; i < peer.lanes.size(); ++i) {
    const Lane& lane = peer.lanes[i];
    if (!lane.up || lane.posts >= nics_[lane.nic]->link_depth()) continue;
    if (!Fits(peer, lane, transfer)) continue;
    if (best == kNoLane || std::pair(lane.bytes, lane.posts) <
                               std::pair(peer.lanes[best].bytes, peer.lanes[best].posts)) {
      best = i;
    }
  }
  return best;
}

Nic::Taken TransferCore::PostOn(Peer* peer, size_t index, Transfer* transfer) {
  const size_t op_index = TakeOp();
  Lane& lane = peer->lanes[index];
  Nic& nic = *nics_[lane.nic];
  Op& op = ops_[op_index];
  const uint64_t context = uint64_t{op.generation} << kOpSlotBits | op_index;
  const NewTransfer& what = transfer->what;
  uint32_t bytes = 0;
  Nic::Taken taken = Nic::Taken::kNever;
  if (what.is_message) {
    std::string prefix;
    wire::Append(&prefix, address_.engine);
    std::vector<std::byte> message(prefix.size() + what.message.size());
    std::transform(prefix.begin(), prefix.end(), message.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    std::copy(what.message.begin(), what.message.end(),
              message.begin() + static_cast<ptrdiff_t>(prefix.size()));
    bytes = static_cast<uint32_t>(message.size());
    taken = nic.Send(lane.link, message, context);
  } else {
    const WritePiece& piece = what.pieces[transfer->next];
    const Region& region = regions_.at(what.local);
    NicWrite write;
    write.local = region.nics[lane.nic];
    write.from = region.memory.data() + piece.local_offset;
    write.bytes = bytes = piece.bytes;
    write.remote = &what.remote.nics[lane.remote_nic];
    write.remote_offset = piece.remote_offset;
    write.immediate = piece.immediate;
    write.context = context;
    taken = nic.Write(lane.link, write);
  }
  if (taken != Nic::Taken::kYes) {
    free_ops_.push_back(static_cast<uint32_t>(op_index));
    return taken;
  }
  op.live = true;
  op.transfer = what.id;
  op.peer = peer->id;
  op.lane = static_cast<uint32_t>(index);
  op.bytes = bytes;
  ++lane.posts;
  lane.bytes += bytes;
  lane.stalled_since.reset();
  return taken;
}

TransferCore::Posted TransferCore::PostOne(Peer* peer, Transfer* transfer, TimeNs now) {
  if (free_ops_.empty() && ops_.size() == kOpsMost) return Posted::kNoRoom;
  const size_t index = BestLane(*peer, *transfer);
  if (index == kNoLane) {
    const bool any_fits = std::any_of(
        peer->lanes.begin(), peer->lanes.end(),
        [&](const Lane& lane) { return !lane.given_up && Fits(*peer, lane, *transfer); });
    if (any_fits) return Posted::kNoRoom;
    Stop(transfer, InvalidArgumentError("the remote region is not of this peer"));
    return Posted::kFailed;
  }
  switch (PostOn(peer, index, transfer)) {
    case Nic::Taken::kYes:
      ++transfer->next;
      ++transfer->outstanding;
      return Posted::kYes;
    case Nic::Taken::kLater: {
      Lane& lane = peer->lanes[index];
      ++stats_.retries;
      if (lane.posts == 0 && !lane.stalled_since) lane.stalled_since = now;
      return Posted::kNoRoom;
    }
    case Nic::Taken::kNever:
      Stop(transfer,
           UnavailableError("{} refuses the post", nics_[peer->lanes[index].nic]->kind()));
      return Posted::kFailed;
  }
  return Posted::kFailed;
}

bool TransferCore::PostFor(Peer* peer, TimeNs now) {
  bool any = false;
  for (int i = 0; i < kTransfersAtOnce && !peer->queue.empty(); ++i) {
    const TransferId id = peer->queue.front();
    Transfer& transfer = transfers_.at(id);
    while (!transfer.all_posted()) {
      const Posted posted = PostOne(peer, &transfer, now);
      if (posted == Posted::kNoRoom) return any;
      any = true;
    }
    peer->queue.pop_front();
    transfer.queued = false;
    EndIfOver(id);
  }
  return any;
}

// ---------------------------------------------------------------- a turn

bool TransferCore::Turn(TimeNs now, Output* output) {
  now_ = now;
  bool any = false;
  for (size_t i = 0; i < nics_.size(); ++i) {
    nic_events_.clear();
    any |= nics_[i]->Poll(&nic_events_);
    OnNicEvents(i, now);
  }
  any |= Expire(now);
  for (auto& [id, peer] : peers_) {
    any |= TendPeer(&peer, now);
    any |= PostFor(&peer, now);
  }
  std::swap(output->immediates, output_.immediates);
  std::swap(output->events, output_.events);
  output_.immediates.clear();
  output_.events.clear();
  return any || !output->events.empty();
}

TimeNs TransferCore::next_deadline(TimeNs now) const {
  TimeNs next = deadlines_.empty() ? INT64_MAX : deadlines_.begin()->first;
  for (const auto& [id, peer] : peers_) {
    if (peer.state == PeerState::kDead) continue;
    if (peer.state == PeerState::kConnecting) {
      next = std::min(next, std::min(peer.connect_deadline, now + config_.reconnect_interval));
    }
    for (const Lane& lane : peer.lanes) {
      if (lane.stalled_since) next = std::min(next, now + kRetryPost);
    }
  }
  return next;
}

void TransferCore::AddTo(FabricStats* stats) const {
  stats->transfers += stats_.transfers;
  stats->transfers_failed += stats_.transfers_failed;
  stats->pieces_written += stats_.pieces_written;
  stats->bytes_written += stats_.bytes_written;
  stats->messages_sent += stats_.messages_sent;
  stats->messages_received += stats_.messages_received;
  stats->retries += stats_.retries;
  for (const auto& [id, peer] : peers_) {
    if (peer.state == PeerState::kConnecting) ++stats->peers_connecting;
    if (peer.state == PeerState::kUp) ++stats->peers_up;
    if (peer.state == PeerState::kDead) ++stats->peers_dead;
  }
}

void TransferCore::CheckIntegrity() const {
  std::map<std::pair<PeerId, uint32_t>, uint32_t> posts;
  std::map<TransferId, uint32_t> outstanding;
  size_t live = 0;
  for (const Op& op : ops_) {
    if (!op.live) continue;
    ++live;
    ++posts[{op.peer, op.lane}];
    ++outstanding[op.transfer];
  }
  TANDEM_CHECK_EQ(live + free_ops_.size(), ops_.size());
  for (const auto& [id, transfer] : transfers_) {
    TANDEM_CHECK_EQ(transfer.outstanding, outstanding[id]);
    TANDEM_CHECK(deadlines_.contains({transfer.what.deadline, id}));
    TANDEM_CHECK(peers_.at(transfer.what.peer).transfers.contains(id));
  }
  TANDEM_CHECK_EQ(deadlines_.size(), transfers_.size());
  for (const auto& [id, peer] : peers_) {
    for (size_t i = 0; i < peer.lanes.size(); ++i) {
      TANDEM_CHECK_EQ(peer.lanes[i].posts, posts[std::pair(id, static_cast<uint32_t>(i))]);
    }
  }
}

}  // namespace tandem
