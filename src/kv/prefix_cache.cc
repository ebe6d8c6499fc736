#include "kv/prefix_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr size_t kGroupsMax = 8;

// Identities that can have a tree while all other nodes are taken.
constexpr int32_t kSpareNodes = 64;

int32_t SpanOf(const StatePools& pools) {
  int32_t span = 1;
  for (int32_t g = 0; g < pools.num_groups(); ++g) {
    span = std::lcm(span, pools.group(GroupId(g)).tokens_per_block);
  }
  return span;
}

int64_t& Missed(PrefixHit* hit, PrefixMiss miss) { return hit->missed[static_cast<size_t>(miss)]; }

}  // namespace

std::string_view NameOf(PrefixMiss miss) {
  switch (miss) {
    case PrefixMiss::kNeverStored: return "never_stored";
    case PrefixMiss::kEvicted: return "evicted";
    case PrefixMiss::kOtherIdentity: return "other_identity";
    case PrefixMiss::kTail: return "tail";
    case PrefixMiss::kLastToken: return "last_token";
    case PrefixMiss::kPending: return "pending";
    case PrefixMiss::kWindow: return "window";
  }
  TANDEM_CHECK(false);
}

PrefixTree::Options PrefixCache::TreeOptions(const StatePools& pools, const Options& options) {
  const int32_t span = SpanOf(pools);
  PrefixTree::Options tree{.span_tokens = span, .key = options.key, .hash = options.hash};
  int64_t stored = std::numeric_limits<int32_t>::max();
  int64_t windows = 0;
  bool paged = false;
  for (int32_t g = 0; g < pools.num_groups(); ++g) {
    const int32_t blocks = span / pools.group(GroupId(g)).tokens_per_block;
    tree.blocks_per_node += blocks;
    const int64_t most = pools.pool(GroupId(g)).total() / blocks;
    windows += most;
    if (pools.group(GroupId(g)).kind == StateKind::kWindow) continue;
    paged = true;
    stored = std::min(stored, most);
  }
  if (!paged) stored = windows;
  const int64_t ghosts = options.max_ghosts < 0 ? stored : options.max_ghosts;
  tree.max_nodes = static_cast<int32_t>(stored + ghosts) + kSpareNodes;
  return tree;
}

PrefixCache::PrefixCache(StatePools* pools, Options options)
    : pools_(pools),
      tree_(TreeOptions(*pools, options)),
      policy_(MakeRetention(options.retention, tree_.max_nodes(), std::move(options.costs))),
      evictable_([this](PrefixNodeId node) { return Evictable(node); }),
      any_([](PrefixNodeId) { return true; }) {
  TANDEM_CHECK(pools->reclaimer_ == nullptr);
  TANDEM_CHECK_LE(static_cast<size_t>(pools->num_groups()), kGroupsMax);
  int32_t offset = 0;
  for (int32_t g = 0; g < pools->num_groups(); ++g) {
    const StateGroup& group = pools->group(GroupId(g));
    GroupLayout layout{.window = group.kind == StateKind::kWindow,
                       .window_tokens = group.window_tokens,
                       .blocks_per_span = tree_.span_tokens() / group.tokens_per_block,
                       .offset = offset};
    offset += layout.blocks_per_span;
    span_bytes_ += layout.blocks_per_span * group.BlockBytes();
    layouts_.push_back(layout);
    windows_.emplace_back();
    if (layout.window) windows_.back().links.resize(static_cast<size_t>(tree_.max_nodes()));
    restored_.emplace_back();
    restored_.back().blocks.reserve(static_cast<size_t>(pools->pool(GroupId(g)).total()));
  }
  pools->reclaimer_ = this;
}

PrefixCache::~PrefixCache() { pools_->reclaimer_ = nullptr; }

std::span<BlockId> PrefixCache::BlocksOf(PrefixNodeId node, int32_t group) {
  const GroupLayout& layout = layouts_[static_cast<size_t>(group)];
  return tree_.blocks(node).subspan(static_cast<size_t>(layout.offset),
                                    static_cast<size_t>(layout.blocks_per_span));
}

std::span<const BlockId> PrefixCache::BlocksOf(PrefixNodeId node, int32_t group) const {
  const GroupLayout& layout = layouts_[static_cast<size_t>(group)];
  return tree_.blocks(node).subspan(static_cast<size_t>(layout.offset),
                                    static_cast<size_t>(layout.blocks_per_span));
}

