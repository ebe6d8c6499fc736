// What: RunFigures: what the requests of one run experienced, from the engine's outputs;
//   RunSummary, the figures that runs are compared by.
// Not here: runs (replay.h, recorded_workload.h), how they are printed (replay_report.h).
// Threads: one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "core/engine_stats.h"
#include "core/request.h"

namespace tandem {

// Of durations; zeros when there are none.
struct Spread {
  TimeNs median = 0;
  TimeNs p99 = 0;
  TimeNs most = 0;
  static Spread Of(std::vector<TimeNs> durations);
};

struct RunSummary {
  int64_t requests = 0;  // arrived
  int64_t answered = 0;  // whole
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t refused = 0;
  TimeNs duration = 0;  // first arrival to last output
  int64_t steps = 0;
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;  // computed, recomputed ones included
  int64_t cached_tokens = 0;  // found in the prefix cache
  int64_t recomputed_tokens = 0;
  int64_t preemptions = 0;
  // Of requests that got so far.
  Spread waiting;
  Spread first_token;
  Spread answer;
  Spread gap;  // between two tokens of an answer

  int64_t unfinished() const { return requests - answered - cancelled - failed - refused; }
  double output_tokens_per_s() const {
    return duration > 0
               ? static_cast<double>(output_tokens) * kNsPerS / static_cast<double>(duration)
               : 0;
  }
};

class RunFigures {
 public:
  void Arrived(const Request& request, bool accepted);
  // An output of the engine at `now`.
  void Note(const RequestOutput& output, TimeNs now);
  // With the engine's own counters.
  RunSummary Summary(const EngineStats& stats) const;

 private:
  struct Live {
    TimeNs last_token = 0;
    bool admitted = false;
  };

  RunSummary counts_;
  bool any_ = false;
  TimeNs first_ = 0;
  TimeNs last_ = 0;
  std::unordered_map<RequestId, Live> live_;  // looked up only
  std::vector<TimeNs> waiting_, first_token_, answer_, gap_;
};

}  // namespace tandem
