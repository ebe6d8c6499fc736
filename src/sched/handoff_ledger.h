// What: HandoffLedger: the fetches and sends that have not drained, with the blocks that somebody
//   outside may still write or read: their use-tokens begin and end here.
// Not here: which requests are fetched or sent, and when (scheduler.h); who moves the bytes
//   (messenger/).
// Threads: the engine's thread.
// Invariants: every use-token for inbound and outbound writes belongs to exactly one entry
//   (CheckIntegrity), and lasts until the entry drains, whatever becomes of the sequence.
// Cost: O(entries) to find one: there are few. Opening allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "core/handoff_port.h"
#include "kv/state_pools.h"
#include "sched/sequence_store.h"

namespace tandem {

class HandoffLedger {
 public:
  struct Owner {
    SequenceIndex sequence;
    uint64_t serial = 0;
  };

  // `pools` outlives it.
  explicit HandoffLedger(StatePools* pools) : pools_(pools) {}

  // A fetch for `owner` writes these blocks (per group) until it drains. Requires blocks in use.
  FetchId OpenFetch(Owner owner, std::span<const std::vector<BlockId>> blocks);
  // Nobody waits for the fetch any more. Returns who did; none for unknown fetches and for those
  // that were settled before.
  std::optional<Owner> Settle(FetchId fetch);
  // Nothing is written any more. Unknown fetches are ignored.
  void DrainFetch(FetchId fetch);

  bool has_send(SendId send) const { return Find(sends_, send) != nullptr; }
  // Requires a new id.
  void OpenSend(SendId send, Owner owner);
  // The send reads one more block until it drains. Requires has_send and a block in use.
  void Lend(SendId send, GroupId group, BlockId block);
  // Nothing is read any more. Returns whose send it was; none for unknown ones.
  std::optional<Owner> DrainSend(SendId send);

  int32_t open() const { return static_cast<int32_t>(fetches_.size() + sends_.size()); }

  // Recounts the use-tokens of all blocks.
  Status CheckIntegrity() const;

 private:
  struct Use {
    GroupId group;
    BlockId block;
  };
  template <typename Id>
  struct Entry {
    Id id;
    Owner owner;
    bool settled = false;
    std::vector<Use> uses;
  };
  template <typename Id>
  static const Entry<Id>* Find(const std::vector<Entry<Id>>& entries, Id id) {
    for (const Entry<Id>& entry : entries) {
      if (entry.id == id) return &entry;
    }
    return nullptr;
  }
  template <typename Id>
  static Entry<Id>* Find(std::vector<Entry<Id>>& entries, Id id) {
    return const_cast<Entry<Id>*>(Find(std::as_const(entries), id));
  }
  template <typename Id>
  std::optional<Owner> Drain(std::vector<Entry<Id>>* entries, Id id, UseAgent agent);
  template <typename Id>
  Status CheckUses(const std::vector<Entry<Id>>& entries, UseAgent agent) const;

  StatePools* const pools_;
  std::vector<Entry<FetchId>> fetches_;
  std::vector<Entry<SendId>> sends_;
  uint64_t last_fetch_ = 0;
};

}  // namespace tandem