int32_t PrefixCache::PagedRefs(PrefixNodeId node) const {
  int32_t least = INT32_MAX;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (layouts_[static_cast<size_t>(g)].window) continue;
    for (BlockId block : BlocksOf(node, g)) {
      least = std::min(least, pools_->pool(GroupId(g)).refs(block));
    }
  }
  return least;
}

// ---------------------------------------------------------------- finding

// Where a walk from the root has come to.
struct PrefixCache::Walk {
  PrefixNodeId node = kNoNode;
  int64_t tokens = 0;
};

void PrefixCache::WalkResident(std::span<const TokenId> tokens, Walk* walk, PrefixHit* hit) const {
  const int64_t span = span_tokens();
  const int64_t limit = (static_cast<int64_t>(tokens.size()) - 1) / span * span;
  std::array<int64_t, kGroupsMax> run{};  // tokens of the window group stored in a row
  int64_t held = 0;
  for (;;) {
    const PrefixNodeId child =
        tree_.FindChild(walk->node, tokens.subspan(static_cast<size_t>(walk->tokens)));
    if (child == kNoNode || tree_.state(child) != PrefixNodeState::kResident) break;
    walk->node = child;
    // Whoever holds a span holds all before it.
    if (held == walk->tokens && PagedRefs(child) > 0) held += span;
    walk->tokens += span;
    bool restorable = walk->tokens <= limit;
    for (int32_t g = 0; g < num_groups(); ++g) {
      const GroupLayout& layout = layouts_[static_cast<size_t>(g)];
      if (!layout.window) continue;
      int64_t& stored = run[static_cast<size_t>(g)];
      stored = HasBlocks(child, g) ? stored + span : 0;
      restorable &= stored >= std::min<int64_t>(layout.window_tokens - 1, walk->tokens);
    }
    if (!restorable) continue;
    hit->tokens = walk->tokens;
    hit->node_ = child;
  }
  hit->held_tokens = std::min(held, hit->tokens);
  Missed(hit, PrefixMiss::kWindow) = std::min(walk->tokens, limit) - hit->tokens;
  Missed(hit, PrefixMiss::kLastToken) = std::max<int64_t>(0, walk->tokens - limit);
}

void PrefixCache::WalkRemembered(std::span<const TokenId> tokens, Walk* walk,
                                 PrefixHit* hit) const {
  const int64_t span = span_tokens();
  const int64_t limit = (static_cast<int64_t>(tokens.size()) - 1) / span * span;
  bool pending = true;  // all behind the resident ones so far, by one owner
  for (;;) {
    const auto rest = tokens.subspan(static_cast<size_t>(walk->tokens));
    const PrefixNodeId child = tree_.FindChild(walk->node, rest);
    if (child == kNoNode) break;
    walk->node = child;
    walk->tokens += span;
    PrefixMiss miss = tree_.was_stored(child) ? PrefixMiss::kEvicted : PrefixMiss::kNeverStored;
    if (tree_.state(child) == PrefixNodeState::kPending) {
      miss = PrefixMiss::kPending;
      if (hit->pending_owner == 0) hit->pending_owner = tree_.owner(child);
      pending &= tree_.owner(child) == hit->pending_owner;
      if (pending) hit->pending_tokens = std::min(walk->tokens, limit);
    } else {
      pending = false;
    }
    Missed(hit, miss) += span;
  }
}

int64_t PrefixCache::CommonElsewhere(PrefixNodeId root, std::span<const TokenId> tokens) const {
  PrefixNodeId node = tree_.FindElsewhere(root, tokens);
  if (node == kNoNode) return 0;
  auto rest = tokens.subspan(static_cast<size_t>(span_tokens()));
  for (;;) {
    const PrefixNodeId child = tree_.FindChild(node, rest);
    if (child == kNoNode) break;
    node = child;
    rest = rest.subspan(static_cast<size_t>(span_tokens()));
  }
  return static_cast<int64_t>(tokens.size() - rest.size()) + tree_.PartialMatch(node, rest);
}

