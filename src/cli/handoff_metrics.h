// What: the numbers of the hand-off as /metrics shows them (docs/formats/http-api.md).
// Not here: counting them (messenger/, fabric/, sched/).
// Threads: pure function.
#pragma once

#include <vector>

#include "cli/messenger_host.h"
#include "core/engine_stats.h"
#include "server/metrics.h"

namespace tandem {

std::vector<ExtraMetric> HandoffMetrics(const HandoffCounts& counts, const HandoffStats& engine);

}  // namespace tandem
