// What: FinishPredictor: when a request that arrives now would have its first token and its end, if
//   what runs and waits goes on as it does (spec S8); OutputLengths: how long answers turn out to
//   be, compared with what they were allowed.
// Not here: the decision (scheduler.cc), what steps cost (cost_model.h).
// Threads: the engine's thread. A function of its calls.
// Cost: Run O((running + waiting) * running) with small constants; nothing is allocated once the
//   buffers have grown. OutputLengths: O(1) per observation, O(classes) per question.
// Based on: a fluid simulation of the chunked step loop: between two events (a prompt is done, an
//   answer ends) every step is alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "sched/cost_model.h"

namespace tandem {

struct SchedulerConfig;

// Measured distribution of answers' lengths, older ones fading. With a stated limit the share of
// the limit that is used is what is measured: whoever asks for 16 tokens is no sign of what one who
// asks for 4,000 gets.
class OutputLengths {
 public:
  void Observe(int32_t outputs, std::optional<int32_t> limit);
  // Outputs still to come of a request that has `so_far` and may have `most`: exceeded by one in
  // ten that got so far. `most - so_far` before enough answers have been measured. At least 1.
  int32_t Remaining(std::optional<int32_t> limit, int32_t most, int32_t so_far) const;

 private:
  static constexpr size_t kClasses = 64;
  struct Histogram {
    std::array<double, kClasses> weights{};
    double total = 0;
    void Add(size_t index);
    // The class that the given share of those in class `from` or above do not exceed.
    size_t Quantile(size_t from) const;
  };
  static size_t ShareClass(double share);
  static size_t LengthClass(int32_t outputs);
  static int32_t LengthOf(size_t index);

  Histogram shares_;   // of the limit, where one was stated
  Histogram lengths_;  // where none was
};

// What a request has before it.
struct Load {
  int32_t prefill_tokens = 0;   // to run before the next output
  int32_t history = 0;          // tokens before these
  int32_t outputs = 0;          // still to come; 0: ends with the steps in flight
  int32_t held = 0;             // of the history, in blocks that others hold as well
  int64_t reserved_tokens = 0;  // own ones: what its end gives back, or its start will take
  std::optional<TimeNs> due;    // of its end, from now
};

// Durations from now.
struct Prediction {
  TimeNs first_token = 0;
  TimeNs finish = 0;
  int32_t others_late = 0;  // others that end after they are due
};

class FinishPredictor {
 public:
  explicit FinishPredictor(const SchedulerConfig& config);

  OutputLengths& lengths() { return lengths_; }
  const OutputLengths& lengths() const { return lengths_; }

  void ObserveStep(const StepTerms& terms);
  // A request has entered the queue: its prompt is work, and such work will come again.
  void Accepted(const CostModel& cost, const Load& load, TimeNs now);

  // Describes the present: all that runs in admission order, then all that waits in its order, as
  // it will be `in_flight` from now, when the steps that are submitted have completed. The pools
  // have room for `free_tokens` beyond what is promised to those that run.
  void Begin(TimeNs now, TimeNs in_flight, int64_t free_tokens);
  void Add(const Load& load, bool running);
  // What becomes of a request with `place` of those that wait before it, and of those others. None
  // while a step cannot be predicted.
  std::optional<Prediction> Run(const CostModel& cost, const Load& self, size_t place);
  // How many are late without it.
  int32_t LateAlready(const CostModel& cost);
  // The same with nobody else.
  std::optional<Prediction> Alone(const CostModel& cost, const Load& self);

 private:
  class Simulation;
  struct Decode {
    double left = 0;     // outputs
    double context = 0;  // tokens
    int64_t reserved = 0;
    std::optional<TimeNs> due;
    bool self = false;
  };

  const bool whole_prompts_;
  const bool whole_groups_;
  const int32_t max_running_;
  const int32_t chunk_tokens_;
  const int32_t budget_tokens_;
  const TimeNs itl_target_;
  OutputLengths lengths_;
  double mean_rows_ = 0;   // decode rows per step that has any, fading
  double work_share_ = 0;  // of the time, spent on prompts of accepted requests; fading with time
  TimeNs work_at_ = 0;

  // The present; reused.
  std::vector<Load> loads_;  // running, then waiting
  size_t num_running_ = 0;
  TimeNs in_flight_ = 0;
  int64_t free_tokens_ = 0;
  size_t self_ = SIZE_MAX;  // of loads_, the one in question
  std::vector<Load> prefills_;
  std::vector<Decode> decodes_;
};

}  // namespace tandem
