#include "kv/prefix_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "base/check.h"

namespace tandem {
namespace {

// Ghosts that ForgetGhost looks at before it gives up; those that have children go to the back.
constexpr int32_t kGhostsTried = 8;

int64_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
         a.begin();
}

}  // namespace

PrefixTree::PrefixTree(const Options& options)
    : span_tokens_(options.span_tokens),
      blocks_per_node_(options.blocks_per_node),
      key_(options.key),
      hash_(options.hash),
      nodes_(Size(options.max_nodes)),
      tokens_(Size(options.max_nodes) * Size(options.span_tokens)),
      blocks_(Size(options.max_nodes) * Size(options.blocks_per_node), BlockId(-1)),
      buckets_(std::bit_ceil(Size(options.max_nodes) + 1), kNoNode),
      peers_(buckets_.size(), kNoNode) {
  TANDEM_CHECK(span_tokens_ > 0 && blocks_per_node_ > 0 && options.max_nodes > 0);
  for (int32_t i = max_nodes() - 1; i >= 0; --i) {
    nodes_[Size(i)].next = free_head_;
    free_head_ = PrefixNodeId(i);
  }
}

uint64_t PrefixTree::HashOf(PrefixNodeId parent, std::span<const TokenId> tokens) const {
  return hash_(key_, static_cast<uint64_t>(parent.value()), std::as_bytes(tokens));
}

uint64_t PrefixTree::HashOf(const PrefixIdentity& identity) const {
  const std::array<Hash128, 4> parts = {identity.model, identity.state_format,
                                        identity.position_rule, identity.adapter};
  const uint64_t hash = hash_(key_, 0, std::as_bytes(std::span(parts)));
  return hash_(key_, hash, std::as_bytes(std::span(identity.tenant_salt)));
}

PrefixNodeId PrefixTree::FindRoot(const PrefixIdentity& identity, uint64_t hash) const {
  for (PrefixNodeId n = Bucket(buckets_, hash); n != kNoNode; n = At(n).bucket_next) {
    const Node& node = At(n);
    if (node.state == PrefixNodeState::kRoot && node.hash == hash &&
        identities_[Size(node.identity)] == identity) {
      return n;
    }
  }
  return kNoNode;
}

PrefixNodeId PrefixTree::FindRoot(const PrefixIdentity& identity) const {
  return FindRoot(identity, HashOf(identity));
}

PrefixNodeId PrefixTree::FindOrAddRoot(const PrefixIdentity& identity) {
  const uint64_t hash = HashOf(identity);
  const PrefixNodeId found = FindRoot(identity, hash);
  if (found != kNoNode) return found;
  const PrefixNodeId root = TakeNode();
  if (root == kNoNode) return kNoNode;
  Node& node = At(root);
  node.state = PrefixNodeState::kRoot;
  if (free_identities_.empty()) {
    free_identities_.push_back(static_cast<int32_t>(identities_.size()));
    identities_.emplace_back();
  }
  node.identity = free_identities_.back();
  free_identities_.pop_back();
  identities_[Size(node.identity)] = identity;
  node.hash = hash;
  node.bucket_next = Bucket(buckets_, hash);
  Bucket(&buckets_, hash) = root;
  return root;
}

PrefixNodeId PrefixTree::FindChild(PrefixNodeId parent, std::span<const TokenId> tokens) const {
  if (tokens.size() < Size(span_tokens_)) return kNoNode;
  const auto span = tokens.first(Size(span_tokens_));
  const uint64_t hash = HashOf(parent, span);
  for (PrefixNodeId n = Bucket(buckets_, hash); n != kNoNode; n = At(n).bucket_next) {
    const Node& node = At(n);
    if (node.hash == hash && node.parent == parent && node.state != PrefixNodeState::kRoot &&
        std::ranges::equal(TokensOf(n), span)) {
      return n;
    }
  }
  return kNoNode;
}

PrefixNodeId PrefixTree::AddChild(PrefixNodeId parent, std::span<const TokenId> tokens,
                                  PrefixNodeState state) {
  const bool whole = tokens.size() >= Size(span_tokens_);
  TANDEM_CHECK(!tokens.empty() && (whole || state == PrefixNodeState::kGhost));
  Hold(parent);
  const PrefixNodeId child = TakeNode();
  Unhold(parent);
  if (child == kNoNode) return kNoNode;
  const auto span = tokens.first(std::min(tokens.size(), Size(span_tokens_)));
  Node& node = At(child);
  Node& above = At(parent);
  node.parent = parent;
  node.depth = above.depth + 1;
  node.num_tokens = static_cast<int32_t>(span.size());
  std::ranges::copy(span, tokens_.begin() + static_cast<ptrdiff_t>(Offset(child, span_tokens_)));
  node.next = above.first_child;
  if (node.next != kNoNode) At(node.next).previous = child;
  above.first_child = child;
  if (whole) {
    node.hash = HashOf(parent, span);
    node.bucket_next = Bucket(buckets_, node.hash);
    Bucket(&buckets_, node.hash) = child;
    if (node.depth == 0) {
      node.peer_hash = HashOf(kNoNode, span);
      node.peer_next = Bucket(peers_, node.peer_hash);
      Bucket(&peers_, node.peer_hash) = child;
    }
  }
  node.state = PrefixNodeState::kGhost;
  PushGhost(child);
  if (state != PrefixNodeState::kGhost) SetState(child, state);
  return child;
}

