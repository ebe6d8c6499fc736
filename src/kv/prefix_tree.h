// What: PrefixTree: past inputs as a tree of whole spans of tokens, one tree per PrefixIdentity. A
//   node is a span behind its parent; it is resident (its state is in blocks), pending (a running
//   sequence has announced that it computes it) or a ghost (known, not stored: evicted, or never
//   computed, or the incomplete end of an input).
// Not here: reference counts, which node to evict (prefix_cache.h, retention.h).
// Threads: the engine's thread.
// Invariants (CheckIntegrity): a node's tokens are compared, never its hash alone, and its parent
//   is part of the key, so a path is exact from the first token and never leaves its identity.
//   Links, counts and states agree. Ghosts are remembered as long as nodes last: the oldest without
//   children gives way to what is new.
// Cost: O(tokens compared) per look-up of a span, expected; nothing is allocated after construction
//   but the text of a new identity.
// Based on: radix trees of token sequences (SGLang, 2023), in units of blocks as in a hash-chained
//   block cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"
#include "kv/keyed_hash.h"
#include "kv/retention.h"

namespace tandem {

// What two requests must have in common before a token of theirs is compared (spec K4).
struct PrefixIdentity {
  Hash128 model;         // weights
  Hash128 state_format;  // numerics id; dtype, layout and shard of every state group
  Hash128 position_rule;
  Hash128 adapter;          // and its version; zero: none
  std::string tenant_salt;  // compared byte for byte; unset is the empty one
  bool operator==(const PrefixIdentity&) const = default;
};

inline constexpr PrefixNodeId kNoNode{-1};

enum class PrefixNodeState : uint8_t { kFree, kRoot, kResident, kPending, kGhost };

class PrefixTree {
 public:
  using HashFunction = uint64_t (*)(HashKey, uint64_t, std::span<const std::byte>);
  struct Options {
    int32_t span_tokens = 0;
    int32_t blocks_per_node = 0;
    int32_t max_nodes = 0;  // roots and ghosts included
    HashKey key;
    HashFunction hash = &KeyedHash;
  };
  explicit PrefixTree(const Options& options);

  // kNoNode when the identity has no tree. Add takes a node for it; kNoNode when none can be had.
  PrefixNodeId FindRoot(const PrefixIdentity& identity) const;
  PrefixNodeId FindOrAddRoot(const PrefixIdentity& identity);

  // The child that holds exactly the first span of `tokens`; kNoNode when there is none or `tokens`
  // are fewer than a span.
  PrefixNodeId FindChild(PrefixNodeId parent, std::span<const TokenId> tokens) const;
  // A new child of the first span of `tokens`, or of all of them when they are fewer (then a
  // ghost). Requires that FindChild does not find it. kNoNode when no node can be had.
  PrefixNodeId AddChild(PrefixNodeId parent, std::span<const TokenId> tokens,
                        PrefixNodeState state);
  // The longest beginning that `tokens` share with a child of `parent`. Looks at the latest
  // kSiblingsCompared children only.
  int64_t PartialMatch(PrefixNodeId parent, std::span<const TokenId> tokens) const;
  // A first span of another identity with these tokens, or kNoNode; looks at kSiblingsCompared.
  PrefixNodeId FindElsewhere(PrefixNodeId root, std::span<const TokenId> tokens) const;

  PrefixNodeState state(PrefixNodeId node) const { return At(node).state; }
  PrefixNodeId parent(PrefixNodeId node) const { return At(node).parent; }
  // Spans before this one; -1 for a root.
  int32_t depth(PrefixNodeId node) const { return At(node).depth; }
  int32_t resident_children(PrefixNodeId node) const { return At(node).resident_children; }
  bool locked(PrefixNodeId node) const { return At(node).locks > 0; }
  // A ghost that has been resident.
  bool was_stored(PrefixNodeId node) const { return At(node).was_stored; }
  uint64_t owner(PrefixNodeId node) const { return At(node).owner; }
  void set_owner(PrefixNodeId node, uint64_t owner) { At(node).owner = owner; }
  std::span<BlockId> blocks(PrefixNodeId node) {
    return std::span(blocks_).subspan(Offset(node, blocks_per_node_), Size(blocks_per_node_));
  }
  std::span<const BlockId> blocks(PrefixNodeId node) const {
    return std::span(blocks_).subspan(Offset(node, blocks_per_node_), Size(blocks_per_node_));
  }

