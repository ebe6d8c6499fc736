// The prefill nodes of a decode node: connections, greetings, heartbeats, choice.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "messenger/fetch_side.h"

namespace tandem {
namespace {

constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

bool IsRefusal(const Status& status) { return status.code() == StatusCode::kFailedPrecondition; }

}  // namespace

Status FetchSide::AddNode(std::string_view address) {
  for (auto& [id, node] : nodes_) {
    if (node.address != address) continue;
    if (node.state == NodeState::kLeaving) SetState(&node, NodeState::kReady);
    ReportReadyNodes();
    return OkStatus();
  }
  Node node{.address = std::string(address), .backoff = config_.reconnect_first};
  // The first attempt is made here, so that what is no address is refused.
  auto link = parts_.control->Connect(address);
  if (!link.ok()) return link.status();
  node.link = *link;
  node.state = NodeState::kConnecting;
  const NodeId id(++last_node_);
  links_.emplace(*link, id);
  nodes_.emplace(id, std::move(node));
  return OkStatus();
}

void FetchSide::RemoveNode(std::string_view address) {
  for (auto& [id, node] : nodes_) {
    if (node.address != address) continue;
    if (node.state == NodeState::kReady) {
      SetState(&node, NodeState::kLeaving);
      ForgetNodeIfLeft(id);
    } else if (node.state != NodeState::kLeaving) {
      Drop(id);
    }
    ReportReadyNodes();
    return;
  }
}

void FetchSide::ForgetNodeIfLeft(NodeId id) {
  Node& node = nodes_.at(id);
  if (node.state != NodeState::kLeaving || node.fetches > 0) return;
  LogInfo("prefill node {} has left", node.address);
  Drop(id);
}

void FetchSide::Drop(NodeId id) {
  Node& node = nodes_.at(id);
  SetState(&node, NodeState::kOver);
  links_.erase(node.link);
  parts_.control->Close(node.link);
  CloseRegions(&node);
  nodes_.erase(id);
}

void FetchSide::SetState(Node* node, NodeState state) {
  TANDEM_CHECK(CanMove(node->state, state));
  node->state = state;
}

void FetchSide::Connect(NodeId id, TimeNs now) {
  Node& node = nodes_.at(id);
  auto link = parts_.control->Connect(node.address);
  if (!link.ok()) {  // the address was one before: something passing
    node.next_attempt = now + node.backoff;
    return;
  }
  SetState(&node, NodeState::kConnecting);
  node.link = *link;
  links_.emplace(*link, id);
}

void FetchSide::OnLinkUp(const LinkUp& up) {
  const NodeId id = links_.at(up.link);
  Node& node = nodes_.at(id);
  if (node.state != NodeState::kConnecting) return;
  const TimeNs now = parts_.clock->Now();
  SetState(&node, NodeState::kGreeting);
  node.greeted = false;
  node.pulse.Start(now);
  node.greeting_deadline = now + config_.greeting_timeout;
  Post(id, Hello{.instance = config_.instance,
                 .format = config_.format,
                 .fabric_address = parts_.fabric->address(),
                 .takes_jobs = config_.prefill});
}

void FetchSide::OnLinkDown(LinkId link, const Status& status) {
  const NodeId id = links_.at(link);
  links_.erase(link);
  LoseNode(id, status, IsRefusal(status));
}

void FetchSide::OnHello(NodeId id, const Hello& hello) {
  Node& node = nodes_.at(id);
  Status status = CheckSameFormat(config_.format, hello.format);
  if (hello.instance == config_.instance) {
    status = FailedPreconditionError("that is this node itself");
  } else if (status.ok() && !hello.takes_jobs) {
    status = FailedPreconditionError("it is no prefill node: start it with --role prefill or both");
  }
  if (!status.ok()) {
    ++stats_->links_refused;
    return LoseNode(id, status, true);
  }
  node.greeted = true;
}

void FetchSide::OnReady(NodeId id) {
  Node& node = nodes_.at(id);
  for (const std::span<std::byte> pool : parts_.pools) {
    RemoteRegion remote;
    auto region = parts_.fabric->RegisterRemote(pool, &remote);
    if (!region.ok()) return LoseNode(id, region.status(), true);
    node.regions.push_back(*region);
    node.remotes.push_back(std::move(remote));
  }
  node.backoff = config_.reconnect_first;
  SetState(&node, NodeState::kReady);
  LogInfo("prefill node {} is ready", node.address);
  ReportReadyNodes();
}

void FetchSide::CloseRegions(Node* node) {
  for (const RegionId region : node->regions) parts_.fabric->CloseRegion(region);
  node->regions.clear();
  node->remotes.clear();
}

void FetchSide::LoseNode(NodeId id, const Status& status, bool refused) {
  Node& node = nodes_.at(id);
  if (links_.erase(node.link) > 0) parts_.control->Close(node.link);
  node.link = LinkId();
  const bool was_up = node.state == NodeState::kReady || node.state == NodeState::kLeaving;
  if (was_up) ++stats_->links_lost;
  if (was_up || refused) LogWarning("prefill node {}: {}", node.address, status.message());
  if (node.fetches > 0) ++stats_->fences;
  CloseRegions(&node);
  const bool leaving = node.state == NodeState::kLeaving;
  if (!leaving) {
    SetState(&node, NodeState::kWaiting);
    const TimeNs base = refused ? config_.reconnect_refused : node.backoff;
    // A quarter more or less, so that many nodes do not come back in step.
    const auto spread =
        static_cast<TimeNs>((jitter_.NextDouble() - 0.5) * 0.5 * static_cast<double>(base));
    node.next_attempt = parts_.clock->Now() + base + spread;
    node.backoff = std::min(node.backoff * 2, config_.reconnect_most);
  }
  std::vector<FetchId> lost;
  for (const auto& [fetch_id, fetch] : fetches_) {
    if (fetch.node == id) lost.push_back(fetch_id);
  }
  const Status why =
      UnavailableError("prefill node {} was lost: {}", node.address, status.message());
  for (const FetchId fetch_id : lost) {
    Tell(fetch_id, HandoffEvent::Kind::kFetchFailed, why);
    Finish(fetch_id);  // the last one of a node that leaves forgets the node
  }
  if (leaving && nodes_.contains(id)) ForgetNodeIfLeft(id);
  ReportReadyNodes();
}

void FetchSide::Post(NodeId id, const HandoffMessage& message) {
  const Status sent = parts_.control->Send(nodes_.at(id).link, EncodeMessage(message));
  if (!sent.ok()) LoseNode(id, sent, false);
}

FetchSide::NodeId FetchSide::Choose(RequestId request) const {
  const auto failed = failed_at_.find(request);
  NodeId best;
  auto rank = [&](NodeId id) {
    const bool again = failed != failed_at_.end() && failed->second == id;
    return std::pair(again, nodes_.at(id).outstanding_tokens);
  };
  for (const auto& [id, node] : nodes_) {
    if (node.state != NodeState::kReady) continue;
    if (best == NodeId() || rank(id) < rank(best)) best = id;
  }
  return best;
}

TimeNs FetchSide::AdvanceNode(NodeId id, TimeNs now, bool paused) {
  Node& node = nodes_.at(id);
  switch (node.state) {
    case NodeState::kWaiting:
      if (now >= node.next_attempt) Connect(id, now);
      return node.state == NodeState::kWaiting ? node.next_attempt : kNever;
    case NodeState::kConnecting:
    case NodeState::kOver: return kNever;
    case NodeState::kGreeting:
    case NodeState::kReady:
    case NodeState::kLeaving: break;
  }
  if (paused) node.pulse.Forgive(config_, now);
  const bool slow = node.state == NodeState::kGreeting && now >= node.greeting_deadline;
  if (slow || node.pulse.Silent(config_, now)) {
    if (!slow) ++stats_->heartbeats_missed;
    LoseNode(id, UnavailableError("it does not answer"), false);
    return now;
  }
  if (node.pulse.Beat(config_, now)) {
    Post(id, Heartbeat{});
    if (!nodes_.contains(id)) return now;
  }
  const TimeNs next = node.pulse.NextTime(config_);
  return node.state == NodeState::kGreeting ? std::min(next, node.greeting_deadline) : next;
}

void FetchSide::ReportReadyNodes() {
  const auto ready =
      static_cast<int32_t>(std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) {
        return entry.second.state == NodeState::kReady;
      }));
  if (ready == ready_reported_) return;
  ready_reported_ = ready;
  events_->push_back({.kind = HandoffEvent::Kind::kPeers, .ready_peers = ready});
}

}  // namespace tandem
