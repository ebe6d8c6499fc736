// What: time as a value (TimeNs) and two sources of it: the machine's steady clock and one that
//   tests and the simulator move by hand.
// Not here: calendar time of log lines and HTTP headers.
// Threads: Clock::Now from any thread; ManualClock is moved by one.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace tandem {

// Nanoseconds since an arbitrary start, never decreasing. Differences are durations in ns.
using TimeNs = int64_t;

inline constexpr TimeNs kNsPerUs = 1'000;
inline constexpr TimeNs kNsPerMs = 1'000'000;
inline constexpr TimeNs kNsPerS = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimeNs Now() const override;
};

class ManualClock final : public Clock {
 public:
  TimeNs Now() const override { return now_.load(std::memory_order_relaxed); }
  void Advance(TimeNs by) {
    TANDEM_CHECK_GE(by, 0);
    now_.fetch_add(by, std::memory_order_relaxed);
  }

 private:
  std::atomic<TimeNs> now_{0};
};

}  // namespace tandem