  // Requires a node that is not a root and a state that is not kFree or kRoot.
  void SetState(PrefixNodeId node, PrefixNodeState state);
  // Locked: a sequence stands here, the node is not evicted. Held: the node is not forgotten. A
  // root without children that is let go is forgotten.
  void Lock(PrefixNodeId node) { ++At(node).locks; }
  void Unlock(PrefixNodeId node);
  void Hold(PrefixNodeId node) { ++At(node).holds; }
  void Unhold(PrefixNodeId node) { --At(node).holds; }

  int32_t span_tokens() const { return span_tokens_; }
  int32_t max_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t num_resident() const { return resident_; }
  int32_t num_ghosts() const { return ghosts_; }
  int32_t num_nodes() const { return used_; }
  // Grows with every change that can invalidate what a look-up has found.
  uint64_t version() const { return version_; }

  // The resident spans as a compressed tree, oldest first: one line per branch and leaf with its
  // end in tokens and the tokens since its parent, indented by depth.
  std::string ToText() const;
  // O(max_nodes).
  Status CheckIntegrity() const;

  static constexpr int32_t kSiblingsCompared = 32;

 private:
  struct Node {
    PrefixNodeId parent = kNoNode;
    PrefixNodeId first_child = kNoNode;  // latest first
    PrefixNodeId next = kNoNode;         // sibling, or on the free list
    PrefixNodeId previous = kNoNode;     // sibling
    PrefixNodeId bucket_next = kNoNode;
    PrefixNodeId peer_next = kNoNode;  // first spans only
    PrefixNodeId ghost_next = kNoNode;
    PrefixNodeId ghost_previous = kNoNode;
    uint64_t hash = 0;
    uint64_t peer_hash = 0;
    uint64_t owner = 0;
    int32_t depth = -1;
    int32_t num_tokens = 0;
    int32_t resident_children = 0;
    int32_t locks = 0;
    int32_t holds = 0;
    int32_t identity = -1;  // roots only
    PrefixNodeState state = PrefixNodeState::kFree;
    bool was_stored = false;
  };

  static size_t Size(int32_t n) { return static_cast<size_t>(n); }
  static size_t Offset(PrefixNodeId node, int32_t stride) {
    return Size(node.value()) * Size(stride);
  }
  Node& At(PrefixNodeId node) { return nodes_[Size(node.value())]; }
  const Node& At(PrefixNodeId node) const { return nodes_[Size(node.value())]; }
  std::span<const TokenId> TokensOf(PrefixNodeId node) const {
    return std::span(tokens_).subspan(Offset(node, span_tokens_), Size(At(node).num_tokens));
  }
  uint64_t HashOf(PrefixNodeId parent, std::span<const TokenId> tokens) const;
  uint64_t HashOf(const PrefixIdentity& identity) const;
  PrefixNodeId FindRoot(const PrefixIdentity& identity, uint64_t hash) const;
  PrefixNodeId& Bucket(std::vector<PrefixNodeId>* buckets, uint64_t hash) {
    return (*buckets)[hash & (buckets->size() - 1)];
  }
  PrefixNodeId Bucket(const std::vector<PrefixNodeId>& buckets, uint64_t hash) const {
    return buckets[hash & (buckets.size() - 1)];
  }
  PrefixNodeId TakeNode();
  // Forgets the oldest ghost that nothing needs; false when there is none among the first few.
  bool ForgetGhost();
  void Forget(PrefixNodeId node);
  void ForgetRootIfUnused(PrefixNodeId root);
  void PushGhost(PrefixNodeId node);
  void PopGhost(PrefixNodeId node);
  void AppendText(PrefixNodeId node, std::string* out) const;
  PrefixNodeId OnlyResidentChild(PrefixNodeId node) const;
  Status CheckNode(PrefixNodeId node) const;

  const int32_t span_tokens_;
  const int32_t blocks_per_node_;
  const HashKey key_;
  const HashFunction hash_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // [max_nodes, span_tokens]
  std::vector<BlockId> blocks_;  // [max_nodes, blocks_per_node]
  std::vector<PrefixNodeId> buckets_;
  std::vector<PrefixNodeId> peers_;
  std::vector<PrefixIdentity> identities_;  // of roots
  std::vector<int32_t> free_identities_;
  PrefixNodeId free_head_ = kNoNode;
  PrefixNodeId oldest_ghost_ = kNoNode;
  PrefixNodeId latest_ghost_ = kNoNode;
  int32_t used_ = 0;
  int32_t resident_ = 0;
  int32_t ghosts_ = 0;
  uint64_t version_ = 0;
};

}  // namespace tandem
