#include "cli/messenger_host.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

// How old published counters may be while the thread is busy.
constexpr TimeNs kStatsInterval = 20 * kNsPerMs;
// Nothing is due later than this, so that a wake that is lost costs no more.
constexpr TimeNs kLongestSleep = 100 * kNsPerMs;

}  // namespace

// Tells the host how the request behind a job ended; tokens never come.
class MessengerHost::JobSink final : public RequestSink {
 public:
  JobSink(MessengerHost* host, SendId id) : host_(host), id_(id) {}
  void OnOutput(const RequestOutput& output) override {
    if (!output.finish.has_value()) return;
    Status status = output.status;
    if (status.ok() && *output.finish == FinishReason::kCancelled) {
      status = CancelledError("the request was cancelled");
    }
    host_->Push(JobEnded{id_, std::move(status)});
  }

 private:
  MessengerHost* const host_;
  const SendId id_;
};

MessengerHost::MessengerHost(MessengerHostParts parts)
    : clock_(parts.clock), fabric_(std::move(parts.fabric)) {}

Result<std::unique_ptr<MessengerHost>> MessengerHost::Create(MessengerHostConfig config,
                                                             MessengerHostParts parts) {
  std::vector<std::span<std::byte>> pools = std::move(parts.pools);
  const LayerCounter* const layers = parts.layers;
  std::unique_ptr<MessengerHost> host(new MessengerHost(std::move(parts)));
  if (!config.trace_path.empty()) {
    TANDEM_ASSIGN_OR_RETURN(host->trace_, HandoffTrace::Create(config.trace_path));
  }
  TANDEM_ASSIGN_OR_RETURN(host->control_, TcpControlLink::Create(config.control));
  MessengerParts messenger;
  messenger.control = host->control_.get();
  messenger.fabric = host->fabric_.get();
  messenger.clock = host->clock_;
  messenger.pools = std::move(pools);
  messenger.jobs = host.get();
  messenger.layers = layers;
  if (host->trace_ != nullptr) {
    messenger.on_layer = [trace = host->trace_.get()](const LayerTiming& t) { trace->Add(t); };
  }
  const auto wake = [h = host.get()] { h->Wake(); };
  host->control_->SetWake(wake);
  host->fabric_->SetWake(wake);
  const bool decode = config.messenger.decode;
  TANDEM_ASSIGN_OR_RETURN(host->messenger_,
                          Messenger::Create(std::move(config.messenger), std::move(messenger)));
  if (decode) {
    host->membership_ = std::make_unique<Membership>(
        std::move(config.nodes), std::move(config.sources), config.look_interval, wake);
  }
  return host;
}

MessengerHost::~MessengerHost() { Stop(); }

void MessengerHost::Start(EngineClient* engine, std::function<void(HandoffEvent)> deliver) {
  engine_ = engine;
  deliver_ = std::move(deliver);
  thread_ = std::thread([this] { Loop(); });
}

void MessengerHost::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    orders_.clear();
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
  membership_.reset();
  messenger_.reset();  // closes its regions
  fabric_.reset();
}

HandoffCounts MessengerHost::stats() const {
  MutexLock lock(mutex_);
  return counts_;
}

// ---- The engine's thread

void MessengerHost::Fetch(FetchOrder order) { Push(std::move(order)); }
void MessengerHost::CancelFetch(FetchId id) { Push(CancelFetchOrder{id}); }
void MessengerHost::ChunkSubmitted(SendChunk chunk) { Push(std::move(chunk)); }
void MessengerHost::SendFailed(SendId id, const Status& status) {
  Push(SendFailedOrder{id, status});
}

void MessengerHost::Push(Order order) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  orders_.push_back(std::move(order));
  woken_ = true;
  wake_.NotifyOne();
}

// ---- The host's thread

Status MessengerHost::Start(SendId id, std::vector<TokenId> tokens, std::string cache_salt,
                            TimeNs /*deadline*/) {
  Request request;
  const auto count = static_cast<int32_t>(tokens.size());
  request.prompt = std::move(tokens);
  request.cache_salt = std::move(cache_salt);
  request.send = id;
  TANDEM_ASSIGN_OR_RETURN(const RequestId request_id,
                          engine_->Submit(std::move(request), std::make_unique<JobSink>(this, id)));
  jobs_[id] = {request_id, count};
  return OkStatus();
}

