#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {

Result<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config, StepExecutor* executor,
                                               EngineOutputSink* sink, HandoffPort* port) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler, Scheduler::Create(config, port));
  const ExecutorLimits limits = executor->limits();
  if (config.num_slots() > limits.num_slots) {
    return InvalidArgumentError("max running is {} and max fetches {}, the executor has {} slots",
                                config.max_running, config.fetch.max_fetches, limits.num_slots);
  }
  if (config.pipeline_depth + 1 > limits.max_in_flight) {
    return InvalidArgumentError("pipeline depth {} needs {} plans in flight, the executor takes {}",
                                config.pipeline_depth, config.pipeline_depth + 1,
                                limits.max_in_flight);
  }
  return std::unique_ptr<Engine>(new Engine(std::move(scheduler), executor, sink, port));
}

Engine::Engine(std::unique_ptr<Scheduler> scheduler, StepExecutor* executor, EngineOutputSink* sink,
               HandoffPort* port)
    : scheduler_(std::move(scheduler)), executor_(executor), sink_(sink), port_(port) {
  output_.tokens.reserve(1);
}

Status Engine::Handle(const EngineEvent& event) {
  now_ = std::max(now_, event.at);
  if (const auto* arrival = std::get_if<ArrivalEvent>(&event.body)) {
    return HandleArrival(arrival->request);
  }
  if (const auto* cancel = std::get_if<CancelEvent>(&event.body)) {
    HandleCancel(cancel->request);
    return OkStatus();
  }
  if (const auto* handoff = std::get_if<HandoffEvent>(&event.body)) return HandleHandoff(*handoff);
  return HandleResult(std::get<ResultEvent>(event.body).result);
}

Status Engine::HandleArrival(const Request& request) {
  refusal_.reset();
  Status status = admission_stopped_
                      ? UnavailableError("the engine is shutting down and accepts no requests")
                      : scheduler_->Enqueue(request, now_);
  if (!status.ok()) ++counters_.requests_refused;
  if (!admission_stopped_) refusal_ = scheduler_->refusal();
  if (refusal_) ++counters_.requests_refused_for_deadline;
  return status;
}

void Engine::HandleCancel(RequestId id) {
  const std::optional<SequenceIndex> index = scheduler_->Find(id);
  if (!index) return;
  const Sequence& s = scheduler_->sequence(*index);
  if (IsRunning(s.state)) cancels_.push_back({s.last_step, now_, false});
  Emit(*index, std::nullopt, FinishReason::kCancelled, OkStatus());
}

Status Engine::HandleResult(const StepResult& result) {
  TANDEM_RETURN_IF_ERROR(scheduler_->CheckResult(result));
  const StepOutcome& outcome = scheduler_->Commit(result);
  NoteReleases(result.step);
  ++counters_.steps;
  counters_.step_time_total += result.finished - result.started;
  counters_.last_step_finished = now_;
  counters_.prompt_tokens += outcome.prefill_tokens;
  counters_.recomputed_tokens += outcome.recomputed_tokens;
  for (const CommittedRow& row : outcome.rows) CommitRow(row, result);
  for (SequenceIndex index : outcome.failed) {
    Emit(index, std::nullopt, FinishReason::kFailed, result.status);
  }
  for (SequenceIndex index : outcome.sent) {
    Emit(index, std::nullopt, FinishReason::kLength, OkStatus());
  }
  return OkStatus();
}

Status Engine::HandleHandoff(const HandoffEvent& event) {
  if (port_ == nullptr) return InvalidArgumentError("the engine has no hand-off port");
  switch (event.kind) {
    case HandoffEvent::Kind::kFetchArrived: scheduler_->FetchArrived(event.fetch); break;
    case HandoffEvent::Kind::kFetchFailed: scheduler_->FetchFailed(event.fetch); break;
    case HandoffEvent::Kind::kFetchDrained: scheduler_->FetchDrained(event.fetch); break;
    case HandoffEvent::Kind::kPeers: scheduler_->SetReadyPeers(event.ready_peers); break;
    case HandoffEvent::Kind::kSendDrained: {
      const bool delivered = event.status.ok();
      const std::optional<SequenceIndex> index = scheduler_->SendDrained(event.send, delivered);
      if (!index) break;
      Emit(*index, std::nullopt, delivered ? FinishReason::kLength : FinishReason::kFailed,
           event.status);
      break;
    }
  }
  return OkStatus();
}

void Engine::NoteReleases(StepId done) {
  std::erase_if(cancels_, [&](const Cancelled& c) {
    if (c.last_step > done || !c.stopped) return false;
    ++counters_.cancels_released;
    counters_.cancel_release_time_total += now_ - c.at;
    return true;
  });
}

void Engine::NoteStops() {
  for (Cancelled& c : cancels_) {
    if (c.stopped) continue;
    c.stopped = true;
    ++counters_.cancels_stopped;
    counters_.cancel_stop_time_total += now_ - c.at;
  }
  if (scheduler_->steps_in_flight() == 0) NoteReleases(StepId(UINT64_MAX));
}

