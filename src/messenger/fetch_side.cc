#include "messenger/fetch_side.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem {
namespace {

constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
// Requests that have failed somewhere and may come again.
constexpr size_t kFailuresKept = 4096;

// The hand-off's number is the fetch's: both are new for each attempt.
HandoffId HandoffOf(FetchId id) { return HandoffId(id.value()); }

}  // namespace

FetchSide::FetchSide(const MessengerConfig& config, const MessengerParts& parts,
                     MessengerStats* stats, std::vector<HandoffEvent>* events)
    : config_(config), parts_(parts), stats_(stats), events_(events), jitter_(config.instance) {}

FetchSide::~FetchSide() {
  for (auto& [id, node] : nodes_) {
    parts_.control->Close(node.link);
    CloseRegions(&node);
  }
}

// ---------------------------------------------------------------- orders of the engine

void FetchSide::Fetch(FetchOrder order) {
  TANDEM_CHECK(!fetches_.contains(order.id));
  ++stats_->fetches;
  const auto failed = failed_at_.find(order.request);
  const NodeId node = Choose(order.request);
  Status status = UnavailableError("no prefill node is ready");
  if (node != NodeId()) {
    if (failed != failed_at_.end() && failed->second != node) ++stats_->fetches_elsewhere;
    status = Begin(order, node);
  }
  if (status.ok()) return;
  ++stats_->fetches_failed;
  events_->push_back(
      {.kind = HandoffEvent::Kind::kFetchFailed, .fetch = order.id, .status = status});
  events_->push_back({.kind = HandoffEvent::Kind::kFetchDrained, .fetch = order.id});
}

Status FetchSide::Begin(const FetchOrder& order, NodeId node_id) {
  const std::vector<StateGroup>& groups = config_.format.groups;
  if (order.cache_salt.size() > kMaxSaltBytes || order.tokens.size() > kMaxHandoffTokens) {
    return OutOfRangeError("a hand-off takes {} tokens and a cache salt of {} bytes at most",
                           kMaxHandoffTokens, kMaxSaltBytes);
  }
  TANDEM_CHECK_EQ(order.blocks.size(), groups.size());
  const auto tokens = static_cast<int32_t>(order.tokens.size());
  TANDEM_ASSIGN_OR_RETURN(const PageMap map, PageMap::Create(groups, order.have, tokens));

  const TimeNs now = parts_.clock->Now();
  OpenFetch fetch{.node = node_id,
                  .request = order.request,
                  .pages = map.pages(),
                  .tokens = tokens - order.have,
                  .ordered = now,
                  .limit = now + config_.fetch_timeout,
                  .deadline = now + config_.progress_timeout};
  Node& node = nodes_.at(node_id);
  Prepare prepare{.id = HandoffOf(order.id),
                  .budget = config_.fetch_timeout,
                  .tokens = order.tokens,
                  .have = order.have,
                  .cache_salt = order.cache_salt};
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto count = static_cast<size_t>(map.group(g).blocks());
    // The blocks that are wanted are the last ones in any case.
    TANDEM_CHECK_GE(order.blocks[g].size(), count);
    prepare.groups.push_back(
        {.region = node.remotes[g],
         .blocks = {order.blocks[g].end() - static_cast<ptrdiff_t>(count), order.blocks[g].end()}});
    fetch.blocks += static_cast<int32_t>(order.blocks[g].size());
    fetch.bytes += map.group(g).blocks() * groups[g].BlockBytes();
  }
  TANDEM_RETURN_IF_ERROR(Announce(map, &fetch));
  prepare.expectations = fetch.expectations;
  for (const Expectation& expectation : fetch.expectations) {
    by_first_.emplace(expectation.first, order.id);
  }
  node.outstanding_tokens += fetch.tokens;
  ++node.fetches;
  stats_->pages_expected += fetch.pages;
  const bool nothing = fetch.missing == 0;
  fetches_.emplace(order.id, std::move(fetch));
  if (nothing) {
    Arrived(order.id);
    Finish(order.id);
  } else {
    Post(node_id, prepare);  // a failure ends the fetch with the node
  }
  return OkStatus();
}

