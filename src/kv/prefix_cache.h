// What: PrefixCache: state of past and running requests that new ones start from. Finds the longest
//   stored beginning of a request, starts sequences from it, keeps what running sequences commit,
//   and gives up blocks when the pools need them. Ties tree, pools and retention policy together.
// Not here: the tree (prefix_tree.h), what is worth keeping (retention.h), references and promises
//   (state_pools.h), when requests run (sched/).
// Threads: the engine's thread. Time is what Advance says.
// Invariants (CheckIntegrity):
//   - a node's blocks are cached in the pools, and no other blocks are (a block shorter than a span
//     can be in several nodes, behind a fork inside the span); only committed tokens enter;
//   - a sequence refers to the paged blocks of every node on its path, so a node that somebody
//     below it uses is never evictable, and every evictable block can be had by evicting leaves;
//   - what is offered to the policy is exactly the resident leaves where no sequence stands.
// Cost: Find, Admit, Release: O(tokens / span). Commit: O(1) per full span, else O(groups).
//   Reclaim: O(log n) amortised per block, and per leaf whose block a step or a write still
//   touches. Nothing is allocated after construction but the text of a new identity.
// Based on: RadixAttention (SGLang, 2023), PagedAttention (SOSP'23).
//
// A span is the least common multiple of the groups' tokens per block; hits are whole spans. A hit
// of a model with window groups ends where the blocks of every group's last window are still
// stored; these are given up on their own, the least recently stored or restored first, since each
// lives for the one window behind it.
//
// What the scheduler calls
//   each step   Advance(now), so that ages are right.
//   admission   hit = Find(identity, known tokens). If hit.pending_tokens > hit.tokens, a running
//               sequence, hit.pending_owner, is about to compute more of them: the request may
//               await it (awaiting-prefix) instead, without blocking those behind it. Otherwise
//               Admit(...); false: too few blocks now, nothing has changed. On success the first
//               row is at position sequence.tokens(), and the join restores as many tokens.
//   waiting     A waiter asks again (Find, in queue order) once the owner has committed
//               hit.pending_tokens, or has been released: finished, cancelled, failed or preempted.
//               Release withdraws the announcement, so the first waiter to ask then finds nothing
//               pending, is admitted and becomes the owner, and the others find it. A waiter holds
//               nothing, so it is cancelled by forgetting it.
//   growth      StatePools::Grow(&blocks, tokens, slot, plan) before each row.
//   samples     Fork(...) once the parent's rows up to `tokens` have been submitted.
//   commit      Commit(&blocks, known tokens, committed, step) instead of ReleasePassed;
//               `committed` counts tokens whose rows have completed and which are not drafts.
//   end         Release(&blocks, known tokens, last step) instead of StatePools::Release, for
//               finished, cancelled, failed and preempted alike. What was committed stays as cache.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/step_plan.h"
#include "kv/prefix_tree.h"
#include "kv/retention.h"
#include "kv/state_pools.h"

namespace tandem {

// Why a token of a request is not part of its hit.
enum class PrefixMiss : uint8_t {
  kNeverStored,  // no past input begins like this, or its state was never complete
  kEvicted,
  kOtherIdentity,  // a past input of another identity begins like this
  kTail,           // in common with past input, but not a whole span
  kLastToken,      // stored, but the last token of a request is always computed
  kPending,        // a running sequence is computing it
  kWindow,         // stored, but the window before the next token is not
};
inline constexpr int32_t kNumPrefixMisses = 7;
std::string_view NameOf(PrefixMiss miss);

struct PrefixHit {
  int64_t tokens = 0;  // to start from
  // Of these, whose paged blocks running sequences hold: starting from them takes no other block.
  int64_t held_tokens = 0;
  // The longest beginning in common with past input of the identity. For the operator's figures:
  // what it says about evicted tokens, and kOtherIdentity about other tenants, is not for the
  // client.
  int64_t potential_tokens = 0;
  std::array<int64_t, kNumPrefixMisses> missed{};  // by PrefixMiss; with `tokens` the whole request
  // A running sequence will have stored this many; 0 when there is none.
  int64_t pending_tokens = 0;
  uint64_t pending_owner = 0;