void MessengerHost::Cancel(SendId id) {
  if (const auto job = jobs_.find(id); job != jobs_.end()) engine_->Cancel(job->second.request);
}

void MessengerHost::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  wake_.NotifyOne();
}

void MessengerHost::Loop() {
  std::vector<Order> orders;
  while (TakeOrders(&orders)) {
    for (Order& order : orders) Handle(std::move(order));
    orders.clear();
    FollowMembership();
    PollNetwork();
    const TimeNs due = messenger_->Advance();
    DeliverEvents();
    const TimeNs now = clock_->Now();
    if (now - published_ >= kStatsInterval || due - now > kNsPerMs) PublishStats(now);
    if (due > now) WaitUntil(due);
  }
}

bool MessengerHost::TakeOrders(std::vector<Order>* orders) {
  MutexLock lock(mutex_);
  orders->swap(orders_);
  woken_ = false;
  return !stopping_;
}

void MessengerHost::Handle(Order order) {
  if (auto* fetch = std::get_if<FetchOrder>(&order)) return messenger_->Fetch(std::move(*fetch));
  if (const auto* cancel = std::get_if<CancelFetchOrder>(&order)) {
    return messenger_->CancelFetch(cancel->id);
  }
  if (auto* chunk = std::get_if<SendChunk>(&order)) {
    const auto job = jobs_.find(chunk->id);
    if (job != jobs_.end() && chunk->end >= job->second.tokens) job->second.ended = true;
    return messenger_->ChunkSubmitted(std::move(*chunk));
  }
  if (const auto* failed = std::get_if<SendFailedOrder>(&order)) {
    if (const auto job = jobs_.find(failed->id); job != jobs_.end()) job->second.ended = true;
    return messenger_->SendFailed(failed->id, failed->status);
  }
  const auto& ended = std::get<JobEnded>(order);
  const auto job = jobs_.find(ended.id);
  if (job == jobs_.end()) return;
  // The engine says nothing of a send that it refused on arrival.
  if (!job->second.ended && !ended.status.ok()) messenger_->SendFailed(ended.id, ended.status);
  jobs_.erase(job);
}

void MessengerHost::FollowMembership() {
  if (membership_ == nullptr) return;
  const auto change = membership_->TakeChange();
  if (!change.has_value()) return;
  for (const std::string& node : nodes_) {
    if (std::binary_search(change->begin(), change->end(), node)) continue;
    LogInfo("prefill node {} has left", node);
    messenger_->RemovePrefillNode(node);
  }
  for (const std::string& node : *change) {
    if (std::binary_search(nodes_.begin(), nodes_.end(), node)) continue;
    LogInfo("prefill node {} has joined", node);
    const Status status = messenger_->AddPrefillNode(node);
    if (!status.ok()) LogWarning("prefill node {}: {}", node, status.message());
  }
  nodes_ = *change;
}

void MessengerHost::PollNetwork() {
  if (control_->Poll(&link_events_)) {
    for (LinkEvent& event : link_events_) messenger_->HandleControl(std::move(event));
    link_events_.clear();
  }
  if (fabric_->Poll(&fabric_events_)) {
    for (FabricEvent& event : fabric_events_) messenger_->HandleFabric(std::move(event));
    fabric_events_.clear();
  }
}

void MessengerHost::DeliverEvents() {
  if (!messenger_->TakeEvents(&handoff_events_)) return;
  for (HandoffEvent& event : handoff_events_) deliver_(std::move(event));
  handoff_events_.clear();
}

void MessengerHost::PublishStats(TimeNs now) {
  published_ = now;
  HandoffCounts counts{messenger_->stats(), control_->stats()};
  if (trace_ != nullptr) trace_->Flush();
  MutexLock lock(mutex_);
  counts_ = counts;
}

void MessengerHost::WaitUntil(TimeNs due) {
  const TimeNs longest = std::min(due - clock_->Now(), kLongestSleep);
  if (longest <= 0) return;
  MutexLock lock(mutex_);
  if (!woken_ && !stopping_) wake_.WaitFor(mutex_, longest);
}

}  // namespace tandem