Status FetchSide::Announce(const PageMap& map, OpenFetch* fetch) {
  for (int32_t e = 0; e < map.expectations(); ++e) {
    auto expectation = parts_.fabric->Expect(map.PiecesOf(e), fetch->limit);
    if (!expectation.ok()) {  // nobody knows of those before
      for (const Expectation& earlier : fetch->expectations) {
        parts_.fabric->Abandon(earlier.first);
        parts_.fabric->Drained(earlier.first);
      }
      return expectation.status();
    }
    fetch->expectations.push_back(*expectation);
  }
  fetch->missing = map.expectations();
  fetch->expectation_ended.assign(fetch->expectations.size(), false);
  return OkStatus();
}

void FetchSide::Cancel(FetchId id) {
  const auto it = fetches_.find(id);
  if (it == fetches_.end()) return;
  OpenFetch& fetch = it->second;
  if (!fetch.told) ++stats_->fetches_cancelled;
  fetch.told = true;
  switch (fetch.state) {
    case FetchState::kPreparing:
    case FetchState::kReceiving: return Stop(id, CancelledError("cancelled"));
    case FetchState::kDelivered: return Finish(id);
    case FetchState::kArrived:  // its writes are nearly over
    case FetchState::kStopping:
    case FetchState::kOver: return;
  }
}

// ---------------------------------------------------------------- frames

void FetchSide::OnFrame(LinkId link, std::string_view frame) {
  const NodeId id = links_.at(link);
  nodes_.at(id).pulse.Heard(parts_.clock->Now());
  auto message = DecodeMessage(frame);
  if (!message.ok()) {
    const bool version = message.status().code() == StatusCode::kFailedPrecondition;
    ++(version ? stats_->links_refused : stats_->protocol_errors);
    return LoseNode(id, message.status(), true);
  }
  OnMessage(id, std::move(*message));
}

void FetchSide::OnMessage(NodeId id, HandoffMessage message) {
  const Node& node = nodes_.at(id);
  if (std::holds_alternative<Heartbeat>(message) && node.greeted) return;
  if (node.state == NodeState::kGreeting) {
    if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && !node.greeted) {
      return OnHello(id, *hello);
    }
    if (std::holds_alternative<Ready>(message) && node.greeted) return OnReady(id);
  } else {
    return OnFetchMessage(id, message);
  }
  ++stats_->protocol_errors;
  LoseNode(id, DataLossError("it greets in the wrong order"), true);
}

void FetchSide::OnFetchMessage(NodeId node, const HandoffMessage& message) {
  // The fetch that a message is about; it has to be one of this node.
  auto find = [&](HandoffId id) {
    const auto it = fetches_.find(FetchId(id.value()));
    return it != fetches_.end() && it->second.node == node ? it : fetches_.end();
  };
  auto it = fetches_.end();
  if (const auto* progress = std::get_if<ProgressMade>(&message)) {
    it = find(progress->id);
    if (it != fetches_.end()) {
      OpenFetch& fetch = it->second;
      const TimeNs deadline = parts_.clock->Now() + config_.progress_timeout;
      if (fetch.state == FetchState::kPreparing) {
        SetState(&fetch, FetchState::kReceiving, deadline);
      } else if (fetch.state == FetchState::kReceiving) {
        fetch.deadline = deadline;
      }
      return;
    }
  } else if (const auto* done = std::get_if<Done>(&message)) {
    it = find(done->id);
    if (it != fetches_.end()) return OnDone(node, it->first, *done);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    it = find(failed->id);
    if (it != fetches_.end()) {
      Tell(it->first, HandoffEvent::Kind::kFetchFailed, Status(failed->code, failed->reason));
      return Finish(it->first);
    }
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    it = find(stopped->id);
    if (it != fetches_.end() && it->second.state == FetchState::kStopping) {
      Tell(it->first, HandoffEvent::Kind::kFetchFailed, it->second.failure);
      return Finish(it->first);
    }
  }
  ++stats_->protocol_errors;
  LoseNode(node, DataLossError("it speaks of a hand-off that is over, or out of order"), true);
}

