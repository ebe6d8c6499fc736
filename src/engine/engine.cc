#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {

Result<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config, StepExecutor* executor,
                                               EngineOutputSink* sink) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler, Scheduler::Create(config));
  const ExecutorLimits limits = executor->limits();
  if (config.max_running > limits.num_slots) {
    return InvalidArgumentError("max running is {}, the executor has {} slots", config.max_running,
                                limits.num_slots);
  }
  if (config.pipeline_depth + 1 > limits.max_in_flight) {
    return InvalidArgumentError("pipeline depth {} needs {} plans in flight, the executor takes {}",
                                config.pipeline_depth, config.pipeline_depth + 1,
                                limits.max_in_flight);
  }
  return std::unique_ptr<Engine>(new Engine(std::move(scheduler), executor, sink));
}

Engine::Engine(std::unique_ptr<Scheduler> scheduler, StepExecutor* executor,
               EngineOutputSink* sink)
    : scheduler_(std::move(scheduler)), executor_(executor), sink_(sink) {
  output_.tokens.reserve(1);
}

Status Engine::Handle(const Event& event) {
  now_ = std::max(now_, event.at);
  if (const auto* arrival = std::get_if<ArrivalEvent>(&event.body)) {
    return HandleArrival(arrival->request);
  }
  if (const auto* cancel = std::get_if<CancelEvent>(&event.body)) {
    HandleCancel(cancel->request);
    return OkStatus();
  }
  return HandleResult(std::get<ResultEvent>(event.body).result);
}

Status Engine::HandleArrival(const Request& request) {
  Status status = admission_stopped_
                      ? UnavailableError("the engine is shutting down and accepts no requests")
                      : scheduler_->Enqueue(request);
  if (!status.ok()) ++counters_.requests_refused;
  return status;
}

void Engine::HandleCancel(RequestId id) {
  const std::optional<SequenceIndex> index = scheduler_->Find(id);
  if (index) Finish(*index, FinishReason::kCancelled, OkStatus());
}

Status Engine::HandleResult(const StepResult& result) {
  TANDEM_RETURN_IF_ERROR(scheduler_->CheckResult(result));
  const StepOutcome& outcome = scheduler_->Commit(result);
  ++counters_.steps;
  counters_.step_time_total += result.finished - result.started;
  counters_.last_step_finished = now_;
  counters_.prompt_tokens += outcome.prefill_tokens;
  counters_.recomputed_tokens += outcome.recomputed_tokens;
  for (const CommittedToken& c : outcome.tokens) CommitToken(c.sequence, c.token);
  Fail(outcome, result.status);
  return OkStatus();
}

void Engine::CommitToken(SequenceIndex index, TokenId token) {
  const std::vector<TokenId>& stops = scheduler_->sequence(index).request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    Finish(index, FinishReason::kStop, OkStatus());
    return;
  }
  scheduler_->AppendToken(index, token);
  ++counters_.generated_tokens;
  scheduler_->NoteFirstToken(index, now_);
  const Sequence& s = scheduler_->sequence(index);
  BeginOutput(s);
  output_.tokens.push_back(token);
  if (s.outputs() < s.outputs_max) {
    sink_->OnOutput(output_);
    return;
  }
  output_.finish = FinishReason::kLength;
  EndWithOutput(index, RequestState::kFinished);
}

void Engine::Fail(const StepOutcome& outcome, const Status& status) {
  for (SequenceIndex index : outcome.failed) Finish(index, FinishReason::kFailed, status);
}

}  // namespace tandem
