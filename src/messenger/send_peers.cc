// The decode nodes of a prefill node: greetings, requests, heartbeats.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "messenger/send_side.h"

namespace tandem {

void SendSide::OnLinkUp(const LinkUp& up) {
  if (peers_.size() >= static_cast<size_t>(config_.decode_peers)) {
    LogWarning("decode node {} was refused: {} are connected already", up.peer, peers_.size());
    ++stats_->links_refused;
    return parts_.control->Close(up.link);
  }
  const TimeNs now = parts_.clock->Now();
  Peer peer{.name = up.peer, .greeting_deadline = now + config_.greeting_timeout};
  peer.pulse.Start(now);
  peers_.emplace(up.link, std::move(peer));
  Post(up.link, Hello{.instance = config_.instance,
                      .format = config_.format,
                      .fabric_address = parts_.fabric->address(),
                      .takes_jobs = true});
}

void SendSide::OnFrame(LinkId link, std::string_view frame) {
  Peer& peer = peers_.at(link);
  peer.pulse.Heard(parts_.clock->Now());
  auto message = DecodeMessage(frame);
  if (!message.ok()) {
    const bool version = message.status().code() == StatusCode::kFailedPrecondition;
    ++(version ? stats_->links_refused : stats_->protocol_errors);
    return LosePeer(link, message.status());
  }
  if (const auto* hello = std::get_if<Hello>(&*message); hello != nullptr && !peer.fabric) {
    return OnHello(link, *hello);
  }
  if (peer.fabric) {
    if (std::holds_alternative<Heartbeat>(*message)) return;
    if (auto* prepare = std::get_if<Prepare>(&*message); prepare != nullptr && peer.ready) {
      return OnPrepare(link, std::move(*prepare));
    }
    if (const auto* cancel = std::get_if<CancelHandoff>(&*message)) return OnCancel(link, *cancel);
  }
  ++stats_->protocol_errors;
  LosePeer(link, DataLossError("it speaks out of order"));
}

void SendSide::OnHello(LinkId link, const Hello& hello) {
  Status status = CheckSameFormat(config_.format, hello.format);
  if (hello.instance == config_.instance) {
    status = FailedPreconditionError("that is this node itself");
  }
  if (!status.ok()) {
    ++stats_->links_refused;
    return LosePeer(link, status);
  }
  for (const auto& [other, peer] : peers_) {  // a session that it has given up before we noticed
    if (other == link || peer.fabric_address != hello.fabric_address) continue;
    LosePeer(other, UnavailableError("it has connected again"));
    break;
  }
  auto fabric = parts_.fabric->AddPeer(hello.fabric_address);
  if (!fabric.ok()) return LosePeer(link, fabric.status());
  Peer& peer = peers_.at(link);
  peer.fabric = *fabric;
  peer.fabric_address = hello.fabric_address;
  by_fabric_.emplace(*fabric, link);
}

void SendSide::OnPeerChanged(const PeerChanged& changed) {
  const auto it = by_fabric_.find(changed.peer);
  if (it == by_fabric_.end()) return;
  const LinkId link = it->second;
  Peer& peer = peers_.at(link);
  if (changed.state == PeerState::kDead) return LosePeer(link, changed.status);
  if (changed.state != PeerState::kUp || peer.ready) return;
  peer.ready = true;
  LogInfo("decode node {} is ready", peer.name);
  Post(link, Ready{});
}

Status SendSide::CheckPrepare(const Prepare& prepare, const PageMap& map) const {
  const std::vector<StateGroup>& groups = config_.format.groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Prepare::Group& group = prepare.groups[g];
    if (group.blocks.size() != static_cast<size_t>(map.group(g).blocks())) {
      return DataLossError("it names {} blocks of {}", group.blocks.size(), map.group(g).blocks());
    }
    const auto blocks_there = group.region.bytes / static_cast<uint64_t>(groups[g].BlockBytes());
    for (const BlockId block : group.blocks) {
      if (static_cast<uint64_t>(block.value()) >= blocks_there) {
        return DataLossError("its block {} lies outside of its memory", block.value());
      }
    }
  }
  if (map.pages() == 0 || !map.Fits(prepare.expectations)) {
    return DataLossError("its expectations do not fit {} pages", map.pages());
  }
  return OkStatus();
}

