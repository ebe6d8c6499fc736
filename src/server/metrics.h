// What: the server's own counters and latency histograms, and the Prometheus text of them and of
//   the engine's.
// Not here: where the numbers come from (answer.h, core/engine_stats.h).
// Threads: every method from any thread.
// Cost: an observation takes a mutex and a search over some twenty bounds; what the engine's thread
//   reports, an atomic addition.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "core/engine_stats.h"
#include "core/request.h"
#include "server/generation.h"

namespace tandem {

// Counts of observations by upper bound, as Prometheus has them. Threads: belongs to one thread.
class Histogram {
 public:
  // Increasing upper bounds; +Inf is implied.
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}
  void Observe(double value);

  std::span<const double> bounds() const { return bounds_; }
  // Observations in (bound i-1, bound i]; the last entry is what is above all bounds.
  std::span<const int64_t> counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// How an answer ended, as the label finished_reason says it.
enum class AnswerEnd { kStop, kLength, kAbort, kError };

// A number that is counted elsewhere: by what moves state between nodes, for instance.
struct ExtraMetric {
  std::string name;         // those of one name follow each other, and have one type and help
  bool is_counter = false;  // else a gauge
  std::string help;
  double value = 0;
  std::string labels;  // beside the model's name: `,state="up"`, or empty
};

class ServerMetrics final : public GenerationObserver {
 public:
  ServerMetrics();

  void OnPrompt(int32_t prompt_tokens, int32_t cached_tokens) override;
  void OnEnd(FinishReason reason) override;

  void ObserveFirstToken(TimeNs after_arrival) TANDEM_EXCLUDES(mutex_);
  // Between two deliveries of tokens of one answer.
  void ObserveInterToken(TimeNs gap) TANDEM_EXCLUDES(mutex_);
  void ObserveEnd(AnswerEnd end, TimeNs after_arrival) TANDEM_EXCLUDES(mutex_);
  // Of a choice that has ended by itself: what the engine says of its phases, and its sizes. A time
  // that is 0 was not reached.
  void ObserveTimes(const RequestTimes& times, int32_t prompt_tokens, int32_t completion_tokens)
      TANDEM_EXCLUDES(mutex_);
  // An API error was answered; `code` is from a fixed set.
  void CountError(std::string_view code) TANDEM_EXCLUDES(mutex_);

  // The whole exposition (text format 0.0.4).
  std::string Render(const EngineStats& engine, std::string_view model_name, int32_t connections,
                     std::span<const ExtraMetric> extra = {}) const TANDEM_EXCLUDES(mutex_);

 private:
  std::atomic<int64_t> prompt_computed_{0};  // tokens
  std::atomic<int64_t> prompt_cached_{0};
  std::atomic<int64_t> finished_{0};  // requests of the engine
  std::atomic<int64_t> cancelled_{0};

  mutable Mutex mutex_;
  Histogram first_token_s_ TANDEM_GUARDED_BY(mutex_);
  Histogram inter_token_s_ TANDEM_GUARDED_BY(mutex_);
  Histogram end_to_end_s_ TANDEM_GUARDED_BY(mutex_);
  Histogram queue_s_ TANDEM_GUARDED_BY(mutex_);
  Histogram prefill_s_ TANDEM_GUARDED_BY(mutex_);
  Histogram decode_s_ TANDEM_GUARDED_BY(mutex_);
  Histogram prompt_tokens_ TANDEM_GUARDED_BY(mutex_);
  Histogram completion_tokens_ TANDEM_GUARDED_BY(mutex_);
  std::array<int64_t, 4> ends_ TANDEM_GUARDED_BY(mutex_){};
  std::map<std::string, int64_t, std::less<>> errors_ TANDEM_GUARDED_BY(mutex_);
};

// Backslash, quote and line feed escaped, as a label value needs.
std::string EscapeLabel(std::string_view value);

}  // namespace tandem
