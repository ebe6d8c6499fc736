#include "plan/simulator.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"

namespace tandem {
namespace {

class Run final : public EngineOutputSink {
 public:
  Run(const Scenario& scenario, bool record)
      : scenario_(scenario), record_(record), executor_(&scenario) {
    result_.requests.resize(scenario.requests.size());
    for (size_t i = 0; i < scenario.requests.size(); ++i) {
      const ScenarioRequest& r = scenario.requests[i];
      result_.requests[i].reserved_bytes = ReservedBytes(r);
      if (r.cancel_at) cancels_.push_back({*r.cancel_at, static_cast<int32_t>(i)});
    }
    std::sort(cancels_.begin(), cancels_.end());
  }

  Status Init() {
    TANDEM_ASSIGN_OR_RETURN(const SchedulerConfig config, ConfigOf(scenario_));
    TANDEM_ASSIGN_OR_RETURN(engine_, Engine::Create(config, &executor_, this));
    executor_.SetOnSubmit([this] { NoteStep(); });
    return OkStatus();
  }

  Status Loop() {
    for (;;) {
      const std::optional<TimeNs> next = NextEvent();
      if (!next) break;
      now_ = std::max(now_, *next);
      if (now_ > kMaxSimulatedTime) return OutOfRangeError("the simulated time exceeds 36 years");
      executor_.SetNow(now_);
      while (executor_.Poll(&std::get<ResultEvent>(done_.body).result)) {
        done_.at = now_;
        TANDEM_RETURN_IF_ERROR(engine_->Handle(done_));
      }
      while (next_arrival_ < scenario_.requests.size() &&
             scenario_.requests[next_arrival_].arrival <= now_) {
        Arrive(next_arrival_++);
      }
      Cancel();
      Advance();
    }
    // Nothing is left that could happen: nothing may be left to do.
    if (engine_->HasWork()) return InternalError("the simulation stands still with work left");
    return engine_->CheckIntegrity();
  }

  Simulation Finish() {
    result_.iterations = executor_.steps();
    result_.stats = engine_->stats(now_);
    for (size_t i = 0; i < result_.requests.size(); ++i) {
      const SimulatedRequest& r = result_.requests[i];
      if (r.outputs == 0) continue;
      const TimeNs arrival = scenario_.requests[i].arrival;
      result_.total_output_tokens += r.outputs;
      result_.max_waiting = std::max(result_.max_waiting, r.admitted - arrival);
      result_.max_ttft = std::max(result_.max_ttft, r.first_token - arrival);
      result_.max_itl = std::max(result_.max_itl, r.max_itl);
    }
    return std::move(result_);
  }

  void OnOutput(const RequestOutput& output) override {
    const size_t i = IndexOf(output.id);
    SimulatedRequest& r = result_.requests[i];
    if (!output.tokens.empty()) {
      if (r.outputs > 0) r.max_itl = std::max(r.max_itl, now_ - r.finished);
      r.finished = now_;  // of the last delivery so far
      r.outputs = output.output_tokens;
      r.first_token = output.times.first_token;
      if (record_) r.deliveries.push_back(now_);
      if (scenario_.requests[i].cancel_after_outputs == r.outputs) cancel_now_.push_back(output.id);
    }
    r.preemptions = output.preemptions;
    r.recomputed = output.recomputed_tokens;
    r.admitted = output.times.admitted;
    if (!output.finish) return;
    r.finish = output.finish;
    r.finished = now_;
  }

 private:
  static size_t IndexOf(RequestId id) { return static_cast<size_t>(id.value() - 1); }
  static RequestId IdOf(size_t index) { return RequestId(index + 1); }

  int64_t block_bytes() const {
    return scenario_.model.kv_bytes_per_token * scenario_.block_tokens;
  }

  int64_t ReservedBytes(const ScenarioRequest& r) const {
    const int64_t tokens = int64_t{r.prompt_tokens} + r.max_tokens.value_or(r.output_tokens) - 1;
    return (tokens + scenario_.block_tokens - 1) / scenario_.block_tokens * block_bytes();
  }

  std::optional<TimeNs> NextEvent() const {
    std::optional<TimeNs> next = executor_.next_finish();
    const auto earlier = [&](TimeNs at) { next = std::min(next.value_or(at), at); };
    if (next_arrival_ < scenario_.requests.size()) {
      earlier(scenario_.requests[next_arrival_].arrival);
    }
    // A cancel matters only while there is something to cancel.
    if (next_cancel_ < cancels_.size()) earlier(cancels_[next_cancel_].first);
    return next;
  }

