#include <algorithm>
#include <utility>

#include "sched/scheduler.h"

namespace tandem {
namespace {

// A request without a deadline should start within this time of its arrival: those with deadlines
// go before it until then, and none can starve it.
constexpr TimeNs kPatience = 30 * kNsPerS;
// A request that takes so much longer than alone meets a loaded engine.
constexpr double kLoadedSlowdown = 1.33;

}  // namespace

TimeNs Scheduler::TimeInFlight(TimeNs now) const {
  if (flights_count_ == 0) return 0;
  double predicted_ns = 0;
  for (int32_t i = 0; i < flights_count_; ++i) {
    predicted_ns += cost_.Predict(FlightAt(i).terms).value_or(0);
  }
  const TimeNs passed = now - std::max(FlightAt(0).planned, last_finished_);
  return std::max<TimeNs>(0, static_cast<TimeNs>(predicted_ns) - passed);
}

int64_t Scheduler::FreeTokens() const {
  int64_t free = INT64_MAX / 2;
  for (int32_t g = 0; g < pools_.num_groups(); ++g) {
    const StateGroup& group = pools_.group(GroupId(g));
    if (group.kind != StateKind::kPaged) continue;
    const BlockPool& pool = pools_.pool(GroupId(g));
    const int64_t blocks = std::max(0, pool.available() + pool.fenced());
    free = std::min(free, blocks * group.tokens_per_block);
  }
  return free;
}

void Scheduler::DescribeState(const Sequence& s, Load* load) const {
  if (IsRunning(s.state)) {
    load->history = s.next_position;
    if (cache_ == nullptr) return;
    load->held = static_cast<int32_t>(cache_->TokensHeldByOthers(BlocksOf(s)));
  } else if (s.state == RequestState::kPreempted) {
    const PrefixHit hit = FindPrefix(s.request, s.tokens);
    load->history = static_cast<int32_t>(hit.tokens);
    load->held = static_cast<int32_t>(hit.held_tokens);
  } else {
    load->history = s.expected_cached;
    load->held = s.expected_held;
  }
}

Load Scheduler::LoadOf(const Sequence& s, TimeNs now) const {
  Load load;
  DescribeState(s, &load);
  load.prefill_tokens = s.state == RequestState::kDecode ? 0 : s.known() - load.history;
  // Those that steps in flight choose are as good as there: see TimeInFlight.
  const int32_t chosen = s.outputs() + s.samples_in_flight;
  if (chosen < s.outputs_max) {
    load.outputs =
        predictor_.lengths().Remaining(s.request.max_output_tokens, s.outputs_max, chosen);
  }
  load.reserved_tokens = TokensToReserve(s) - load.held;
  if (s.request.deadline) load.due = s.request.arrival + *s.request.deadline - now;
  return load;
}

Load Scheduler::LoadOf(const Request& request) const {
  Load load;
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  const PrefixHit hit = FindPrefix(request, request.prompt);
  // Who computes more of it runs, and will hold it.
  load.history = static_cast<int32_t>(std::max(hit.tokens, hit.pending_tokens));
  load.held = static_cast<int32_t>(std::max(hit.held_tokens, hit.pending_tokens));
  load.prefill_tokens = prompt - load.history;
  const int32_t room = max_context_tokens_ - prompt;
  const int32_t most = request.max_output_tokens.value_or(room);
  load.outputs = predictor_.lengths().Remaining(request.max_output_tokens, most, 0);
  load.reserved_tokens = int64_t{prompt} + load.outputs - load.held;
  return load;
}

size_t Scheduler::DescribePresent(TimeNs now, TimeNs start_by) {
  int64_t free_tokens = FreeTokens();
  // Those whose state is on its way hold their blocks already; they take them from here.
  for (SequenceIndex i : awaiting_kv_) free_tokens += LoadOf(store_.at(i), now).reserved_tokens;
  predictor_.Begin(now, TimeInFlight(now), free_tokens);
  for (SequenceIndex i : running_) predictor_.Add(LoadOf(store_.at(i), now), true);
  size_t before = 0;
  const auto add = [&](const Sequence& s) {
    before += s.admission != 0 || s.start_by <= start_by;
    predictor_.Add(LoadOf(s, now), false);
  };
  // Those that await a prefix will be queued again where they stood.
  const auto earlier = [this](SequenceIndex a, SequenceIndex b) {
    const Sequence& x = store_.at(a);
    const Sequence& y = store_.at(b);
    return std::pair(x.start_by, x.serial) < std::pair(y.start_by, y.serial);
  };
  // What a prefill node computes for them takes no time here.
  for (SequenceIndex i : awaiting_kv_) add(store_.at(i));
  returning_.assign(awaiting_.begin(), awaiting_.end());
  std::sort(returning_.begin(), returning_.end(), earlier);
  auto next = returning_.begin();
  for (SequenceIndex i = store_.queue_head(); i != SequenceIndex(-1); i = store_.at(i).queue_next) {
    const bool newcomer = store_.at(i).admission == 0;
    while (newcomer && next != returning_.end() && earlier(*next, i)) add(store_.at(*next++));
    add(store_.at(i));
  }
  for (; next != returning_.end(); ++next) add(store_.at(*next));
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
