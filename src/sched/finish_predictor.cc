#include "sched/finish_predictor.h"

#include <algorithm>
#include <cmath>

#include "sched/scheduler_config.h"

namespace tandem {
namespace {

// Answers that are measured before their lengths count: fewer say little about one in ten.
constexpr double kLeastAnswers = 32;
// An answer's weight halves in about 700 later ones.
constexpr double kLengthFade = 0.999;
constexpr double kLengthQuantile = 0.9;
// Of the mean number of decode rows, per step.
constexpr double kRowsFade = 0.98;
// Over which the work of arrivals is averaged: longer than the gaps between arrivals of a loaded
// server, short enough to forget a burst.
constexpr double kWorkWindowNs = 10.0 * kNsPerS;
// Above it prompts would stop decodes altogether; the queue's own terms say so then.
constexpr double kMaxWorkShare = 0.9;

double PrefillWork(const LinearCost& law, double tokens, double history) {
  return law.token_ns * tokens + law.pair_ns * tokens * (history + (tokens + 1) / 2);
}

}  // namespace

void OutputLengths::Histogram::Add(size_t index) {
  for (double& w : weights) w *= kLengthFade;
  weights[index] += 1;
  total = total * kLengthFade + 1;
}

size_t OutputLengths::Histogram::Quantile(size_t from) const {
  double above = 0;
  for (size_t i = from; i < kClasses; ++i) above += weights[i];
  const double wanted = above * kLengthQuantile;
  double sum = 0;
  for (size_t i = from; i < kClasses; ++i) {
    sum += weights[i];
    if (sum >= wanted && sum > 0) return i;
  }
  return kClasses - 1;
}

// Sixty-three classes of equal width and one for those that use the limit up.
size_t OutputLengths::ShareClass(double share) {
  const double index = std::floor(share * (kClasses - 1));
  return static_cast<size_t>(std::clamp(index, 0.0, static_cast<double>(kClasses - 1)));
}

// Three classes per power of two, up to 2^21.
size_t OutputLengths::LengthClass(int32_t outputs) {
  const double index = std::floor(3 * std::log2(std::max(1.0, static_cast<double>(outputs))));
  return static_cast<size_t>(std::min(index, static_cast<double>(kClasses - 1)));
}
int32_t OutputLengths::LengthOf(size_t index) {
  return static_cast<int32_t>(std::exp2(static_cast<double>(index + 1) / 3));
}

void OutputLengths::Observe(int32_t outputs, std::optional<int32_t> limit) {
  if (limit) {
    shares_.Add(ShareClass(static_cast<double>(outputs) / *limit));
  } else {
    lengths_.Add(LengthClass(outputs));
  }
}

int32_t OutputLengths::Remaining(std::optional<int32_t> limit, int32_t most, int32_t so_far) const {
  const Histogram& measured = limit ? shares_ : lengths_;
  int32_t length = most;
  if (measured.total >= kLeastAnswers) {
    if (limit) {
      const size_t i = measured.Quantile(ShareClass(static_cast<double>(so_far) / *limit));
      length = static_cast<int32_t>(
          std::ceil(static_cast<double>(i + 1) / (kClasses - 1) * static_cast<double>(*limit)));
    } else {
      length = LengthOf(measured.Quantile(LengthClass(so_far)));
    }
  }
  return std::max(1, std::min(length, most) - so_far);
}

// The step loop between events, with answers and prompts as real numbers.
class FinishPredictor::Simulation {
 public:
  Simulation(FinishPredictor* p, const CostModel& cost, double work_share, double least_rows)
      : p_(*p),
        cost_(cost),
        law_(cost.prefill()),
        slowed_(1 / (1 - work_share)),
        least_rows_(least_rows),
        free_tokens_(p->free_tokens_),
        now_ns_(static_cast<double>(p->in_flight_)) {
    p_.prefills_.clear();
    p_.decodes_.clear();
  }

  // Runs p_.loads_ until nobody is left whose end matters. None when the cost model cannot tell.
  std::optional<Prediction> Run() {
    for (size_t i = 0; i < p_.loads_.size(); ++i) {
      matter_ += i == p_.self_ || p_.loads_[i].due.has_value();
    }
    size_t next = 0;
    for (; next < p_.num_running_; ++next) Enter(next);
    for (;;) {
      while (next < p_.loads_.size() && MayEnter(p_.loads_[next])) Enter(next++);
      if (matter_ == 0) return result_;
      if (!AdvanceToEvent()) return std::nullopt;
    }
  }