  void Arrive(size_t index) {
    const ScenarioRequest& from = scenario_.requests[index];
    Request& request = std::get<ArrivalEvent>(arrival_.body).request;
    request.id = IdOf(index);
    request.arrival = from.arrival;
    // Prompts differ in their first token, so that nothing of one could serve another.
    request.prompt.assign(static_cast<size_t>(from.prompt_tokens), SimulatedExecutor::kToken);
    request.prompt[0] = TokenId(2 + static_cast<int32_t>(index));
    request.max_output_tokens = from.max_tokens;
    request.stop_tokens = {SimulatedExecutor::kStopToken};
    request.deadline = from.deadline;
    request.ttft_target = from.ttft_target;
    arrival_.at = now_;
    const Status status = engine_->Handle(arrival_);
    if (status.ok()) return;
    result_.requests[index].refused = status;
    result_.requests[index].refusal = engine_->refusal();
  }

  void Cancel() {
    for (; next_cancel_ < cancels_.size() && cancels_[next_cancel_].first <= now_; ++next_cancel_) {
      cancel_now_.push_back(IdOf(static_cast<size_t>(cancels_[next_cancel_].second)));
    }
    for (RequestId id : cancel_now_) {
      const Status status = engine_->Handle({now_, CancelEvent{id}});
      TANDEM_CHECK(status.ok());
    }
    cancel_now_.clear();
  }

  void Advance() {
    if (record_) NoteRunning();
    engine_->Advance(now_);
    if (record_) NotePreempted();
  }

  // A step has been submitted.
  void NoteStep() {
    const BlockPool& pool = engine_->scheduler().pools().pool(GroupId(0));
    const int64_t live = int64_t{pool.in_use()} * block_bytes();
    const int64_t reserved = int64_t{pool.in_use() + pool.reserved()} * block_bytes();
    result_.peak_blocks = std::max<int64_t>(result_.peak_blocks, pool.in_use());
    result_.peak_live_kv_bytes = std::max(result_.peak_live_kv_bytes, live);
    result_.peak_reserved_kv_bytes = std::max(result_.peak_reserved_kv_bytes, reserved);
    const StepCost& cost = executor_.cost();
    result_.total_scheduled_tokens += cost.new_tokens;
    result_.live_kv_byte_ns += WideInt{live} * (executor_.finished() - executor_.started());
    result_.finish = executor_.finished();
    for (const SimulatedRow& row : executor_.rows()) {
      SimulatedRequest& r = result_.requests[static_cast<size_t>(row.request)];
      const WideInt flops = FlopsOf(scenario_.model, row);
      r.matrix_flops += flops;
      result_.total_matrix_flops += flops;
      r.computed = row.history_tokens + row.new_tokens;
    }
    if (!record_) return;
    SimulatedStep& step = result_.steps.emplace_back();
    step.start = executor_.started();
    step.end = executor_.finished();
    step.new_tokens = cost.new_tokens;
    step.causal_pairs = cost.causal_pairs;
    step.live_kv_bytes = live;
    step.blocks_in_use = pool.in_use();
    step.rows.assign(executor_.rows().begin(), executor_.rows().end());
    NotePreempted();
    step.preempted.swap(preempted_);
    NoteRunning();
  }

  // Which requests run before planning: who of them waits afterwards has given way.
  void NoteRunning() {
    was_running_.clear();
    for (SequenceIndex i : engine_->scheduler().running_sequences()) {
      was_running_.push_back(engine_->scheduler().sequence(i).request.id);
    }
  }
  void NotePreempted() {
    for (RequestId id : was_running_) {
      const std::optional<SequenceIndex> i = engine_->scheduler().Find(id);
      if (!i || engine_->scheduler().sequence(*i).state != RequestState::kPreempted) continue;
      preempted_.push_back(static_cast<int32_t>(IndexOf(id)));
    }
    was_running_.clear();
  }

  const Scenario& scenario_;
  const bool record_;
  SimulatedExecutor executor_;
  std::unique_ptr<Engine> engine_;
  EngineEvent arrival_{0, ArrivalEvent{}};
  EngineEvent done_{0, ResultEvent{}};
  TimeNs now_ = 0;
  size_t next_arrival_ = 0;
  std::vector<std::pair<TimeNs, int32_t>> cancels_;  // by time
  size_t next_cancel_ = 0;
  std::vector<RequestId> cancel_now_;
  std::vector<RequestId> was_running_;
  std::vector<int32_t> preempted_;  // of the step to come
  Simulation result_;
};

}  // namespace

bool SimulatedRequest::Good(const ScenarioRequest& request) const {
  const bool whole = finish == FinishReason::kLength || finish == FinishReason::kStop;
  return whole && (!request.deadline || finished - request.arrival <= *request.deadline);
}

Result<Simulation> Simulate(const Scenario& scenario, bool record) {
  Run run(scenario, record);
  TANDEM_RETURN_IF_ERROR(run.Init());
  TANDEM_RETURN_IF_ERROR(run.Loop());
  return run.Finish();
}

}  // namespace tandem