int64_t PrefixTree::PartialMatch(PrefixNodeId parent, std::span<const TokenId> tokens) const {
  int64_t longest = 0;
  int32_t compared = 0;
  for (PrefixNodeId n = At(parent).first_child; n != kNoNode && compared < kSiblingsCompared;
       n = At(n).next, ++compared) {
    longest = std::max(longest, CommonPrefix(TokensOf(n), tokens));
  }
  return longest;
}

PrefixNodeId PrefixTree::FindElsewhere(PrefixNodeId root, std::span<const TokenId> tokens) const {
  if (tokens.size() < Size(span_tokens_)) return kNoNode;
  const auto span = tokens.first(Size(span_tokens_));
  const uint64_t hash = HashOf(kNoNode, span);
  int32_t compared = 0;
  for (PrefixNodeId n = Bucket(peers_, hash); n != kNoNode && compared < kSiblingsCompared;
       n = At(n).peer_next, ++compared) {
    if (At(n).parent != root && std::ranges::equal(TokensOf(n), span)) return n;
  }
  return kNoNode;
}

void PrefixTree::SetState(PrefixNodeId id, PrefixNodeState state) {
  Node& node = At(id);
  TANDEM_CHECK(node.state != PrefixNodeState::kRoot && node.state != PrefixNodeState::kFree);
  if (node.state == state) return;
  Node& above = At(node.parent);
  if (node.state == PrefixNodeState::kGhost) PopGhost(id);
  if (node.state == PrefixNodeState::kResident) {
    --above.resident_children;
    --resident_;
    node.was_stored = true;
  }
  node.state = state;
  if (state == PrefixNodeState::kGhost) PushGhost(id);
  if (state == PrefixNodeState::kResident) {
    ++above.resident_children;
    ++resident_;
  }
  ++version_;
}

void PrefixTree::Unlock(PrefixNodeId node) {
  TANDEM_CHECK_GT(At(node).locks, 0);
  --At(node).locks;
  if (At(node).state == PrefixNodeState::kRoot) ForgetRootIfUnused(node);
}

PrefixNodeId PrefixTree::TakeNode() {
  if (free_head_ == kNoNode && !ForgetGhost()) return kNoNode;
  const PrefixNodeId id = free_head_;
  free_head_ = At(id).next;
  At(id) = Node{};
  ++used_;
  ++version_;
  return id;
}

bool PrefixTree::ForgetGhost() {
  for (int32_t i = 0; i < kGhostsTried && oldest_ghost_ != kNoNode; ++i) {
    const PrefixNodeId ghost = oldest_ghost_;
    const Node& node = At(ghost);
    if (node.first_child == kNoNode && node.locks == 0 && node.holds == 0) {
      Forget(ghost);
      return true;
    }
    PopGhost(ghost);
    PushGhost(ghost);
  }
  return false;
}

void PrefixTree::Forget(PrefixNodeId id) {
  Node& node = At(id);
  TANDEM_CHECK(node.first_child == kNoNode && node.locks == 0 && node.holds == 0);
  const bool root = node.state == PrefixNodeState::kRoot;
  const bool whole = root || node.num_tokens == span_tokens_;
  if (whole) {
    PrefixNodeId* link = &Bucket(&buckets_, node.hash);
    while (*link != id) link = &At(*link).bucket_next;
    *link = node.bucket_next;
  }
  if (whole && node.depth == 0) {
    PrefixNodeId* link = &Bucket(&peers_, node.peer_hash);
    while (*link != id) link = &At(*link).peer_next;
    *link = node.peer_next;
  }
  const PrefixNodeId parent = node.parent;
  if (root) {
    identities_[Size(node.identity)] = PrefixIdentity{};
    free_identities_.push_back(node.identity);
  } else {
    TANDEM_CHECK(node.state == PrefixNodeState::kGhost);
    PopGhost(id);
    (node.previous == kNoNode ? At(parent).first_child : At(node.previous).next) = node.next;
    if (node.next != kNoNode) At(node.next).previous = node.previous;
  }
  node = Node{};
  node.next = free_head_;
  free_head_ = id;
  --used_;
  ++version_;
  if (!root && At(parent).state == PrefixNodeState::kRoot) ForgetRootIfUnused(parent);
}

void PrefixTree::ForgetRootIfUnused(PrefixNodeId root) {
  const Node& node = At(root);
  if (node.first_child == kNoNode && node.locks == 0 && node.holds == 0) Forget(root);
}

void PrefixTree::PushGhost(PrefixNodeId id) {
  Node& node = At(id);
  node.ghost_next = kNoNode;
  node.ghost_previous = latest_ghost_;
  (latest_ghost_ == kNoNode ? oldest_ghost_ : At(latest_ghost_).ghost_next) = id;
  latest_ghost_ = id;
  ++ghosts_;
}