 private:
  bool MayEnter(const Load& load) const {
    if (open_ == 0) return true;  // alone it fits
    return !p_.whole_groups_ && open_ < p_.max_running_ && load.reserved_tokens <= free_tokens_;
  }

  void Enter(size_t index) {
    const Load& load = p_.loads_[index];
    ++open_;
    if (index >= p_.num_running_) free_tokens_ -= load.reserved_tokens;
    if (load.prefill_tokens == 0 && load.outputs == 0) {
      return Ended(load.reserved_tokens, load.due, false);
    }
    if (load.prefill_tokens == 0) return StartDecode(load, index == p_.self_, load.outputs);
    if (index == p_.self_) self_place_ = p_.prefills_.size();
    p_.prefills_.push_back(load);
  }

  void StartDecode(const Load& load, bool self, double left) {
    Decode d;
    d.left = left;
    d.context = static_cast<double>(load.history) + load.prefill_tokens;
    d.reserved = load.reserved_tokens;
    d.due = load.due;
    d.self = self;
    p_.decodes_.push_back(d);
    context_ += d.context;
  }

  double FewestLeft() const {
    double least = INFINITY;
    for (const Decode& d : p_.decodes_) least = std::min(least, d.left);
    return least;
  }

  // A step's tokens of the prompt that is next.
  double ChunkTokens(const Load& load) const {
    if (p_.whole_prompts_) return std::max(1, load.prefill_tokens);
    const auto rows = static_cast<int32_t>(p_.decodes_.size());
    int32_t chunk = std::max(1, std::min(p_.chunk_tokens_, p_.budget_tokens_ - rows));
    if (p_.itl_target_ > 0 && rows > 0) {
      const StepTerms terms{rows, static_cast<int64_t>(context_), 0, 0};
      const double limit = static_cast<double>(p_.itl_target_) / cost_.Overrun();
      chunk = std::max(std::min(chunk, kLeastPrefillTokens),
                       cost_.LargestChunk(terms, load.history, chunk, limit));
    }
    return chunk;
  }

  // Until the next prompt is done or the next answer ends. False when the cost is unknown.
  bool AdvanceToEvent() {
    return first_ < p_.prefills_.size() ? AdvanceWithPrompt() : AdvanceDecodes();
  }

  bool AdvanceWithPrompt() {
    if (law_.At(1, 1) <= 0) return false;
    Load& load = p_.prefills_[first_];
    const double chunk = ChunkTokens(load);
    double steps = load.prefill_tokens / chunk;
    // The last step of a prompt takes the next prompt's first tokens along, if there is one.
    if (first_ + 1 == p_.prefills_.size()) steps = std::ceil(steps);
    const double advance = std::min(steps, std::max(1.0, FewestLeft()));
    const bool done = advance >= steps;
    const double tokens = done ? load.prefill_tokens : std::floor(advance * chunk);
    const auto rows = static_cast<double>(p_.decodes_.size());
    now_ns_ += advance * law_.At(rows, context_ + rows * advance / 2);
    now_ns_ += PrefillWork(law_, tokens, load.history);
    Decoded(advance);
    if (!done) {
      load.prefill_tokens -= static_cast<int32_t>(tokens);
      load.history += static_cast<int32_t>(tokens);
      return true;
    }
    const bool self = first_ == self_place_;
    ++first_;
    if (self) result_.first_token = static_cast<TimeNs>(now_ns_);
    if (load.outputs > 1) {
      StartDecode(load, self, load.outputs - 1);
    } else {
      Ended(load.reserved_tokens, load.due, self);
    }
    return true;
  }

  bool AdvanceDecodes() {
    const double steps = FewestLeft();
    const double rows = std::max(least_rows_, static_cast<double>(p_.decodes_.size()));
    const double context = context_ * rows / static_cast<double>(p_.decodes_.size());
    const StepTerms terms{static_cast<int32_t>(rows),
                          static_cast<int64_t>(context + rows * steps / 2), 0, 0};
    const std::optional<double> step_ns = cost_.Predict(terms);
    if (!step_ns) return false;
    // Prompts that will yet come need a place to run beside these.
    const bool others_may_come = !p_.whole_groups_ && open_ < p_.max_running_;
    now_ns_ += steps * *step_ns * (others_may_come ? slowed_ : 1);
    Decoded(steps);
    return true;
  }