PrefixHit PrefixCache::Find(const PrefixIdentity& identity, std::span<const TokenId> tokens) const {
  PrefixHit hit;
  hit.version_ = tree_.version();
  const auto all = static_cast<int64_t>(tokens.size());
  if (all == 0) return hit;
  Walk walk{.node = tree_.FindRoot(identity)};
  const PrefixNodeId root = walk.node;
  if (root != kNoNode) {
    WalkResident(tokens, &walk, &hit);
    WalkRemembered(tokens, &walk, &hit);
    const auto rest = tokens.subspan(static_cast<size_t>(walk.tokens));
    Missed(&hit, PrefixMiss::kTail) = tree_.PartialMatch(walk.node, rest);
    hit.potential_tokens = walk.tokens + Missed(&hit, PrefixMiss::kTail);
  }
  if (hit.pending_tokens <= hit.tokens) {
    hit.pending_tokens = 0;
    hit.pending_owner = 0;
  }
  if (hit.potential_tokens == all) return hit;
  const int64_t elsewhere = CommonElsewhere(root, tokens);
  Missed(&hit, PrefixMiss::kOtherIdentity) = std::max<int64_t>(0, elsewhere - hit.potential_tokens);
  Missed(&hit, PrefixMiss::kNeverStored) +=
      all - hit.potential_tokens - Missed(&hit, PrefixMiss::kOtherIdentity);
  return hit;
}

// ---------------------------------------------------------------- sequences

void PrefixCache::GatherBlocks(PrefixNodeId node, int64_t tokens) {
  const int64_t spans = tokens / span_tokens();
  for (int32_t g = 0; g < num_groups(); ++g) {
    RestoredGroup& group = restored_[static_cast<size_t>(g)];
    const int64_t per_span = layouts_[static_cast<size_t>(g)].blocks_per_span;
    group.first_entry = pools_->FirstEntryRead(GroupId(g), tokens);
    group.blocks.resize(static_cast<size_t>(spans * per_span - group.first_entry));
    PrefixNodeId at = node;
    for (int64_t s = spans - 1; s >= 0 && (s + 1) * per_span > group.first_entry; --s) {
      const std::span<const BlockId> blocks = std::as_const(*this).BlocksOf(at, g);
      for (int64_t j = 0; j < per_span; ++j) {
        const int64_t entry = s * per_span + j - group.first_entry;
        if (entry >= 0) {
          group.blocks[static_cast<size_t>(entry)] = blocks[static_cast<size_t>(j)];
        }
      }
      at = tree_.parent(at);
    }
  }
}

bool PrefixCache::Admit(const PrefixIdentity& identity, const PrefixHit& hit,
                        std::span<const TokenId> tokens, int64_t reserve_tokens, uint64_t owner,
                        SlotId slot, SequenceBlocks* sequence, StepPlan* plan) {
  TANDEM_CHECK(hit.tokens == 0 || hit.version_ == tree_.version());
  const PrefixNodeId node = hit.tokens > 0 ? hit.node_ : tree_.FindOrAddRoot(identity);
  if (node != kNoNode) Lock(node);
  GatherBlocks(node, hit.tokens);
  if (!pools_->Restore(sequence, hit.tokens, restored_, reserve_tokens, slot, plan)) {
    if (node != kNoNode) Unlock(node);
    return false;
  }
  CountHit(node, tokens, hit);
  if (node == kNoNode) return true;  // no room for another identity: nothing of it is kept
  sequence->path_ = {.node = node.value(),
                     .spans = static_cast<int32_t>(hit.tokens / span_tokens())};
  if (owner != 0) Announce(sequence, tokens, owner);
  return true;
}

void PrefixCache::CountHit(PrefixNodeId node, std::span<const TokenId> tokens,
                           const PrefixHit& hit) {
  ++stats_.requests;
  stats_.tokens += static_cast<int64_t>(tokens.size());
  stats_.hit_tokens += hit.tokens;
  stats_.potential_tokens += hit.potential_tokens;
  for (size_t i = 0; i < hit.missed.size(); ++i) stats_.missed[i] += hit.missed[i];
  if (hit.tokens == 0) return;
  for (PrefixNodeId n = node; tree_.depth(n) >= 0; n = tree_.parent(n)) policy_->Hit(n);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupLayout& layout = layouts_[static_cast<size_t>(g)];
    if (!layout.window) continue;
    const int32_t first = restored_[static_cast<size_t>(g)].first_entry / layout.blocks_per_span;
    for (PrefixNodeId n = node; tree_.depth(n) >= first; n = tree_.parent(n)) {
      Unlink(g, n);
      Link(g, n);
    }
  }
}

