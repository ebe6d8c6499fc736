// What: MessengerHost: the thread that drives a Messenger with a real network, and its place
//   between messenger and engine: the engine's orders cross to the thread, events and jobs cross
//   back.
// Not here: the protocol (messenger/), which nodes there are (membership.h), flags
//   (handoff_options.h).
// Threads: Create, Start, Stop and the destructor on one; HandoffPort's methods on the engine's;
//   stats from any. Everything of the messenger, the links and the fabric on the host's own.
// Invariants: nothing that the engine calls waits. What crosses is bounded without a limit of its
//   own: every fetch and every chunk holds blocks of the pool until the messenger has answered, and
//   every job is a request of the engine's queue.
// Cost: while a layer is awaited the thread looks every MessengerConfig::layer_poll; else it sleeps
//   until something comes or is due.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "cli/handoff_trace.h"
#include "core/engine_client.h"
#include "core/handoff_port.h"
#include "fabric/transfer_engine.h"
#include "messenger/membership.h"
#include "messenger/membership_etcd.h"
#include "messenger/messenger.h"
#include "messenger/tcp_control.h"

namespace tandem {

struct MessengerHostConfig {
  MessengerConfig messenger;
  TcpControlConfig control;
  // Prefill nodes; looked at again so often.
  std::vector<std::string> nodes;
  std::vector<std::unique_ptr<MembershipSource>> sources;
  TimeNs look_interval = 1 * kNsPerS;
  std::string trace_path;  // empty: none
};

// What the messenger works on; outlives the host, but for the fabric.
struct MessengerHostParts {
  std::unique_ptr<TransferEngine> fabric;
  const Clock* clock = nullptr;
  std::vector<std::span<std::byte>> pools;
  const LayerCounter* layers = nullptr;
};

struct HandoffCounts {
  MessengerStats messenger;
  TcpControlStats control;
};

class MessengerHost final : public HandoffPort, private PrefillJobs {
 public:
  // Listens at once, if it is to. Errors name the flag.
  static Result<std::unique_ptr<MessengerHost>> Create(MessengerHostConfig config,
                                                       MessengerHostParts parts);
  // As Stop.
  ~MessengerHost() override;

  // From now on jobs go to `engine` and events to `deliver`, from the host's thread, until Stop.
  void Start(EngineClient* engine, std::function<void(HandoffEvent)> deliver);
  // Ends all hand-offs and closes all regions: afterwards nobody reads or writes the pools from
  // outside, and orders are dropped.
  void Stop();

  // Where decode nodes connect to; 0 when they cannot.
  uint16_t port() const { return control_->port(); }
  HandoffCounts stats() const TANDEM_EXCLUDES(mutex_);

  // HandoffPort, on the engine's thread.
  void Fetch(FetchOrder order) override;
  void CancelFetch(FetchId id) override;
  void ChunkSubmitted(SendChunk chunk) override;
  void SendFailed(SendId id, const Status& status) override;

 private:
  class JobSink;
  struct CancelFetchOrder {
    FetchId id;
  };
  struct SendFailedOrder {
    SendId id;
    Status status;
  };
  // The engine is done with the request behind a job.
  struct JobEnded {
    SendId id;
    Status status;
  };
  using Order = std::variant<FetchOrder, CancelFetchOrder, SendChunk, SendFailedOrder, JobEnded>;
  struct Job {
    RequestId request;
    int32_t tokens = 0;
    bool ended = false;  // its last chunk or SendFailed has come
  };

  explicit MessengerHost(MessengerHostParts parts);

  // PrefillJobs, on the host's thread.
  Status Start(SendId id, std::vector<TokenId> tokens, std::string cache_salt,
               TimeNs deadline) override;
  void Cancel(SendId id) override;

  void Push(Order order) TANDEM_EXCLUDES(mutex_);
  void Wake() TANDEM_EXCLUDES(mutex_);
  void Loop();
  // False: the host is to stop.
  bool TakeOrders(std::vector<Order>* orders) TANDEM_EXCLUDES(mutex_);
  void Handle(Order order);
  void FollowMembership();
  void PollNetwork();
  void DeliverEvents();
  void PublishStats(TimeNs now) TANDEM_EXCLUDES(mutex_);
  void WaitUntil(TimeNs due) TANDEM_EXCLUDES(mutex_);

  const Clock* const clock_;
  std::unique_ptr<HandoffTrace> trace_;  // with a trace path
  // The thread's, once it runs. What is below uses what is above.
  std::unique_ptr<TransferEngine> fabric_;
  std::unique_ptr<TcpControlLink> control_;
  std::unique_ptr<Messenger> messenger_;
  std::unique_ptr<Membership> membership_;  // of a node that fetches
  std::vector<std::string> nodes_;          // as last followed
  std::unordered_map<SendId, Job> jobs_;
  std::vector<LinkEvent> link_events_;
  std::vector<FabricEvent> fabric_events_;
  std::vector<HandoffEvent> handoff_events_;
  TimeNs published_ = 0;
  EngineClient* engine_ = nullptr;
  std::function<void(HandoffEvent)> deliver_;

  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<Order> orders_ TANDEM_GUARDED_BY(mutex_);
  bool woken_ TANDEM_GUARDED_BY(mutex_) = false;
  bool stopping_ TANDEM_GUARDED_BY(mutex_) = false;
  HandoffCounts counts_ TANDEM_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem
