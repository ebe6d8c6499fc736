#include "plan/run_figures.h"

#include <algorithm>
#include <utility>

namespace tandem {

Spread Spread::Of(std::vector<TimeNs> durations) {
  if (durations.empty()) return Spread();
  std::sort(durations.begin(), durations.end());
  const auto at = [&](double q) {
    return durations[static_cast<size_t>(q * static_cast<double>(durations.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.99), durations.back()};
}

void RunFigures::Arrived(const Request& request, bool accepted) {
  first_ = any_ ? std::min(first_, request.arrival) : request.arrival;
  last_ = any_ ? std::max(last_, request.arrival) : request.arrival;
  any_ = true;
  ++counts_.requests;
  if (accepted) {
    live_.emplace(request.id, Live());
  } else {
    ++counts_.refused;
  }
}

void RunFigures::Note(const RequestOutput& output, TimeNs now) {
  Live& live = live_[output.id];
  last_ = std::max(last_, now);
  const TimeNs arrival = output.times.arrival;
  if (!output.tokens.empty()) {
    if (!live.admitted) {
      waiting_.push_back(output.times.admitted - arrival);
      first_token_.push_back(output.times.first_token - arrival);
      counts_.cached_tokens += output.cached_tokens;
      live.admitted = true;
    } else {
      gap_.push_back(now - live.last_token);
    }
    live.last_token = now;
    counts_.output_tokens += static_cast<int64_t>(output.tokens.size());
  }
  if (!output.finish) return;
  live_.erase(output.id);
  switch (*output.finish) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      ++counts_.answered;
      answer_.push_back(now - arrival);
      break;
    case FinishReason::kCancelled: ++counts_.cancelled; break;
    case FinishReason::kFailed: ++counts_.failed; break;
  }
}

RunSummary RunFigures::Summary(const EngineStats& stats) const {
  RunSummary s = counts_;
  s.duration = last_ - first_;
  s.steps = stats.steps;
  s.prompt_tokens = stats.prompt_tokens;
  s.recomputed_tokens = stats.recomputed_tokens;
  s.preemptions = stats.preemptions;
  s.waiting = Spread::Of(waiting_);
  s.first_token = Spread::Of(first_token_);
  s.answer = Spread::Of(answer_);
  s.gap = Spread::Of(gap_);
  return s;
}

}  // namespace tandem