  void Decoded(double steps) {
    for (size_t i = 0; i < p_.decodes_.size();) {
      Decode& d = p_.decodes_[i];
      d.left -= steps;
      d.context += steps;
      context_ += steps;
      if (d.left > 1e-6) {
        ++i;
        continue;
      }
      context_ -= d.context;
      Ended(d.reserved, d.due, d.self);
      d = p_.decodes_.back();
      p_.decodes_.pop_back();
    }
  }

  void Ended(int64_t reserved, std::optional<TimeNs> due, bool self) {
    free_tokens_ += reserved;
    --open_;
    matter_ -= self || due.has_value();
    const auto at = static_cast<TimeNs>(now_ns_);
    if (self) {
      result_.finish = at;
    } else {
      result_.others_late += due && at > *due;
    }
  }

  FinishPredictor& p_;
  const CostModel& cost_;
  const LinearCost law_;
  const double slowed_;
  const double least_rows_;
  int64_t free_tokens_;
  int32_t open_ = 0;    // entered and not ended
  int32_t matter_ = 0;  // not ended, and either in question or due
  size_t first_ = 0;    // of the prompts, the first that is not done
  size_t self_place_ = SIZE_MAX;
  double context_ = 0;  // of all decodes
  double now_ns_;
  Prediction result_;
};

FinishPredictor::FinishPredictor(const SchedulerConfig& config)
    : whole_prompts_(config.policy != Policy::kChunked),
      whole_groups_(config.policy == Policy::kStatic),
      max_running_(config.max_running),
      chunk_tokens_(config.chunk_tokens),
      budget_tokens_(config.token_budget),
      itl_target_(config.policy == Policy::kChunked ? config.itl_target : 0) {}

void FinishPredictor::ObserveStep(const StepTerms& terms) {
  if (terms.decode_rows == 0) return;
  mean_rows_ = mean_rows_ == 0 ? terms.decode_rows
                               : kRowsFade * mean_rows_ + (1 - kRowsFade) * terms.decode_rows;
}

void FinishPredictor::Accepted(const CostModel& cost, const Load& load, TimeNs now) {
  Begin(now, 0, 0);
  work_share_ += PrefillWork(cost.prefill(), load.prefill_tokens, load.history) / kWorkWindowNs;
}

void FinishPredictor::Begin(TimeNs now, TimeNs in_flight, int64_t free_tokens) {
  work_share_ *=
      std::exp(-static_cast<double>(std::max<TimeNs>(0, now - work_at_)) / kWorkWindowNs);
  work_at_ = std::max(now, work_at_);
  loads_.clear();
  num_running_ = 0;
  in_flight_ = in_flight;
  free_tokens_ = free_tokens;
}

void FinishPredictor::Add(const Load& load, bool running) {
  loads_.push_back(load);
  num_running_ += running;
}

std::optional<Prediction> FinishPredictor::Run(const CostModel& cost, const Load& self,
                                               size_t place) {
  self_ = num_running_ + place;
  loads_.insert(loads_.begin() + static_cast<std::ptrdiff_t>(self_), self);
  const double rows = std::min(mean_rows_, static_cast<double>(loads_.size()));
  const auto prediction = Simulation(this, cost, std::min(work_share_, kMaxWorkShare), rows).Run();
  loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(self_));
  self_ = SIZE_MAX;
  return prediction;
}

int32_t FinishPredictor::LateAlready(const CostModel& cost) {
  const double rows = std::min(mean_rows_, static_cast<double>(loads_.size() + 1));
  const auto prediction = Simulation(this, cost, std::min(work_share_, kMaxWorkShare), rows).Run();
  return prediction ? prediction->others_late : 0;
}

std::optional<Prediction> FinishPredictor::Alone(const CostModel& cost, const Load& self) {
  loads_.assign(1, self);
  num_running_ = 0;
  in_flight_ = 0;
  free_tokens_ = INT64_MAX / 2;
  self_ = 0;
  const auto prediction = Simulation(this, cost, 0, 1).Run();
  loads_.clear();
  self_ = SIZE_MAX;
  return prediction;
}

}  // namespace tandem
