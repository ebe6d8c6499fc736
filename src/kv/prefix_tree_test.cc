// Vector: 8.3.3-radix-tree.
#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <array>

#include "kv/testing/cache_harness.h"
#include "kv/testing/vectors.h"

namespace tandem {
namespace {

using testing::Join;
using testing::Range;
using testing::Tenant;
using testing::Vector;

uint64_t AllEqual(HashKey, uint64_t, std::span<const std::byte>) { return 7; }

PrefixTree::Options Small(int32_t span, int32_t max_nodes,
                          PrefixTree::HashFunction hash = &KeyedHash) {
  return {.span_tokens = span,
          .blocks_per_node = 1,
          .max_nodes = max_nodes,
          .key = {3, 5},
          .hash = hash};
}

// Adds the whole spans of `tokens` as resident; returns the last node.
PrefixNodeId AddAll(PrefixTree* tree, PrefixNodeId node, std::span<const TokenId> tokens) {
  const auto span = static_cast<size_t>(tree->span_tokens());
  for (; tokens.size() >= span; tokens = tokens.subspan(span)) {
    const PrefixNodeId found = tree->FindChild(node, tokens);
    node = found != kNoNode ? found
                            : tree->AddChild(node, tokens.first(span), PrefixNodeState::kResident);
  }
  return node;
}

// Made with the SipHash-1-3 of CPython 3.11 (PYTHONHASHSEED=0: a key of zeros): its hash of the
// bytes 1, 2, 3 ..., of which the first eight are the seed here.
TEST(KeyedHash, IsSipHashOfSeedAndBytes) {
  std::array<std::byte, 16> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 9);
  constexpr uint64_t kSeed = 0x0807060504030201;
  EXPECT_EQ(KeyedHash({0, 0}, kSeed, std::span(bytes).first(3)), 0x170597e73eb4d0e9u);
  EXPECT_EQ(KeyedHash({0, 0}, kSeed, bytes), 0x7b5ea8edf9b7c0b3u);
  EXPECT_NE(KeyedHash({0, 1}, kSeed, bytes), 0x7b5ea8edf9b7c0b3u);
}

TEST(PrefixTree, CompressedTreeOfTheChaptersRounds) {
  const auto& v = Vector("8.3.3-radix-tree");
  PrefixTree tree(Small(1, 4096));
  const PrefixNodeId root = tree.FindOrAddRoot(Tenant(""));
  const auto& lengths = Vector("8.3.3-agent-trace")["inputs"]["input_tokens"];
  int32_t own = 1'000'000;
  for (size_t i = 0; i < v["inputs"]["rounds"]; ++i, own += 4) {
    AddAll(&tree, root, Join(Range(0, lengths[i].get<int64_t>() - 4), Range(own, 4)));
  }
  EXPECT_EQ(tree.ToText(),
            "206 (+206)\n"
            "  210 (+4)\n"
            "  312 (+106)\n"
            "    316 (+4)\n"
            "    666 (+354)\n"
            "      670 (+4)\n"
            "      884 (+218)\n");
  EXPECT_EQ(v["expected"]["root_depth"], 206);
  for (const auto& node : v["expected"]["nodes"]) {
    for (std::string child : node["children"]) {
      child = child.substr(child.find(' ') + 1);  // behind "leaf" or "node"
      EXPECT_NE(tree.ToText().find(child), std::string::npos) << child;
    }
  }
  EXPECT_TRUE(tree.CheckIntegrity().ok());
}

TEST(PrefixTree, CollidingHashesNeverMeet) {
  PrefixTree tree(Small(4, 256, &AllEqual));
  const PrefixNodeId a = tree.FindOrAddRoot(Tenant("a"));
  const PrefixNodeId b = tree.FindOrAddRoot(Tenant("b"));
  ASSERT_NE(a, b);
  EXPECT_EQ(tree.FindRoot(Tenant("c")), kNoNode);
  for (int32_t i = 0; i < 16; ++i) AddAll(&tree, a, Range(100 * i, 12));
  const PrefixNodeId end = AddAll(&tree, b, Range(0, 4));
  EXPECT_EQ(tree.FindChild(b, Range(0, 4)), end);
  EXPECT_EQ(tree.FindChild(b, Range(100, 4)), kNoNode) << "only tenant a has it";
  EXPECT_EQ(tree.FindChild(end, Range(4, 4)), kNoNode) << "it follows under tenant a only";
  for (int32_t i = 0; i < 16; ++i) {
    PrefixNodeId node = tree.FindChild(a, Range(100 * i, 4));
    ASSERT_NE(node, kNoNode);
    EXPECT_NE(tree.FindChild(node, Range(100 * i + 4, 4)), kNoNode);
    EXPECT_EQ(tree.FindChild(node, Range(100 * i + 5, 4)), kNoNode);
  }
  const Status status = tree.CheckIntegrity();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(PrefixTree, IdentitiesAreComparedInEveryField) {
  PrefixTree tree(Small(4, 64, &AllEqual));
  PrefixIdentity base = Tenant("x");
  const PrefixNodeId root = tree.FindOrAddRoot(base);
  const auto differs = [&](auto change) {
    PrefixIdentity other = base;
    change(&other);
    return tree.FindRoot(other) == kNoNode && tree.FindOrAddRoot(other) != root;
  };
  EXPECT_TRUE(differs([](PrefixIdentity* i) { i->model.low ^= 1; }));
  EXPECT_TRUE(differs([](PrefixIdentity* i) { i->state_format.high ^= 1; }));
  EXPECT_TRUE(differs([](PrefixIdentity* i) { i->position_rule.low ^= 1; }));
  EXPECT_TRUE(differs([](PrefixIdentity* i) { i->adapter.low ^= 1; }));
  EXPECT_TRUE(differs([](PrefixIdentity* i) { i->tenant_salt += '\0'; }));
  EXPECT_EQ(tree.FindOrAddRoot(base), root);
}

TEST(PrefixTree, OldestGhostsGiveWayAndRootsGoWithTheirLastNode) {
  PrefixTree tree(Small(2, 4));
  const PrefixNodeId a = tree.FindOrAddRoot(Tenant("a"));
  const PrefixNodeId first = tree.AddChild(a, Range(0, 2), PrefixNodeState::kGhost);
  tree.AddChild(first, Range(2, 1), PrefixNodeState::kGhost);  // the end of an input
  EXPECT_EQ(tree.PartialMatch(first, Range(2, 2)), 1);
  const PrefixNodeId b = tree.FindOrAddRoot(Tenant("b"));
  tree.Lock(b);
  EXPECT_EQ(tree.num_nodes(), 4);
  // The older ghost has a child, so the child goes first; then the ghost, and with it root a.
  ASSERT_NE(tree.AddChild(b, Range(10, 2), PrefixNodeState::kResident), kNoNode);
  EXPECT_EQ(tree.PartialMatch(first, Range(2, 2)), 0);
  ASSERT_NE(tree.AddChild(b, Range(20, 2), PrefixNodeState::kResident), kNoNode);
  EXPECT_EQ(tree.FindRoot(Tenant("a")), kNoNode);
  ASSERT_NE(tree.AddChild(b, Range(30, 2), PrefixNodeState::kPending), kNoNode);
  EXPECT_EQ(tree.AddChild(b, Range(40, 2), PrefixNodeState::kPending), kNoNode) << "no ghosts left";
  EXPECT_TRUE(tree.CheckIntegrity().ok());
}

}  // namespace
}  // namespace tandem