 private:
  friend class PrefixCache;
  PrefixNodeId node_ = kNoNode;
  uint64_t version_ = 0;
};

struct PrefixCacheStats {
  int64_t requests = 0;  // admitted
  int64_t tokens = 0;    // of these, known at admission
  int64_t hit_tokens = 0;
  int64_t potential_tokens = 0;
  std::array<int64_t, kNumPrefixMisses> missed{};  // tokens
  int64_t spans_stored = 0;
  int64_t spans_evicted = 0;
  int64_t windows_evicted = 0;   // window blocks given up on their own
  int64_t spans_duplicated = 0;  // computed although another sequence had stored them meanwhile
  int64_t resident_spans = 0;    // now
  int64_t ghost_spans = 0;       // now: remembered, not stored
};

class PrefixCache final : private BlockReclaimer {
 public:
  struct Options {
    RetentionKind retention = RetentionKind::kValue;
    RetentionCosts costs;
    HashKey key;              // secret, drawn at start-up
    int32_t max_ghosts = -1;  // spans remembered without their state; -1: as many as can be stored
    PrefixTree::HashFunction hash = &KeyedHash;
  };

  // `pools` outlives the cache and has no other reclaimer.
  PrefixCache(StatePools* pools, Options options);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  int32_t span_tokens() const { return tree_.span_tokens(); }

  void Advance(TimeNs now) { policy_->Advance(now); }

  // What is stored of `tokens`. Changes nothing; valid until the next call that does.
  PrefixHit Find(const PrefixIdentity& identity, std::span<const TokenId> tokens) const;

  // Starts a sequence of `tokens` from `hit` (which Find has just returned for the same arguments,
  // or PrefixHit{}: compute everything, and still keep it) and promises blocks for `reserve_tokens`
  // tokens (StatePools::Restore). Announces under the name `owner`, unless it is 0, that the
  // sequence computes the rest of `tokens`. False, and nothing changes, when a pool has too few
  // blocks. Requires an empty holding.
  [[nodiscard]] bool Admit(const PrefixIdentity& identity, const PrefixHit& hit,
                           std::span<const TokenId> tokens, int64_t reserve_tokens, uint64_t owner,
                           SlotId slot, SequenceBlocks* sequence, StepPlan* plan);

  // StatePools::Fork; the child stands in the tree where the parent does.
  [[nodiscard]] bool Fork(SequenceBlocks* parent, SequenceBlocks* child, int64_t tokens,
                          int64_t reserve_tokens, SlotId slot, StepPlan* plan);

  // The first `committed` of `tokens` are final and their state is complete since step `done`:
  // whole spans are kept, windows give back what they have passed.
  void Commit(SequenceBlocks* sequence, std::span<const TokenId> tokens, int64_t committed,
              StepId done);

  // The sequence ends or is preempted: its announcement is withdrawn, its blocks are given back,
  // what was committed stays cached until it is evicted. `last_use` as in StatePools::Release.
  void Release(SequenceBlocks* sequence, std::span<const TokenId> tokens, StepId last_use);

  // The beginning of the sequence that stays stored when it is released, whatever is evicted:
  // other sequences refer to it too. 0 where window groups must have their windows as well, which
  // go on their own. O(spans that it alone refers to).
  int64_t TokensHeldByOthers(const SequenceBlocks& sequence) const;

  PrefixCacheStats stats() const;
  RetentionStats retention_stats() const { return policy_->stats(); }
  const RetentionPolicy& retention() const { return *policy_; }
  const PrefixTree& tree() const { return tree_; }

  // Everything, the pools included; `sequences` must be all that exist.
  Status CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const;