void FetchSide::OnDone(NodeId node, FetchId id, const Done& done) {
  OpenFetch& fetch = fetches_.at(id);
  const bool wrong = done.pages != fetch.pages || done.chunks <= 0;
  if (wrong || fetch.state == FetchState::kPreparing || fetch.state == FetchState::kDelivered) {
    ++stats_->protocol_errors;
    return LoseNode(node, DataLossError("it counts {} pages of {}", done.pages, fetch.pages), true);
  }
  if (fetch.state == FetchState::kReceiving) {
    // The bytes are here; the fabric's own thread has not counted all of them yet.
    return SetState(&fetch, FetchState::kDelivered, parts_.clock->Now() + config_.stop_timeout);
  }
  Tell(id, HandoffEvent::Kind::kFetchFailed, fetch.failure);
  Finish(id);
}

// ---------------------------------------------------------------- the machine

void FetchSide::SetState(OpenFetch* fetch, FetchState state, TimeNs deadline) {
  TANDEM_CHECK(CanMove(fetch->state, state));
  fetch->state = state;
  fetch->deadline = deadline;
}

void FetchSide::OnExpectationEnded(const ExpectationEnded& ended) {
  const auto owner = by_first_.find(ended.first);
  if (owner == by_first_.end()) return;  // it was over before the event was read
  const FetchId id = owner->second;
  OpenFetch& fetch = fetches_.at(id);
  for (size_t e = 0; e < fetch.expectations.size(); ++e) {
    if (fetch.expectations[e].first != ended.first) continue;
    if (fetch.expectation_ended[e]) return;
    fetch.expectation_ended[e] = true;
  }
  if (fetch.state == FetchState::kStopping || fetch.state == FetchState::kArrived) return;
  if (!ended.status.ok()) {
    const Status late = UnavailableError("{} pages did not come in time", ended.missing);
    if (fetch.state != FetchState::kDelivered) return Stop(id, late);
    Tell(id, HandoffEvent::Kind::kFetchFailed, late);
    return Finish(id);
  }
  if (--fetch.missing > 0) return;
  const bool delivered = fetch.state == FetchState::kDelivered;
  Arrived(id);
  if (delivered) Finish(id);
}

void FetchSide::Arrived(FetchId id) {
  OpenFetch& fetch = fetches_.at(id);
  const TimeNs now = parts_.clock->Now();
  Tell(id, HandoffEvent::Kind::kFetchArrived, OkStatus());
  stats_->pages_arrived += fetch.pages;
  stats_->bytes_arrived += fetch.bytes;
  stats_->fetch_ns += now - fetch.ordered;
  failed_at_.erase(fetch.request);
  if (fetch.state != FetchState::kDelivered) {
    SetState(&fetch, FetchState::kArrived, now + config_.progress_timeout);
  }
}

void FetchSide::Stop(FetchId id, const Status& why) {
  OpenFetch& fetch = fetches_.at(id);
  Tell(id, HandoffEvent::Kind::kFetchFailed, why);
  fetch.failure = why;
  SetState(&fetch, FetchState::kStopping, parts_.clock->Now() + config_.stop_timeout);
  Post(fetch.node, CancelHandoff{HandoffOf(id)});
}

void FetchSide::Tell(FetchId id, HandoffEvent::Kind kind, const Status& status) {
  OpenFetch& fetch = fetches_.at(id);
  if (fetch.told) return;
  fetch.told = true;
  if (kind == HandoffEvent::Kind::kFetchArrived) {
    ++stats_->fetches_arrived;
  } else {
    ++stats_->fetches_failed;
    RememberFailure(fetch.request, fetch.node);
  }
  events_->push_back({.kind = kind, .fetch = id, .status = status});
}

