// What: counters of a TransferEngine, for /metrics and benches.
// Not here: how they are named outside (server/metrics.h).
// Threads: values.
#pragma once

#include <cstdint>

namespace tandem {

struct FabricStats {
  int64_t transfers = 0;         // begun
  int64_t transfers_failed = 0;  // ended with an error
  int64_t pieces_written = 0;    // delivered
  int64_t bytes_written = 0;
  int64_t messages_sent = 0;
  int64_t messages_received = 0;
  int64_t retries = 0;               // posts that the provider put off
  int64_t expectations_met = 0;      // all pieces in time
  int64_t expectations_late = 0;     // deadline passed
  int64_t immediates_stale = 0;      // of an abandoned expectation or an earlier generation
  int64_t immediates_duplicate = 0;  // a piece that had come already
  int64_t immediates_unknown = 0;    // no such slot, or beyond its pieces
  int32_t peers_connecting = 0;
  int32_t peers_up = 0;
  int32_t peers_dead = 0;  // not removed yet
};

}  // namespace tandem