void PrefixCache::Announce(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                           uint64_t owner) {
  SequenceBlocks::Path& path = sequence->path_;
  const auto span = static_cast<size_t>(span_tokens());
  path.owner = owner;
  PrefixNodeId node = Node(*sequence);
  PrefixNodeId deepest = kNoNode;
  for (size_t at = static_cast<size_t>(path.spans) * span; at + span <= tokens.size(); at += span) {
    const auto next = tokens.subspan(at, span);
    PrefixNodeId child = tree_.FindChild(node, next);
    if (child == kNoNode) {
      tree_.Hold(node);
      child = tree_.AddChild(node, next, PrefixNodeState::kPending);
      tree_.Unhold(node);
      if (child == kNoNode) break;
    } else if (tree_.state(child) == PrefixNodeState::kGhost) {
      tree_.SetState(child, PrefixNodeState::kPending);
    } else {
      node = child;  // stored, or announced by another
      continue;
    }
    tree_.set_owner(child, owner);
    node = deepest = child;
  }
  if (deepest == kNoNode) return;
  tree_.Hold(deepest);
  path.pending = deepest.value();
}

void PrefixCache::Withdraw(SequenceBlocks* sequence) {
  SequenceBlocks::Path& path = sequence->path_;
  if (path.pending < 0) return;
  PrefixNodeId node(path.pending);
  tree_.Unhold(node);
  for (; tree_.depth(node) >= path.spans; node = tree_.parent(node)) {
    if (tree_.state(node) != PrefixNodeState::kPending || tree_.owner(node) != path.owner) continue;
    tree_.SetState(node, PrefixNodeState::kGhost);
  }
  path.pending = -1;
}

bool PrefixCache::Fork(SequenceBlocks* parent, SequenceBlocks* child, int64_t tokens,
                       int64_t reserve_tokens, SlotId slot, StepPlan* plan) {
  if (!pools_->Fork(parent, child, tokens, reserve_tokens, slot, plan)) return false;
  PrefixNodeId node = Node(*parent);
  if (node == kNoNode) return true;
  int32_t spans = parent->path_.spans;
  for (; int64_t{spans} * span_tokens() > tokens; --spans) node = tree_.parent(node);
  Lock(node);
  child->path_ = {.node = node.value(), .spans = spans};
  for (const SequenceBlocks::Pin& pin : parent->pins_) pools_->Pin(child, pin.group, pin.block);
  return true;
}

void PrefixCache::Commit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                         int64_t committed, StepId done) {
  TANDEM_CHECK_LE(committed, sequence->tokens());
  const int64_t span = span_tokens();
  while (sequence->path_.node >= 0 && (sequence->path_.spans + 1) * span <= committed) {
    const auto at = static_cast<size_t>(sequence->path_.spans * span);
    if (!Extend(sequence, tokens.subspan(at, static_cast<size_t>(span)))) break;
  }
  pools_->ReleasePassed(sequence, committed, done);
}

void PrefixCache::Release(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                          StepId last_use) {
  const PrefixNodeId node = Node(*sequence);
  if (node == kNoNode) {
    pools_->Release(sequence, last_use);
    return;
  }
  Withdraw(sequence);
  RememberTail(*sequence, tokens);
  ++turn_;
  for (PrefixNodeId n = node; tree_.depth(n) >= 0; n = tree_.parent(n)) policy_->Touch(n, turn_);
  sequence->path_ = {};
  pools_->Release(sequence, last_use);
  Unlock(node);
}

void PrefixCache::RememberTail(const SequenceBlocks& sequence, std::span<const TokenId> tokens) {
  const auto stored =
      static_cast<size_t>(sequence.path_.spans) * static_cast<size_t>(span_tokens());
  if (stored >= tokens.size()) return;
  const auto tail = tokens.subspan(stored);
  if (tail.size() >= static_cast<size_t>(span_tokens())) return;  // it has not been computed
  const PrefixNodeId node = Node(sequence);
  if (tree_.PartialMatch(node, tail) == static_cast<int64_t>(tail.size())) return;
  tree_.AddChild(node, tail, PrefixNodeState::kGhost);
}