void FetchSide::Finish(FetchId id) {
  OpenFetch& fetch = fetches_.at(id);
  SetState(&fetch, FetchState::kOver, kNever);
  for (size_t e = 0; e < fetch.expectations.size(); ++e) {
    const Immediate first = fetch.expectations[e].first;
    if (!fetch.expectation_ended[e]) parts_.fabric->Abandon(first);
    parts_.fabric->Drained(first);
    by_first_.erase(first);
  }
  const NodeId node_id = fetch.node;
  Node& node = nodes_.at(node_id);
  node.outstanding_tokens -= fetch.tokens;
  --node.fetches;
  fetches_.erase(id);
  events_->push_back({.kind = HandoffEvent::Kind::kFetchDrained, .fetch = id});
  // Not while its session is being taken down: LoseNode does it.
  if (node.link != LinkId()) ForgetNodeIfLeft(node_id);
}

void FetchSide::RememberFailure(RequestId request, NodeId node) {
  if (failed_at_.insert_or_assign(request, node).second) {
    if (failed_order_.size() < kFailuresKept) {
      failed_order_.push_back(request);
    } else {
      failed_at_.erase(std::exchange(failed_order_[failed_oldest_], request));
      failed_oldest_ = (failed_oldest_ + 1) % kFailuresKept;
    }
  }
}

TimeNs FetchSide::AdvanceFetch(FetchId id, TimeNs now) {
  OpenFetch& fetch = fetches_.at(id);
  const TimeNs due =
      fetch.state == FetchState::kStopping ? fetch.deadline : std::min(fetch.deadline, fetch.limit);
  if (now < due) return due;
  switch (fetch.state) {
    case FetchState::kPreparing:
    case FetchState::kReceiving:
    case FetchState::kArrived:
      Stop(id, UnavailableError("prefill node {} said nothing of the hand-off in time",
                                nodes_.at(fetch.node).address));
      break;
    case FetchState::kDelivered:
      Tell(id, HandoffEvent::Kind::kFetchFailed,
           UnavailableError("the hand-off was done, and pages have not come"));
      Finish(id);
      break;
    case FetchState::kStopping:  // no word of it: the fence
      LoseNode(fetch.node, UnavailableError("it does not confirm the end of a hand-off"), false);
      break;
    case FetchState::kOver: break;
  }
  return now;
}

TimeNs FetchSide::Advance(TimeNs now, bool paused) {
  TimeNs next = kNever;
  std::vector<NodeId> nodes;
  for (const auto& [id, node] : nodes_) nodes.push_back(id);
  for (const NodeId id : nodes) {
    if (nodes_.contains(id)) next = std::min(next, AdvanceNode(id, now, paused));
  }
  std::vector<FetchId> fetches;
  for (const auto& [id, fetch] : fetches_) fetches.push_back(id);
  for (const FetchId id : fetches) {
    if (fetches_.contains(id)) next = std::min(next, AdvanceFetch(id, now));
  }
  return next;
}

void FetchSide::AddGauges(MessengerStats* stats) const {
  stats->fetches_now = static_cast<int32_t>(fetches_.size());
  for (const auto& [id, fetch] : fetches_) {
    if (fetch.state == FetchState::kStopping) stats->quarantined_blocks_now += fetch.blocks;
  }
  for (const auto& [id, node] : nodes_) {
    switch (node.state) {
      case NodeState::kWaiting: ++stats->nodes_waiting_now; break;
      case NodeState::kConnecting:
      case NodeState::kGreeting: ++stats->nodes_connecting_now; break;
      case NodeState::kReady: ++stats->nodes_ready_now; break;
      case NodeState::kLeaving: ++stats->nodes_leaving_now; break;
      case NodeState::kOver: break;
    }
  }
}

}  // namespace tandem
