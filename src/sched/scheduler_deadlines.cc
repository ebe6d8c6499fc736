#include <algorithm>

#include "sched/scheduler.h"

namespace tandem {
namespace {

// A request without a deadline should start within this time of its arrival: those with deadlines
// go before it until then, and none can starve it.
constexpr TimeNs kPatience = 30 * kNsPerS;
// A request that takes so much longer than alone meets a loaded engine.
constexpr double kLoadedSlowdown = 1.33;

}  // namespace

Load Scheduler::LoadOf(const Sequence& s, TimeNs now) const {
  Load load;
  load.history = s.next_position;
  load.prefill_tokens = s.state == RequestState::kDecode ? 0 : s.known() - s.next_position;
  load.outputs =
      predictor_.lengths().Remaining(s.request.max_output_tokens, s.outputs_max, s.outputs());
  load.reserved_tokens = TokensToReserve(s);
  if (s.request.deadline) load.due = s.request.arrival + *s.request.deadline - now;
  return load;
}

Load Scheduler::LoadOf(const Request& request) const {
  Load load;
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  load.history = static_cast<int32_t>(FindPrefix(request, request.prompt).tokens);
  load.prefill_tokens = prompt - load.history;
  const int32_t room = max_context_tokens_ - prompt;
  const int32_t most = request.max_output_tokens.value_or(room);
  load.outputs = predictor_.lengths().Remaining(request.max_output_tokens, most, 0);
  load.reserved_tokens = int64_t{prompt} + load.outputs;
  return load;
}

size_t Scheduler::DescribePresent(TimeNs now, TimeNs start_by) {
  predictor_.Begin(now);
  for (SequenceIndex i : running_) predictor_.Add(LoadOf(store_.at(i), now), true);
  size_t before = 0;
  for (SequenceIndex i = store_.queue_head(); i != SequenceIndex(-1); i = store_.at(i).queue_next) {
    const Sequence& s = store_.at(i);
    before += s.admission != 0 || s.start_by <= start_by;
    predictor_.Add(LoadOf(s, now), false);
  }
  return before;
}

Status Scheduler::CheckDeadlines(const Request& request, TimeNs now, TimeNs* start_by) {
  *start_by = now + kPatience;
  if (!request.deadline && !request.ttft_target) return OkStatus();
  const Load load = LoadOf(request);
  const std::optional<Prediction> alone = predictor_.Alone(cost_, load);
  TimeNs latest = INT64_MAX;
  if (request.deadline) latest = *request.deadline - (alone ? alone->finish : 0);
  if (request.ttft_target) {
    latest = std::min(latest, *request.ttft_target - (alone ? alone->first_token : 0));
  }
  *start_by = request.arrival + latest;
  if (!alone) return OkStatus();
  const size_t place = DescribePresent(now, *start_by);
  const std::optional<Prediction> predicted = predictor_.Run(cost_, load, place);
  if (!predicted) return OkStatus();
  const Status status = JudgePrediction(request, now, *alone, *predicted);
  if (latest >= now - request.arrival) share_.Observe(alone->finish, status.ok());
  return status;
}

Status Scheduler::JudgePrediction(const Request& request, TimeNs now, const Prediction& alone,
                                  const Prediction& predicted) {
  const TimeNs passed = now - request.arrival;
  const auto refuse = [&](bool first) {
    refusal_ = DeadlineRefusal{first, passed + (first ? predicted.first_token : predicted.finish),
                               first ? *request.ttft_target : *request.deadline};
    return ResourceExhaustedError(
        "the {} is predicted after {} ms, {} ms are allowed; ask elsewhere, or allow more time",
        first ? "first token" : "answer", refusal_->predicted / kNsPerMs,
        refusal_->allowed / kNsPerMs);
  };
  if (request.ttft_target && passed + predicted.first_token > *request.ttft_target) {
    return refuse(true);
  }
  if (request.deadline && passed + predicted.finish > *request.deadline) return refuse(false);
  // In time itself, but at the cost of one that has been accepted.
  if (predicted.others_late > 0 && predicted.others_late > predictor_.LateAlready(cost_)) {
    return refuse(!request.deadline.has_value());
  }
  const bool loaded =
      static_cast<double>(predicted.finish) > kLoadedSlowdown * static_cast<double>(alone.finish);
  if (loaded && share_.Exceeded(alone.finish)) return refuse(!request.deadline.has_value());
  return OkStatus();
}

}  // namespace tandem
