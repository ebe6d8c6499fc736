// What: what a Messenger is given: what it may do, limits and times, the memory of the state, and
//   what it calls; and its counters.
// Not here: the protocol (protocol.h), the state machines (handoff_state.h).
// Threads: values; the interfaces are called on the messenger's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/handoff_port.h"
#include "core/layer_counter.h"
#include "fabric/transfer_engine.h"
#include "messenger/control_link.h"
#include "messenger/handoff_format.h"

namespace tandem {

struct MessengerConfig {
  bool prefill = false;  // computes prompts for decode nodes
  bool decode = false;   // fetches prompts from prefill nodes
  HandoffFormat format;
  uint64_t instance = 0;  // a random number of this process

  TimeNs heartbeat_interval = 1 * kNsPerS;
  int32_t heartbeat_misses = 3;
  TimeNs greeting_timeout = 10 * kNsPerS;  // from a link that is up to a peer that is ready
  // A fetch ends when nothing is heard of it for so long: a place in the prefill node's queue, then
  // each chunk.
  TimeNs progress_timeout = 30 * kNsPerS;
  TimeNs fetch_timeout = 600 * kNsPerS;     // a fetch as a whole
  TimeNs stop_timeout = 2 * kNsPerS;        // cancel or done, until the fetch is over or fenced off
  TimeNs write_timeout = 10 * kNsPerS;      // one transfer
  TimeNs reconnect_first = 100 * kNsPerMs;  // doubles up to:
  TimeNs reconnect_most = 10 * kNsPerS;
  TimeNs reconnect_refused = 30 * kNsPerS;  // another model, format or secret
  TimeNs layer_poll = 50 * kNsPerUs;        // how often the layer counter is looked at

  int32_t pages_per_write = 256;
  int32_t writes_in_flight = 16;  // per decode node
  int32_t sends_per_peer = 1024;
  int32_t decode_peers = 256;
};

// Starts and stops the computation of prompts for decode nodes. Behind it: the engine of this node.
class PrefillJobs {
 public:
  virtual ~PrefillJobs() = default;
  // The state of `tokens` is wanted, in order, in ChunkSubmitted of this id. On an error the job
  // has not begun and nothing of it comes. A job that has begun gets to the chunk that reaches the
  // end, or to SendFailed, always, also after Cancel; whoever runs it sees to that where the engine
  // does not (a request that it refused later). SendFailed twice, or for a send that is over, is
  // ignored.
  virtual Status Start(SendId id, std::vector<TokenId> tokens, std::string cache_salt,
                       TimeNs deadline) = 0;
  // Nobody wants the rest: SendFailed should come soon. Unknown and ended jobs are ignored.
  virtual void Cancel(SendId id) = 0;
};

// One layer of one chunk on its way: for a picture of computation and transfer.
struct LayerTiming {
  SendId send;
  StepId step;
  int32_t layer = 0;  // of the model
  int32_t pages = 0;
  int64_t bytes = 0;
  TimeNs ready = 0;  // seen in the layer counter
  TimeNs first_post = 0;
  TimeNs last_done = 0;
};

struct MessengerParts {
  ControlLink* control = nullptr;
  TransferEngine* fabric = nullptr;
  const Clock* clock = nullptr;
  // Per group: the pool's memory, [num_blocks, BlockBytes()]. Outlives the messenger.
  std::vector<std::span<std::byte>> pools;
  PrefillJobs* jobs = nullptr;           // with config.prefill
  const LayerCounter* layers = nullptr;  // with config.prefill
  std::function<void(const LayerTiming&)> on_layer = {};
};

// Counters since the start; those that say "now" are gauges.
struct MessengerStats {
  // Decode side.
  int64_t fetches = 0;
  int64_t fetches_arrived = 0;
  int64_t fetches_failed = 0;
  int64_t fetches_cancelled = 0;
  int64_t fetches_elsewhere = 0;  // begun after the same request had failed at another node
  int64_t pages_expected = 0;
  int64_t pages_arrived = 0;
  int64_t bytes_arrived = 0;
  TimeNs fetch_ns = 0;  // order to arrival, summed over those that arrived
  int64_t fences = 0;   // regions closed because a peer did not confirm, or was lost
  int64_t links_lost = 0;
  int32_t fetches_now = 0;
  int32_t quarantined_blocks_now = 0;  // nobody wants their content, and it may still be written
  int32_t nodes_waiting_now = 0;       // until the next attempt
  int32_t nodes_connecting_now = 0;    // a connection is being made, or the two greet each other
  int32_t nodes_ready_now = 0;
  int32_t nodes_leaving_now = 0;

  // Prefill side.
  int64_t sends = 0;
  int64_t sends_done = 0;
  int64_t sends_failed = 0;
  int64_t sends_cancelled = 0;
  int64_t chunks = 0;
  int64_t writes = 0;
  int64_t pages_written = 0;  // delivered
  int64_t bytes_written = 0;
  TimeNs hidden_ns = 0;   // of sends that were done: a write was on its way and a layer to come
  TimeNs visible_ns = 0;  // and from the last layer to the last write's end
  int32_t sends_now = 0;
  int32_t decode_peers_now = 0;

  // Both.
  int64_t links_refused = 0;      // another version, model, format
  int64_t protocol_errors = 0;    // frames that no node of this version sends
  int64_t heartbeats_missed = 0;  // peers given up for silence
  FabricStats fabric;             // expectations met and late, immediates stale, writes
};

}  // namespace tandem