 private:
  struct GroupLayout {
    bool window = false;
    int32_t window_tokens = 0;
    int32_t blocks_per_span = 0;
    int32_t offset = 0;  // of the group's blocks in a node's
  };
  // Nodes with window blocks of one group, the next to give up first.
  struct WindowList {
    struct Link {
      int32_t next = -1;
      int32_t previous = -1;
    };
    std::vector<Link> links;
    int32_t head = -1;
    int32_t tail = -1;
  };
  struct Walk;

  void Reclaim(GroupId group, int32_t count) override;

  static PrefixTree::Options TreeOptions(const StatePools& pools, const Options& options);
  int32_t num_groups() const { return static_cast<int32_t>(layouts_.size()); }
  std::span<BlockId> BlocksOf(PrefixNodeId node, int32_t group);
  std::span<const BlockId> BlocksOf(PrefixNodeId node, int32_t group) const;
  bool HasBlocks(PrefixNodeId node, int32_t group) const {
    return BlocksOf(node, group)[0] >= BlockId(0);
  }
  static PrefixNodeId Node(const SequenceBlocks& sequence) {
    return PrefixNodeId(sequence.path_.node);
  }

  // References of sequences on the node's paged blocks, the fewest; many where there are none.
  int32_t PagedRefs(PrefixNodeId node) const;
  void WalkResident(std::span<const TokenId> tokens, Walk* walk, PrefixHit* hit) const;
  void WalkRemembered(std::span<const TokenId> tokens, Walk* walk, PrefixHit* hit) const;
  int64_t CommonElsewhere(PrefixNodeId root, std::span<const TokenId> tokens) const;
  void GatherBlocks(PrefixNodeId node, int64_t tokens);
  void CountHit(PrefixNodeId node, std::span<const TokenId> tokens, const PrefixHit& hit);
  void Announce(SequenceBlocks* sequence, std::span<const TokenId> tokens, uint64_t owner);
  void Withdraw(SequenceBlocks* sequence);
  void RememberTail(const SequenceBlocks& sequence, std::span<const TokenId> tokens);
  PrefixNodeId AddChild(PrefixNodeId parent, std::span<const TokenId> span, PrefixNodeState state);
  // Moves the sequence's place over its next span; false when that cannot be kept now.
  bool Extend(SequenceBlocks* sequence, std::span<const TokenId> span);
  void Store(const SequenceBlocks& sequence, PrefixNodeId node);
  void StoreWindow(const SequenceBlocks& sequence, PrefixNodeId node, int32_t group);
  // The node has been stored by another sequence: where that block is in use, this one refers to it
  // too, else the sequence's own takes its place. The content is the same.
  void Join(SequenceBlocks* sequence, PrefixNodeId node);
  void Lock(PrefixNodeId node);
  void Unlock(PrefixNodeId node);
  void OfferIfLeaf(PrefixNodeId node);
  bool Evictable(PrefixNodeId node) const;
  void Evict(PrefixNodeId node);
  void EvictWindows(int32_t group, int32_t free_target, bool whole);
  void DropWindow(PrefixNodeId node, int32_t group);
  void Link(int32_t group, PrefixNodeId node);
  void Unlink(int32_t group, PrefixNodeId node);
  Status CheckBlocks() const;
  Status CheckPaths(std::span<const SequenceBlocks* const> sequences) const;

  StatePools* const pools_;
  PrefixTree tree_;
  std::unique_ptr<RetentionPolicy> policy_;
  const std::function<bool(PrefixNodeId)> evictable_;
  const std::function<bool(PrefixNodeId)> any_;
  std::vector<GroupLayout> layouts_;
  std::vector<WindowList> windows_;  // per group
  int64_t span_bytes_ = 0;
  uint64_t turn_ = 0;
  std::vector<RestoredGroup> restored_;  // scratch of Admit
  PrefixCacheStats stats_;
};

}  // namespace tandem