void SendSide::OnPrepare(LinkId link, Prepare prepare) {
  Peer& peer = peers_.at(link);
  const auto tokens = static_cast<int32_t>(prepare.tokens.size());
  auto map = PageMap::Create(config_.format.groups, prepare.have, tokens);
  Status status = map.status();
  if (status.ok() && prepare.groups.size() != config_.format.groups.size()) {
    status = DataLossError("it has {} state groups", prepare.groups.size());
  }
  if (status.ok()) status = CheckPrepare(prepare, *map);
  if (status.ok() && peer.sends.contains(prepare.id)) {
    status = DataLossError("it begins hand-off {} twice", prepare.id.value());
  }
  if (!status.ok()) {
    ++stats_->protocol_errors;
    return LosePeer(link, status);
  }

  const SendId id(++last_send_);
  const TimeNs now = parts_.clock->Now();
  const TimeNs budget = std::min(prepare.budget, config_.fetch_timeout);
  OpenSend send{.handoff = prepare.id,
                .peer = link,
                .deadline = now + budget,
                .tokens = tokens,
                .map = std::move(*map),
                .groups = std::move(prepare.groups),
                .expectations = std::move(prepare.expectations)};
  send.next_block.resize(send.groups.size());
  ++stats_->sends;
  if (peer.sends.size() >= static_cast<size_t>(config_.sends_per_peer)) {
    status = ResourceExhaustedError("{} prompts of one node are the most", config_.sends_per_peer);
  } else {
    status = parts_.jobs->Start(id, std::move(prepare.tokens), std::move(prepare.cache_salt),
                                send.deadline);
  }
  if (!status.ok()) {
    ++stats_->sends_failed;
    return Post(link, Failed{prepare.id, status.code(), status.message()});
  }
  peer.sends.emplace(prepare.id, id);
  sends_.emplace(id, std::move(send));
}

void SendSide::OnCancel(LinkId link, const CancelHandoff& cancel) {
  const Peer& peer = peers_.at(link);
  const auto it = peer.sends.find(cancel.id);
  if (it == peer.sends.end()) return;  // it has ended, and the peer will hear or has heard of it
  const OpenSend& send = sends_.at(it->second);
  if (send.state != SendState::kQueued && send.state != SendState::kSending) return;
  ++stats_->sends_cancelled;
  Stop(it->second, tandem::Stopped{cancel.id}, CancelledError("cancelled by the decode node"));
}

void SendSide::Post(LinkId link, const HandoffMessage& message) {
  const Status sent = parts_.control->Send(link, EncodeMessage(message));
  if (!sent.ok()) LosePeer(link, sent);
}

void SendSide::OnLinkDown(LinkId link) {
  LosePeer(link, UnavailableError("the connection has ended"));
}

void SendSide::LosePeer(LinkId link, const Status& status) {
  const auto it = peers_.find(link);
  if (it == peers_.end()) return;
  Peer peer = std::move(it->second);
  peers_.erase(it);
  parts_.control->Close(link);
  LogInfo("decode node {} has gone: {}", peer.name, status.message());
  if (peer.ready) ++stats_->links_lost;
  if (peer.fabric) {
    by_fabric_.erase(*peer.fabric);
    parts_.fabric->RemovePeer(*peer.fabric);
  }
  for (const auto& [handoff, id] : peer.sends) {
    OpenSend& send = sends_.at(id);
    send.peer_gone = true;
    send.notice.reset();
    if (send.state != SendState::kQueued && send.state != SendState::kSending) continue;
    ++stats_->sends_failed;
    Stop(id, std::nullopt, UnavailableError("decode node {} was lost", peer.name));
  }
}

TimeNs SendSide::AdvancePeer(LinkId link, TimeNs now, bool paused) {
  Peer& peer = peers_.at(link);
  if (paused) peer.pulse.Forgive(config_, now);
  const bool slow = !peer.ready && now >= peer.greeting_deadline;
  if (slow || peer.pulse.Silent(config_, now)) {
    if (!slow) ++stats_->heartbeats_missed;
    LosePeer(link, UnavailableError("it does not answer"));
    return now;
  }
  if (peer.pulse.Beat(config_, now)) {
    Post(link, Heartbeat{});
    if (!peers_.contains(link)) return now;
  }
  const TimeNs next = peer.pulse.NextTime(config_);
  return peer.ready ? next : std::min(next, peer.greeting_deadline);
}

}  // namespace tandem