void Engine::CommitRow(const CommittedRow& row, const StepResult& result) {
  const auto entries = result.logprobs.begin() + row.logprobs_begin;
  const auto of_token = entries + row.prompt_logprobs;
  output_.prompt_logprobs.assign(entries, of_token);
  if (!row.token) return Emit(row.sequence, std::nullopt, std::nullopt, OkStatus());
  const Sequence& s = scheduler_->sequence(row.sequence);
  const std::vector<TokenId>& stops = s.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), *row.token) != stops.end()) {
    output_.stop_token = row.token;
    return Emit(row.sequence, std::nullopt, FinishReason::kStop, OkStatus());
  }
  output_.logprobs.assign(of_token, of_token + row.token_logprobs);
  scheduler_->AppendToken(row.sequence, *row.token, now_);
  ++counters_.generated_tokens;
  const bool full = s.outputs() >= s.outputs_max;
  Emit(row.sequence, row.token, full ? std::optional(FinishReason::kLength) : std::nullopt,
       OkStatus());
}

void Engine::Emit(SequenceIndex index, std::optional<TokenId> token,
                  std::optional<FinishReason> finish, const Status& status) {
  const Sequence& s = scheduler_->sequence(index);
  output_.id = s.request.id;
  output_.tokens.clear();
  if (token) output_.tokens.push_back(*token);
  output_.finish = finish;
  output_.status = status;
  output_.prompt_tokens = s.prompt_tokens;
  output_.output_tokens = s.outputs();
  output_.cached_tokens = s.cached;
  output_.preemptions = s.preemptions;
  output_.recomputed_tokens = s.recomputed;
  output_.times = s.times;
  if (finish) {
    output_.times.finished = now_;
    switch (*finish) {
      case FinishReason::kStop:
      case FinishReason::kLength:
        ++counters_.requests_finished;
        scheduler_->End(index, RequestState::kFinished);
        break;
      case FinishReason::kCancelled:
        ++counters_.requests_cancelled;
        scheduler_->End(index, RequestState::kCancelled);
        break;
      case FinishReason::kFailed:
        ++counters_.requests_failed;
        scheduler_->End(index, RequestState::kFailed, status);
        break;
    }
  }
  sink_->OnOutput(output_);
  output_.logprobs.clear();
  output_.prompt_logprobs.clear();
  output_.stop_token.reset();
}

void Engine::Advance(TimeNs now) {
  now_ = std::max(now_, now);
  NoteStops();
  while (scheduler_->steps_in_flight() <= scheduler_->config().pipeline_depth &&
         scheduler_->PlanStep(now_, &plan_)) {
    const Status status = executor_->Submit(plan_);
    if (status.ok()) {
      scheduler_->Submitted(plan_);
      continue;
    }
    const StepOutcome& outcome = scheduler_->Refused(plan_);
    for (SequenceIndex index : outcome.failed) {
      Emit(index, std::nullopt, FinishReason::kFailed, status);
    }
  }
}

void Engine::AddPrefixStats(EngineStats* s) const {
  s->requests_awaiting_prefix = scheduler_->awaiting_prefix();
  const PrefixCache* cache = scheduler_->prefix_cache();
  if (cache == nullptr) return;
  const PrefixCacheStats stats = cache->stats();
  const auto missed = [&](PrefixMiss miss) { return stats.missed[static_cast<size_t>(miss)]; };
  s->prefix_query_tokens = stats.tokens;
  s->prefix_hit_tokens = stats.hit_tokens;
  s->prefix_missed = {.never_stored = missed(PrefixMiss::kNeverStored),
                      .evicted = missed(PrefixMiss::kEvicted),
                      .other_identity = missed(PrefixMiss::kOtherIdentity),
                      .tail = missed(PrefixMiss::kTail),
                      .last_token = missed(PrefixMiss::kLastToken),
                      .pending = missed(PrefixMiss::kPending),
                      .window = missed(PrefixMiss::kWindow)};
  s->prefix_spans_evicted = stats.spans_evicted;
  const RetentionStats retention = cache->retention_stats();
  s->prefix_saved_s = retention.saved_s;
  static_assert(kNumPrefixClasses == kPrefixClassesMax);
  for (int32_t i = 0; i < kNumPrefixClasses; ++i) {
    const PrefixClass c = PrefixClass::At(i);
    const PrefixClassStats& of = retention.classes[static_cast<size_t>(i)];
    s->prefix_classes[static_cast<size_t>(i)] = {.reuses = c.reuses,
                                                 .continues = c.continues,
                                                 .first_token_from = c.first_token_from(),
                                                 .hits = of.hits,
                                                 .evictions = of.evictions,
                                                 .parts = of.parts,
                                                 .hit_probability = of.hit_probability};
  }
}

EngineStats Engine::stats(TimeNs now) const {
  EngineStats s = counters_;
  s.now = now;
  s.requests_running = scheduler_->running();
  s.requests_waiting = scheduler_->waiting();
  s.blocks_total = scheduler_->pools().total_blocks();
  s.blocks_in_use = scheduler_->pools().busy_blocks();
  s.preemptions = scheduler_->preemptions();
  s.handoff = scheduler_->handoff_stats();
  const CostModel& cost = scheduler_->cost_model();
  s.cost_base_ns = cost.prefill().base_ns;
  s.cost_token_ns = cost.prefill().token_ns;
  s.cost_pair_ns = cost.prefill().pair_ns;
  s.cost_error = cost.error();
  s.itl_prefill_tokens = scheduler_->itl_prefill_tokens();
  AddPrefixStats(&s);
  return s;
}

}  // namespace tandem
