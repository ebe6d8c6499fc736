#include "plan/recorded_workload.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"
#include "plan/plan_terms.h"
#include "plan/scenario.h"

namespace tandem {
namespace {

// Ends every answer where it ended; no model has it.
constexpr TokenId kEnd{-1};
constexpr TokenId kAnyToken{0};

// A step takes what the model says, and "samples" the recorded answers.
class RecordedExecutor final : public StepExecutor {
 public:
  RecordedExecutor(const SchedulerConfig& config, std::span<const RecordedRequest> requests,
                   const CostModel& cost)
      : limits_{config.num_slots(), config.pipeline_depth + 1},
        requests_(requests),
        cost_(cost),
        terms_(config.num_slots()),
        slots_(static_cast<size_t>(config.num_slots())) {
    size_t answered = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      index_.emplace(requests[i].request.id, i);
      if (!requests[i].finish) continue;
      mean_answer_ += requests[i].answer.size();
      ++answered;
    }
    mean_answer_ = std::max<size_t>(1, mean_answer_ / std::max<size_t>(1, answered));
  }

  ExecutorLimits limits() const override { return limits_; }
  void SetOnFinished(std::function<void()>) override {}

  Status Submit(const StepPlan& plan) override {
    StepResult& result = in_flight_.emplace_back();
    result.step = plan.step;
    for (const SlotJoin& join : plan.joins) {
      SlotOf(join.slot) = {&requests_[index_.at(join.request)], join.prompt_tokens};
    }
    int32_t logprobs = 0;
    for (const PlanRow& row : plan.rows) {
      const Slot& slot = SlotOf(row.slot);
      StepResult::Row& out = result.rows.emplace_back();
      out.slot = row.slot;
      out.sampled = row.sample;
      const int32_t index = row.position + row.num_tokens - slot.prompt_tokens;
      if (row.sample) out.token = TokenAt(*slot.request, static_cast<size_t>(index));
      const int32_t top = slot.request->request.sampling.top_logprobs;
      out.num_logprobs = (row.score + (row.sample && top >= 0 ? 1 : 0)) * (1 + std::max(0, top));
      logprobs = std::max(logprobs, out.num_logprobs);
    }
    result.logprobs.resize(static_cast<size_t>(logprobs));  // nobody reads them
    result.started = std::max(now_, finished_);
    finished_ = result.started + TimeOf(terms_.Of(plan));
    result.finished = finished_;
    return OkStatus();
  }

  bool Poll(StepResult* result) override {
    if (in_flight_.empty() || in_flight_.front().finished > now_) return false;
    *result = std::move(in_flight_.front());
    in_flight_.pop_front();
    return true;
  }

  void SetNow(TimeNs now) { now_ = now; }
  std::optional<TimeNs> next_finish() const {
    if (in_flight_.empty()) return std::nullopt;
    return in_flight_.front().finished;
  }

 private:
  struct Slot {
    const RecordedRequest* request = nullptr;
    int32_t prompt_tokens = 0;
  };
  Slot& SlotOf(SlotId slot) { return slots_[static_cast<size_t>(slot.value())]; }

  // How many tokens follow the answer that is known.
  size_t Beyond(const RecordedRequest& r) const {
    if (r.finish == FinishReason::kCancelled) return kMostBeyondCancel;
    if (r.finish) return 0;
    size_t whole = std::min(mean_answer_, kMostBeyondCancel);
    if (r.request.max_output_tokens) {
      whole = std::min(whole, static_cast<size_t>(std::max(0, *r.request.max_output_tokens)));
    }
    return whole - std::min(whole, r.answer.size());
  }
  TokenId TokenAt(const RecordedRequest& r, size_t index) const {
    if (index < r.answer.size()) return r.answer[index];
    return index < r.answer.size() + Beyond(r) ? kAnyToken : kEnd;
  }

  TimeNs TimeOf(const StepTerms& terms) const {
    // A kind of step that the record does not have is taken for the other kind.
    const StepTerms as_decode{.decode_rows = static_cast<int32_t>(terms.tokens()),
                              .decode_pairs = terms.pairs()};
    const StepTerms as_prefill{.prefill_tokens = terms.tokens(), .prefill_pairs = terms.pairs()};
    std::optional<double> ns = cost_.Predict(terms);
    if (!ns) ns = cost_.Predict(terms.prefill_tokens > 0 ? as_decode : as_prefill);
    constexpr double kLongest = 3600.0 * kNsPerS;
    return static_cast<TimeNs>(std::clamp(ns.value_or(0), 0.0, kLongest));
  }