// ---------------------------------------------------------------- keeping

PrefixNodeId PrefixCache::AddChild(PrefixNodeId parent, std::span<const TokenId> span,
                                   PrefixNodeState state) {
  const PrefixNodeId child = tree_.AddChild(parent, span, state);
  if (child != kNoNode) return child;
  const std::optional<PrefixNodeId> leaf = policy_->Choose(evictable_);
  if (!leaf) return kNoNode;
  Evict(*leaf);
  return tree_.AddChild(parent, span, state);
}

bool PrefixCache::Extend(SequenceBlocks* sequence, std::span<const TokenId> span) {
  const PrefixNodeId node = Node(*sequence);
  PrefixNodeId child = tree_.FindChild(node, span);
  if (child == kNoNode) child = AddChild(node, span, PrefixNodeState::kPending);
  if (child == kNoNode) return false;
  if (tree_.state(child) == PrefixNodeState::kResident) {
    Join(sequence, child);
  } else {
    Store(*sequence, child);
  }
  Lock(child);
  sequence->path_.node = child.value();
  ++sequence->path_.spans;
  Unlock(node);
  return true;
}

void PrefixCache::Store(const SequenceBlocks& sequence, PrefixNodeId node) {
  const PrefixNodeId parent = tree_.parent(node);
  // A conversation goes on where nothing else does; behind a beginning that many requests have in
  // common a new one starts.
  const bool continues = tree_.depth(node) > 0 && policy_->of_reused_prefix(parent) &&
                         tree_.resident_children(parent) <= 1;
  tree_.SetState(node, PrefixNodeState::kResident);
  tree_.set_owner(node, 0);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupLayout& layout = layouts_[static_cast<size_t>(g)];
    if (layout.window) {
      StoreWindow(sequence, node, g);
      continue;
    }
    const BlockTable& table = sequence.table(GroupId(g));
    int32_t entry = tree_.depth(node) * layout.blocks_per_span;
    for (BlockId& block : BlocksOf(node, g)) {
      block = table.at(entry++);
      pools_->PoolOf(g).Cache(block);
    }
  }
  policy_->Insert(node, {.first_token = int64_t{tree_.depth(node)} * span_tokens(),
                         .num_tokens = span_tokens(),
                         .bytes = span_bytes_,
                         .continues = continues});
  ++stats_.spans_stored;
}

void PrefixCache::StoreWindow(const SequenceBlocks& sequence, PrefixNodeId node, int32_t group) {
  const BlockTable& table = sequence.table(GroupId(group));
  const int32_t per_span = layouts_[static_cast<size_t>(group)].blocks_per_span;
  int32_t entry = tree_.depth(node) * per_span;
  if (entry < table.first_held()) return;
  for (BlockId& block : BlocksOf(node, group)) {
    block = table.at(entry++);
    pools_->PoolOf(group).Cache(block);
  }
  Link(group, node);
}

void PrefixCache::Join(SequenceBlocks* sequence, PrefixNodeId node) {
  bool other = false;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (layouts_[static_cast<size_t>(g)].window) continue;
    BlockPool& pool = pools_->PoolOf(g);
    int32_t entry = tree_.depth(node) * layouts_[static_cast<size_t>(g)].blocks_per_span;
    for (BlockId& block : BlocksOf(node, g)) {
      const BlockId own = sequence->table(GroupId(g)).at(entry++);
      if (own == block) continue;
      other = true;
      if (pool.refs(block) > 0) {
        pools_->Pin(sequence, GroupId(g), block);
        continue;
      }
      pool.Uncache(block);
      pool.Cache(own);
      block = own;
    }
  }
  if (!other) return;
  ++stats_.spans_duplicated;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (layouts_[static_cast<size_t>(g)].window && !HasBlocks(node, g)) {
      StoreWindow(*sequence, node, g);
    }
  }
}

void PrefixCache::Lock(PrefixNodeId node) {
  if (tree_.state(node) == PrefixNodeState::kResident && policy_->offered(node)) {
    policy_->Withdraw(node);
  }
  tree_.Lock(node);
}

