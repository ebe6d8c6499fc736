// What: `tandem bench limits`: the machine's limits with one thread and with all.
// Not here: how they are measured (kernels/probe.h).
// Threads: one; starts and joins its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/probe.h"

namespace tandem {

struct LimitsReport {
  int64_t memory_bytes = 0;           // that were read for the memory's rate
  int64_t cache_bytes = 0;            // that each thread read for the cache's
  std::vector<MachineLimits> limits;  // one a thread count, ascending
};

// With 1 thread and with `threads` (0: the processors this process may use). Takes a second or two.
// Fails when threads cannot be started or memory is short.
Result<LimitsReport> MeasureLimitsReport(int32_t threads);

// A table with units; "absent" where the processor has no such instruction.
std::string LimitsText(const LimitsReport& report);
// The same as one JSON object, with null for absent.
std::string LimitsJson(const LimitsReport& report);

}  // namespace tandem