  const ExecutorLimits limits_;
  const std::span<const RecordedRequest> requests_;
  const CostModel& cost_;
  PlanTerms terms_;
  std::vector<Slot> slots_;
  std::unordered_map<RequestId, size_t> index_;
  size_t mean_answer_ = 0;
  std::deque<StepResult> in_flight_;
  TimeNs now_ = 0;
  TimeNs finished_ = std::numeric_limits<TimeNs>::min();
};

class Run final : public EngineOutputSink {
 public:
  Run(const SchedulerConfig& config, std::span<const RecordedRequest> requests,
      const CostModel& cost)
      : requests_(requests), executor_(config, requests, cost) {
    for (const RecordedRequest& r : requests) {
      if (r.cancel_at) cancels_.emplace_back(*r.cancel_at, r.request.id);
    }
    std::sort(cancels_.begin(), cancels_.end());
  }

  Result<RunSummary> Go(const SchedulerConfig& config) {
    TANDEM_ASSIGN_OR_RETURN(engine_, Engine::Create(config, &executor_, this));
    for (std::optional<TimeNs> next = NextEvent(); next; next = NextEvent()) {
      now_ = std::max(now_, *next);
      if (now_ > kMaxSimulatedTime) return OutOfRangeError("the simulated time exceeds 36 years");
      executor_.SetNow(now_);
      EngineEvent done{now_, ResultEvent{}};
      while (executor_.Poll(&std::get<ResultEvent>(done.body).result)) {
        TANDEM_RETURN_IF_ERROR(engine_->Handle(done));
      }
      while (next_arrival_ < requests_.size() && requests_[next_arrival_].came <= now_) {
        Arrive(requests_[next_arrival_++].request);
      }
      for (; next_cancel_ < cancels_.size() && cancels_[next_cancel_].first <= now_;
           ++next_cancel_) {
        TANDEM_RETURN_IF_ERROR(engine_->Handle({now_, CancelEvent{cancels_[next_cancel_].second}}));
      }
      engine_->Advance(now_);
    }
    if (engine_->HasWork()) return InternalError("the simulation stands still with work left");
    return figures_.Summary(engine_->stats(now_));
  }

  void OnOutput(const RequestOutput& output) override { figures_.Note(output, now_); }

 private:
  std::optional<TimeNs> NextEvent() const {
    std::optional<TimeNs> next = executor_.next_finish();
    const auto earlier = [&](TimeNs at) { next = std::min(next.value_or(at), at); };
    if (next_arrival_ < requests_.size()) earlier(requests_[next_arrival_].came);
    if (next_cancel_ < cancels_.size() && engine_->HasWork()) {
      earlier(cancels_[next_cancel_].first);
    }
    return next;
  }

  void Arrive(Request request) {
    // Other nodes are not simulated: a prompt for one of them is run, and one token of an answer.
    if (request.send.has_value()) request.max_output_tokens = 1;
    request.send.reset();
    if (request.stop_tokens.size() >= static_cast<size_t>(kMaxStopTokens)) {
      request.stop_tokens.back() = kEnd;
    } else {
      request.stop_tokens.push_back(kEnd);
    }
    const Status status = engine_->Handle({now_, ArrivalEvent{request}});
    figures_.Arrived(request, status.ok());
  }

  const std::span<const RecordedRequest> requests_;
  RecordedExecutor executor_;
  std::unique_ptr<Engine> engine_;
  RunFigures figures_;
  TimeNs now_ = std::numeric_limits<TimeNs>::min();
  size_t next_arrival_ = 0;
  std::vector<std::pair<TimeNs, RequestId>> cancels_;  // by time
  size_t next_cancel_ = 0;
};

}  // namespace

Result<RunSummary> SimulateRecorded(const SchedulerConfig& config,
                                    std::span<const RecordedRequest> requests,
                                    const CostModel& cost) {
  if (cost.observations() == 0) {
    return FailedPreconditionError(
        "no step of the recorded run finished: it does not tell how "
        "long steps take");
  }
  Run run(config, requests, cost);
  return run.Go(config);
}

}  // namespace tandem
