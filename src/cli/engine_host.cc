#include "cli/engine_host.h"

#include <utility>

#include "base/log.h"

namespace tandem {

Result<std::unique_ptr<EngineHost>> EngineHost::Create(const EngineConfig& config,
                                                       StepExecutor* executor, const Clock* clock,
                                                       EventRecorder* recorder, HandoffPort* port) {
  std::unique_ptr<EngineHost> host(new EngineHost(config, executor, clock, recorder));
  TANDEM_ASSIGN_OR_RETURN(host->engine_, Engine::Create(config, executor, host.get(), port));
  executor->SetOnFinished([h = host.get()] { h->Wake(); });
  host->PublishStats();
  host->thread_ = std::thread([h = host.get()] { h->Loop(); });
  return host;
}

EngineHost::EngineHost(const EngineConfig& config, StepExecutor* executor, const Clock* clock,
                       EventRecorder* recorder)
    : max_queue_(config.max_queue), executor_(executor), clock_(clock), recorder_(recorder) {}

EngineHost::~EngineHost() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    wake_.NotifyOne();
  }
  thread_.join();
}

Result<RequestId> EngineHost::Submit(Request request, std::unique_ptr<RequestSink> sink) {
  TANDEM_RETURN_IF_ERROR(engine_->ValidateRequest(request));
  request.id = RequestId(next_id_.fetch_add(1));
  const TimeNs now = clock_->Now();
  if (request.arrival == 0) request.arrival = now;
  const RequestId id = request.id;
  MutexLock lock(mutex_);
  if (admission_stopped_ || ending_) return UnavailableError("the server is shutting down");
  if (arrivals_ >= max_queue_) {
    refused_.fetch_add(1);
    return ResourceExhaustedError("{} requests have just come, no more are accepted now",
                                  arrivals_);
  }
  ++arrivals_;
  Input& input = inbox_.emplace_back();
  input.event.at = now;
  input.event.body.emplace<ArrivalEvent>().request = std::move(request);
  input.sink = std::move(sink);
  wake_.NotifyOne();
  return id;
}

void EngineHost::AddCancel(RequestId id, std::vector<Input>* inputs) const {
  EngineEvent& event = inputs->emplace_back().event;
  event.at = clock_->Now();
  event.body.emplace<CancelEvent>().request = id;
}

void EngineHost::Cancel(RequestId id) {
  MutexLock lock(mutex_);
  AddCancel(id, &inbox_);
  wake_.NotifyOne();
}

void EngineHost::Deliver(HandoffEvent event) {
  MutexLock lock(mutex_);
  EngineEvent& input = inbox_.emplace_back().event;
  input.at = clock_->Now();
  input.body.emplace<HandoffEvent>(std::move(event));
  wake_.NotifyOne();
}

int32_t EngineHost::max_context_tokens() const { return engine_->max_context_tokens(); }

EngineStats EngineHost::stats() const {
  MutexLock lock(mutex_);
  EngineStats stats = stats_;
  stats.requests_waiting += arrivals_;
  stats.requests_refused += refused_.load();
  stats.now = clock_->Now();
  return stats;
}

void EngineHost::StopAdmission() {
  MutexLock lock(mutex_);
  admission_stopped_ = true;
}

void EngineHost::Wake() {
  MutexLock lock(mutex_);
  step_finished_ = true;
  wake_.NotifyOne();
}

void EngineHost::Loop() {
  std::vector<Input> inputs;
  while (TakeInputs(&inputs)) {
    for (Input& input : inputs) Handle(std::move(input));
    inputs.clear();
    PollResults();
    const TimeNs now = clock_->Now();
    if (recorder_ != nullptr) recorder_->OnAdvance(now);
    engine_->Advance(now);
    PublishStats();
  }
}

bool EngineHost::TakeInputs(std::vector<Input>* inputs) {
  MutexLock lock(mutex_);
  while (inbox_.empty() && !step_finished_ && !ending_) wake_.Wait(mutex_);
  inputs->swap(inbox_);
  arrivals_ = 0;
  if (!ending_) {
    step_finished_ = false;
    return true;
  }
  for (const auto& [id, sink] : sinks_) {
    AddCancel(id, inputs);
  }
  if (!inputs->empty()) return true;
  if (engine_->steps_in_flight() == 0) return false;
  while (!step_finished_) wake_.Wait(mutex_);  // true already when it came after the last poll
  step_finished_ = false;
  return true;
}

void EngineHost::Handle(Input input) {
  const auto* arrival = std::get_if<ArrivalEvent>(&input.event.body);
  RequestId id;
  if (arrival != nullptr) {
    id = arrival->request.id;
    sinks_.emplace(id, std::move(input.sink));
  }
  const Status status = HandleEvent(input.event);
  if (!status.ok() && arrival != nullptr) FailRefused(id, status);
}

Status EngineHost::HandleEvent(const EngineEvent& event) {
  Status status = engine_->Handle(event);
  if (recorder_ != nullptr) recorder_->OnEvent(event, status.code());
  return status;
}

// Submit had accepted it, so its sink must hear how it ended.
void EngineHost::FailRefused(RequestId id, const Status& status) {
  RequestOutput output;
  output.id = id;
  output.finish = FinishReason::kFailed;
  output.status = status;
  output.refusal = engine_->refusal();
  OnOutput(output);
}

void EngineHost::PollResults() {
  while (executor_->Poll(&result_)) {
    EngineEvent event{clock_->Now(), ResultEvent{std::move(result_)}};
    const Status status = HandleEvent(event);
    if (!status.ok()) LogError("engine: {}", status.ToString());
    result_ =
        std::move(std::get<ResultEvent>(event.body).result);  // its memory serves the next poll
  }
}

void EngineHost::PublishStats() {
  const EngineStats stats = engine_->stats(clock_->Now());
  MutexLock lock(mutex_);
  stats_ = stats;
}

void EngineHost::OnOutput(const RequestOutput& output) {
  const auto it = sinks_.find(output.id);
  if (it == sinks_.end()) return;
  it->second->OnOutput(output);
  if (output.finish.has_value()) sinks_.erase(it);
}

}  // namespace tandem
