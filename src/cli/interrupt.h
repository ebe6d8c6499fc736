// What: Ctrl-C and termination requests as a counter that a waiting loop can look at.
// Not here: what they mean to a command.
// Threads: constructed on the thread whose waiting a signal shall interrupt, which must outlive it;
//   Count from any.
#pragma once

#include <cstdint>

namespace tandem {

// While one exists, SIGINT (and SIGTERM) are counted instead of what they did before. System calls
// that wait are interrupted. At most one at a time.
class InterruptCounter {
 public:
  // kInterrupt: Ctrl-C only; a termination request ends the process as usual.
  enum class Signals { kInterrupt, kInterruptAndTerminate };
  explicit InterruptCounter(Signals signals = Signals::kInterruptAndTerminate);
  ~InterruptCounter();
  InterruptCounter(const InterruptCounter&) = delete;
  InterruptCounter& operator=(const InterruptCounter&) = delete;

  // Signals since construction or the last Reset.
  static int32_t Count();
  static void Reset();

 private:
  const bool terminate_;
};

}  // namespace tandem