void PrefixTree::PopGhost(PrefixNodeId id) {
  Node& node = At(id);
  (node.ghost_previous == kNoNode ? oldest_ghost_ : At(node.ghost_previous).ghost_next) =
      node.ghost_next;
  (node.ghost_next == kNoNode ? latest_ghost_ : At(node.ghost_next).ghost_previous) =
      node.ghost_previous;
  --ghosts_;
}

PrefixNodeId PrefixTree::OnlyResidentChild(PrefixNodeId node) const {
  if (At(node).resident_children != 1) return kNoNode;
  PrefixNodeId child = At(node).first_child;
  while (At(child).state != PrefixNodeState::kResident) child = At(child).next;
  return child;
}

std::string PrefixTree::ToText() const {
  std::string out;
  for (int32_t i = 0; i < max_nodes(); ++i) {
    if (nodes_[Size(i)].state == PrefixNodeState::kRoot) AppendText(PrefixNodeId(i), &out);
  }
  return out;
}

void PrefixTree::AppendText(PrefixNodeId root, std::string* out) const {
  struct Branch {
    PrefixNodeId node;  // its first span
    int32_t indent;
  };
  std::vector<Branch> stack;
  const auto push_children = [&](PrefixNodeId node, int32_t indent) {
    for (PrefixNodeId c = At(node).first_child; c != kNoNode; c = At(c).next) {
      if (At(c).state == PrefixNodeState::kResident) stack.push_back({c, indent});
    }
  };
  push_children(root, 0);
  while (!stack.empty()) {
    const Branch branch = stack.back();
    stack.pop_back();
    PrefixNodeId end = branch.node;
    for (PrefixNodeId n = OnlyResidentChild(end); n != kNoNode; n = OnlyResidentChild(n)) end = n;
    const int64_t first = int64_t{At(branch.node).depth} * span_tokens_;
    const int64_t last = int64_t{At(end).depth + 1} * span_tokens_;
    fmt::format_to(std::back_inserter(*out), "{:{}}{} (+{})\n", "", 2 * branch.indent, last,
                   last - first);
    push_children(end, branch.indent + 1);
  }
}

Status PrefixTree::CheckNode(PrefixNodeId id) const {
  const Node& node = At(id);
  int32_t resident_children = 0;
  PrefixNodeId previous = kNoNode;
  for (PrefixNodeId c = node.first_child; c != kNoNode; c = At(c).next) {
    const Node& child = At(c);
    if (child.parent != id || child.previous != previous || child.depth != node.depth + 1) {
      return InternalError("prefix node {} and its child {} disagree", id, c);
    }
    resident_children += child.state == PrefixNodeState::kResident;
    previous = c;
  }
  if (resident_children != node.resident_children || node.locks < 0 || node.holds < 0) {
    return InternalError("prefix node {} counts {} resident children, {} found", id,
                         node.resident_children, resident_children);
  }
  if (node.state == PrefixNodeState::kRoot) {
    const PrefixIdentity& identity = identities_[Size(node.identity)];
    if (FindRoot(identity) != id) return InternalError("prefix root {} is not found", id);
    return OkStatus();
  }
  const PrefixNodeState above = At(node.parent).state;
  if (node.state == PrefixNodeState::kResident && above != PrefixNodeState::kResident &&
      above != PrefixNodeState::kRoot) {
    return InternalError("prefix node {} is resident, its parent {} is not", id, node.parent);
  }
  const bool whole = node.num_tokens == span_tokens_;
  if (whole ? FindChild(node.parent, TokensOf(id)) != id
            : node.state != PrefixNodeState::kGhost || node.first_child != kNoNode) {
    return InternalError("prefix node {} is not found by its tokens", id);
  }
  return OkStatus();
}

Status PrefixTree::CheckIntegrity() const {
  int32_t used = 0;
  int32_t resident = 0;
  int32_t ghosts = 0;
  for (int32_t i = 0; i < max_nodes(); ++i) {
    const Node& node = nodes_[Size(i)];
    if (node.state == PrefixNodeState::kFree) continue;
    ++used;
    resident += node.state == PrefixNodeState::kResident;
    ghosts += node.state == PrefixNodeState::kGhost;
    TANDEM_RETURN_IF_ERROR(CheckNode(PrefixNodeId(i)));
  }
  int32_t listed = 0;
  for (PrefixNodeId n = oldest_ghost_; n != kNoNode; n = At(n).ghost_next) {
    if (At(n).state != PrefixNodeState::kGhost || ++listed > ghosts) {
      return InternalError("prefix node {} is listed as a ghost", n);
    }
  }
  if (used != used_ || resident != resident_ || ghosts != ghosts_ || listed != ghosts_) {
    return InternalError("{} prefix nodes ({} resident, {} ghosts), {} ({}, {}) found", used_,
                         resident_, ghosts_, used, resident, ghosts);
  }
  return OkStatus();
}

}  // namespace tandem
