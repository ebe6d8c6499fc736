// What: FetchSide: the decode node's half of a Messenger: its prefill nodes (connections that are
//   made again, heartbeats, choice by load) and its fetches, each a machine of handoff_state.h.
// Not here: the prefill node's half (send_side.h), routing of events (messenger.cc).
// Threads: the messenger's owner.
// Invariants:
//   - A fetch belongs to one node's session: one link and one registration of the pools. It is over
//     when the node has said so (`done`, `failed`, `stopped`), or when the session's regions are
//     closed; before that no slot of it is drained.
//   - A session ends as a whole: link closed, regions closed, all its fetches over.
//   - Each fetch gets at most one of kFetchArrived and kFetchFailed, none after CancelFetch, and
//     one kFetchDrained.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "messenger/handoff_state.h"
#include "messenger/link_pulse.h"
#include "messenger/messenger_config.h"
#include "messenger/page_map.h"
#include "messenger/protocol.h"

namespace tandem {

class FetchSide {
 public:
  FetchSide(const MessengerConfig& config, const MessengerParts& parts, MessengerStats* stats,
            std::vector<HandoffEvent>* events);
  ~FetchSide();

  Status AddNode(std::string_view address);
  void RemoveNode(std::string_view address);

  void Fetch(FetchOrder order);
  void Cancel(FetchId id);

  bool Owns(LinkId link) const { return links_.contains(link); }
  void OnLinkUp(const LinkUp& up);
  void OnFrame(LinkId link, std::string_view frame);
  void OnLinkDown(LinkId link, const Status& status);
  void OnExpectationEnded(const ExpectationEnded& ended);

  // As Messenger::Advance. `paused`: this process has not run for a while.
  TimeNs Advance(TimeNs now, bool paused);
  void AddGauges(MessengerStats* stats) const;

 private:
  using NodeId = StrongId<struct PrefillNodeIdTag, uint32_t>;

  struct Node {
    std::string address;
    NodeState state = NodeState::kWaiting;
    LinkId link;
    LinkPulse pulse;
    bool greeted = false;           // its hello has come
    TimeNs next_attempt = 0;        // kWaiting
    TimeNs greeting_deadline = 0;   // kGreeting
    TimeNs backoff = 0;             // before the attempt after the next failure
    std::vector<RegionId> regions;  // of this session, one per group
    std::vector<RemoteRegion> remotes;
    int64_t outstanding_tokens = 0;
    int32_t fetches = 0;
  };

  struct OpenFetch {
    NodeId node;
    RequestId request;
    FetchState state = FetchState::kPreparing;
    bool told = false;  // the engine knows how it went, or does not want to
    Status failure;     // what it will be told
    std::vector<Expectation> expectations;
    std::vector<bool> expectation_ended;
    int32_t missing = 0;  // expectations
    int32_t pages = 0;
    int64_t bytes = 0;
    int32_t blocks = 0;
    int32_t tokens = 0;
    TimeNs ordered = 0;
    TimeNs limit = 0;     // as a whole
    TimeNs deadline = 0;  // of this state
  };
  using Fetches = std::map<FetchId, OpenFetch>;  // in order: so is everything that is done for all

  // fetch_nodes.cc
  void Connect(NodeId id, TimeNs now);
  void SetState(Node* node, NodeState state);
  void OnHello(NodeId id, const Hello& hello);
  void OnReady(NodeId id);
  // Ends the session with all its fetches; the next attempt comes after a while, later if
  // `refused`.
  void LoseNode(NodeId id, const Status& status, bool refused);
  void CloseRegions(Node* node);
  void Post(NodeId id, const HandoffMessage& message);
  // The ready node with the least to do, not the one that failed this request if there is another.
  // Zero: none.
  NodeId Choose(RequestId request) const;
  TimeNs AdvanceNode(NodeId id, TimeNs now, bool paused);
  void ForgetNodeIfLeft(NodeId id);
  void Drop(NodeId id);
  void ReportReadyNodes();

  // fetch_side.cc
  void OnMessage(NodeId id, HandoffMessage message);
  void OnFetchMessage(NodeId id, const HandoffMessage& message);
  void OnDone(NodeId node, FetchId id, const Done& done);
  // Announces the pages and asks the node for them; on an error nothing is left of it.
  Status Begin(const FetchOrder& order, NodeId node);
  Status Announce(const PageMap& map, OpenFetch* fetch);
  void SetState(OpenFetch* fetch, FetchState state, TimeNs deadline);
  void Stop(FetchId id, const Status& why);
  void Arrived(FetchId id);
  // Nothing of it lands any more: slots and blocks go back.
  void Finish(FetchId id);
  void Tell(FetchId id, HandoffEvent::Kind kind, const Status& status);
  void RememberFailure(RequestId request, NodeId node);
  TimeNs AdvanceFetch(FetchId id, TimeNs now);

  const MessengerConfig& config_;
  const MessengerParts& parts_;
  MessengerStats* const stats_;
  std::vector<HandoffEvent>* const events_;
  SplitMix64 jitter_;

  std::map<NodeId, Node> nodes_;
  uint32_t last_node_ = 0;
  std::unordered_map<LinkId, NodeId> links_;
  Fetches fetches_;
  std::unordered_map<Immediate, FetchId> by_first_;  // expectations of open fetches
  // Where requests have failed last; the oldest is forgotten when there are too many.
  std::unordered_map<RequestId, NodeId> failed_at_;
  std::vector<RequestId> failed_order_;
  size_t failed_oldest_ = 0;
  int32_t ready_reported_ = 0;
};

}  // namespace tandem