void PrefixCache::Unlock(PrefixNodeId node) {
  tree_.Unlock(node);
  OfferIfLeaf(node);
}

void PrefixCache::OfferIfLeaf(PrefixNodeId node) {
  if (tree_.state(node) != PrefixNodeState::kResident || tree_.locked(node) ||
      tree_.resident_children(node) > 0) {
    return;
  }
  policy_->Offer(node);
}

// ---------------------------------------------------------------- giving up

// Evicting the node makes all its paged blocks free.
bool PrefixCache::Evictable(PrefixNodeId node) const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (layouts_[static_cast<size_t>(g)].window) continue;
    for (BlockId block : BlocksOf(node, g)) {
      if (!pools_->pool(GroupId(g)).is_evictable(block)) return false;
    }
  }
  return true;
}

void PrefixCache::Evict(PrefixNodeId node) {
  policy_->Evict(node);
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (layouts_[static_cast<size_t>(g)].window) {
      if (HasBlocks(node, g)) DropWindow(node, g);
      continue;
    }
    for (BlockId& block : BlocksOf(node, g)) {
      pools_->PoolOf(g).Uncache(block);
      block = BlockId(-1);
    }
  }
  tree_.SetState(node, PrefixNodeState::kGhost);
  ++stats_.spans_evicted;
  OfferIfLeaf(tree_.parent(node));
}

void PrefixCache::Reclaim(GroupId group, int32_t count) {
  const int32_t g = group.value();
  const BlockPool& pool = pools_->pool(group);
  TANDEM_CHECK_LE(count, pool.evictable());
  const int32_t target = pool.free() + count;
  if (layouts_[static_cast<size_t>(g)].window) {
    EvictWindows(g, target, true);
    EvictWindows(g, target, false);
    return;
  }
  while (pool.free() < target) {
    std::optional<PrefixNodeId> leaf = policy_->Choose(evictable_);
    // No sequence stands below an evictable block, but a step or an agent can still touch what is
    // there, or a fork can hold parts of it. Such a leaf goes from the tree, and stays as it is.
    if (!leaf) leaf = policy_->Choose(any_);
    TANDEM_CHECK(leaf.has_value());
    Evict(*leaf);
  }
}

void PrefixCache::EvictWindows(int32_t group, int32_t free_target, bool whole) {
  const BlockPool& pool = pools_->pool(GroupId(group));
  const WindowList& list = windows_[static_cast<size_t>(group)];
  for (int32_t i = list.head; i >= 0 && pool.free() < free_target;) {
    const PrefixNodeId node(i);
    i = list.links[static_cast<size_t>(i)].next;
    const auto evictable = [&pool](BlockId block) { return pool.is_evictable(block); };
    const std::span<const BlockId> blocks = std::as_const(*this).BlocksOf(node, group);
    if (whole ? std::ranges::all_of(blocks, evictable) : std::ranges::any_of(blocks, evictable)) {
      DropWindow(node, group);
      ++stats_.windows_evicted;
    }
  }
}

void PrefixCache::DropWindow(PrefixNodeId node, int32_t group) {
  Unlink(group, node);
  for (BlockId& block : BlocksOf(node, group)) {
    pools_->PoolOf(group).Uncache(block);
    block = BlockId(-1);
  }
}

void PrefixCache::Link(int32_t group, PrefixNodeId node) {
  WindowList& list = windows_[static_cast<size_t>(group)];
  list.links[static_cast<size_t>(node.value())] = {.next = -1, .previous = list.tail};
  (list.tail < 0 ? list.head : list.links[static_cast<size_t>(list.tail)].next) = node.value();
  list.tail = node.value();
}

void PrefixCache::Unlink(int32_t group, PrefixNodeId node) {
  WindowList& list = windows_[static_cast<size_t>(group)];
  const WindowList::Link link = list.links[static_cast<size_t>(node.value())];
  (link.previous < 0 ? list.head : list.links[static_cast<size_t>(link.previous)].next) = link.next;
  (link.next < 0 ? list.tail : list.links[static_cast<size_t>(link.next)].previous) = link.previous;
}

// ---------------------------------------------------------------- figures and checks

