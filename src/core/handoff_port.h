// What: the seam between the engine and whoever moves state between nodes (messenger/): what the
//   engine orders, and what comes back as events. A decode node fetches the state of a prompt; a
//   prefill node computes it and sends it on.
// Not here: peers, protocol, bytes (messenger/); which requests are fetched (sched/).
// Threads: HandoffPort is called on the engine's thread and must not block. Events enter the engine
//   through its one queue.
// Invariants: a fetch ends with exactly one kFetchDrained, which comes after its kFetchArrived or
//   kFetchFailed, or after CancelFetch; until then its blocks may be written from outside. A send
//   ends with exactly one kSendDrained; until then its blocks may be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace tandem {

// One attempt to get the state of a prompt from a prefill node; never reused.
using FetchId = StrongId<struct FetchIdTag, uint64_t>;
// One prompt that this node computes for a decode node; chosen by the messenger; never reused.
using SendId = StrongId<struct SendIdTag, uint64_t>;

struct FetchOrder {
  FetchId id;
  RequestId request;
  std::vector<TokenId> tokens;  // the positions whose state is wanted: a prompt without its last
  // The state of positions [0, have) is here; a multiple of every group's tokens per block, and
  // less than tokens.size().
  int32_t have = 0;
  // Per group, in order of position: the blocks of positions [have, tokens.size()).
  std::vector<std::vector<BlockId>> blocks;
  std::string cache_salt;
};

// Positions [begin, end) of a send are computed by `step`, which has been submitted; their state
// becomes complete layer by layer (layer_counter.h). StepId(0): it was there before (prefix cache).
struct SendChunk {
  SendId id;
  StepId step;
  int32_t begin = 0;
  int32_t end = 0;
  // Per group: the blocks of all positions [begin, end), with the block that `begin` lies in.
  std::vector<std::vector<BlockId>> blocks;
};

class HandoffPort {
 public:
  virtual ~HandoffPort() = default;

  virtual void Fetch(FetchOrder order) = 0;
  // The request has ended, or goes on without; the fetch stops, kFetchDrained follows. Unknown ids
  // are ignored: the fetch may have ended meanwhile.
  virtual void CancelFetch(FetchId id) = 0;

  // Chunks come in order and without gaps, the first from position 0, the last up to the prompt's
  // end.
  virtual void ChunkSubmitted(SendChunk chunk) = 0;
  // No further chunk comes: the request was cancelled or its step failed. kSendDrained follows. Not
  // called for a request that was refused on arrival, or after kSendDrained.
  virtual void SendFailed(SendId id, const Status& status) = 0;
};

struct HandoffEvent {
  enum class Kind : uint8_t {
    kFetchArrived,  // the whole state is in the blocks
    kFetchFailed,   // it will not come (status); the blocks may still be written
    kFetchDrained,  // nothing is written any more
    kSendDrained,   // the blocks are not read any more; ok: the whole state has been delivered
    kPeers,         // `ready_peers` prefill nodes take requests now
  };
  Kind kind = Kind::kPeers;
  FetchId fetch;
  SendId send;
  Status status;
  int32_t ready_peers = 0;
};

}  // namespace tandem
