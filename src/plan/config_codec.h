// What: SchedulerConfig as bytes, for the head of an event log.
// Not here: the other records (event_log.h).
// Threads: pure functions.
#pragma once

#include "base/status.h"
#include "plan/byte_codec.h"
#include "sched/scheduler_config.h"

namespace tandem {

// All but the identity and the key of the prefix cache.
void WriteConfig(const SchedulerConfig& config, ByteWriter* out);

// DATA_LOSS for bytes that are no configuration, INVALID_ARGUMENT for one that no engine accepts,
// OUT_OF_RANGE for one whose tables would take more memory than any machine's scheduler needs.
Result<SchedulerConfig> ReadConfig(ByteReader* in);

}  // namespace tandem
