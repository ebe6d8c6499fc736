// What: a progress bar on stderr for long work: drawn in a terminal, silent elsewhere.
// Not here: log lines.
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tandem {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(int64_t done, int64_t total);

 private:
  const std::string label_;
  const bool terminal_;
  SteadyClock clock_;
  TimeNs last_drawn_ = 0;
  bool drawn_ = false;
};

}  // namespace tandem