int64_t PrefixCache::TokensHeldByOthers(const SequenceBlocks& sequence) const {
  for (const GroupLayout& layout : layouts_) {
    if (layout.window) return 0;
  }
  PrefixNodeId node = Node(sequence);
  if (node == kNoNode) return 0;
  // One reference is its own; whoever refers to a span refers to all before it.
  while (tree_.depth(node) >= 0 && PagedRefs(node) < 2) node = tree_.parent(node);
  return int64_t{tree_.depth(node) + 1} * span_tokens();
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = stats_;
  stats.resident_spans = tree_.num_resident();
  stats.ghost_spans = tree_.num_ghosts();
  return stats;
}

Status PrefixCache::CheckBlocks() const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    const BlockPool& pool = pools_->pool(GroupId(g));
    const bool window = layouts_[static_cast<size_t>(g)].window;
    std::vector<int32_t> seen(static_cast<size_t>(pool.total()), 0);
    int32_t parts = 0;
    for (int32_t i = 0; i < tree_.max_nodes(); ++i) {
      const PrefixNodeId node(i);
      const bool resident = tree_.state(node) == PrefixNodeState::kResident;
      const bool has = HasBlocks(node, g);
      if (has ? !resident : resident && !window) {
        return InternalError("prefix node {}: wrong blocks of group {}", node, g);
      }
      parts += has;
      for (BlockId block : BlocksOf(node, g)) {
        if ((block >= BlockId(0)) != has) return InternalError("prefix node {} is in parts", node);
        if (has) ++seen[static_cast<size_t>(block.value())];
      }
    }
    for (int32_t b = 0; b < pool.total(); ++b) {
      if (seen[static_cast<size_t>(b)] != pool.times_cached(BlockId(b))) {
        return InternalError("group {}: block {} is in {} prefix nodes", g, b,
                             seen[static_cast<size_t>(b)]);
      }
    }
    const WindowList& list = windows_[static_cast<size_t>(g)];
    int32_t listed = 0;
    for (int32_t i = list.head; i >= 0 && listed <= parts; ++listed) {
      i = list.links[static_cast<size_t>(i)].next;
    }
    if (window && listed != parts) return InternalError("{} windows listed of {}", listed, parts);
  }
  return OkStatus();
}

Status PrefixCache::CheckPaths(std::span<const SequenceBlocks* const> sequences) const {
  std::vector<bool> standing(static_cast<size_t>(tree_.max_nodes()), false);
  for (const SequenceBlocks* s : sequences) {
    PrefixNodeId node = Node(*s);
    if (node == kNoNode) continue;
    if (tree_.depth(node) + 1 != s->path_.spans || !tree_.locked(node)) {
      return InternalError("a sequence of {} spans stands at prefix node {}", s->path_.spans, node);
    }
    standing[static_cast<size_t>(node.value())] = true;
    for (; tree_.depth(node) >= 0; node = tree_.parent(node)) {
      for (int32_t g = 0; g < num_groups(); ++g) {
        if (layouts_[static_cast<size_t>(g)].window) continue;
        for (BlockId block : BlocksOf(node, g)) {
          if (pools_->pool(GroupId(g)).refs(block) > 0) continue;
          return InternalError("group {}: block {} lies on a path without a reference", g, block);
        }
      }
    }
  }
  for (int32_t i = 0; i < tree_.max_nodes(); ++i) {
    const PrefixNodeId node(i);
    const bool resident = tree_.state(node) == PrefixNodeState::kResident;
    const bool stands = standing[static_cast<size_t>(i)];
    if (tree_.locked(node) != stands) return InternalError("prefix node {}: wrong locks", node);
    const bool leaf = resident && !stands && tree_.resident_children(node) == 0;
    if (policy_->offered(node) != leaf || policy_->kept(node) != resident) {
      return InternalError("prefix node {} is not offered as it is used", node);
    }
  }
  return OkStatus();
}

Status PrefixCache::CheckIntegrity(std::span<const SequenceBlocks* const> sequences) const {
  TANDEM_RETURN_IF_ERROR(pools_->CheckIntegrity(sequences));
  TANDEM_RETURN_IF_ERROR(tree_.CheckIntegrity());
  TANDEM_RETURN_IF_ERROR(policy_->CheckIntegrity());
  TANDEM_RETURN_IF_ERROR(CheckBlocks());
  return CheckPaths(sequences);
}

}  // namespace tandem
