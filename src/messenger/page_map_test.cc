#include "messenger/page_map.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/rng.h"
#include "messenger/testing/fake_state.h"

namespace tandem {
namespace {

using testing::FakeGroups;

StateGroup Paged(std::vector<int32_t> layers, int32_t tokens_per_block) {
  StateGroup group = FakeGroups()[0];
  group.layers = std::move(layers);
  group.tokens_per_block = tokens_per_block;
  return group;
}

TEST(PageMap, CountsOnePagePerLayerAndBlock) {
  const std::vector<StateGroup> groups = {Paged({0, 1, 2}, 16)};
  EXPECT_EQ(PageMap::Create(groups, 0, 1)->pages(), 3);
  EXPECT_EQ(PageMap::Create(groups, 0, 16)->pages(), 3);
  EXPECT_EQ(PageMap::Create(groups, 0, 17)->pages(), 6);
  EXPECT_EQ(PageMap::Create(groups, 16, 17)->pages(), 3);
}

TEST(PageMap, OfAWindowOnlyWhatTheNextTokenReads) {
  // Blocks of 2 tokens, a window of 6: position 20 reads 15 to 20, so blocks 7, 8 and 9 hold state.
  const std::vector<StateGroup> groups = {FakeGroups()[1]};
  auto map = PageMap::Create(groups, 0, 20);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->group(0).first_block, 7);
  EXPECT_EQ(map->group(0).end_block, 10);
  EXPECT_EQ(map->pages(), 3 * 2);
  EXPECT_EQ(PageMap::Create(groups, 18, 20)->pages(), 2) << "what the decoder has stays there";
  EXPECT_EQ(PageMap::Create(groups, 0, 3)->pages(), 4) << "the window begins before the prompt";
}

TEST(PageMap, RefusesWhatIsNoHandoff) {
  const std::vector<StateGroup> groups = FakeGroups();
  EXPECT_EQ(PageMap::Create(groups, 0, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PageMap::Create(groups, 8, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PageMap::Create(groups, -4, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PageMap::Create(groups, 6, 8).status().code(), StatusCode::kInvalidArgument);
  const std::vector<StateGroup> tiny = {Paged({0, 1, 2}, 1)};
  EXPECT_EQ(PageMap::Create(tiny, 0, 1 << 20).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(PageMap::Create(tiny, 0, INT32_MAX).status().code(), StatusCode::kOutOfRange);
}

// The formula of spec H5, and a number of its own for each page of it.
TEST(PageMap, NumbersEveryPageOnce) {
  SplitMix64 random(5);
  const std::vector<StateGroup> groups = FakeGroups();
  for (int round = 0; round < 500; ++round) {
    const auto tokens = static_cast<int32_t>(1 + random.Below(200));
    const auto have = static_cast<int32_t>(random.Below(static_cast<uint64_t>(tokens)) / 4 * 4);
    auto map = PageMap::Create(groups, have, tokens);
    ASSERT_TRUE(map.ok());
    std::set<int32_t> pages;
    int32_t expected = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const int32_t per_block = groups[g].tokens_per_block;
      for (int32_t block = 0; block * per_block < tokens; ++block) {
        bool wanted = false;  // any of its positions is read, and not there
        for (int32_t p = block * per_block; p < std::min(tokens, (block + 1) * per_block); ++p) {
          wanted |= p >= have && p >= testing::FirstRead(groups[g], tokens);
        }
        const bool in_map = block >= map->group(g).first_block && block < map->group(g).end_block;
        ASSERT_EQ(in_map, wanted);
        if (!wanted) continue;
        for (size_t l = 0; l < groups[g].layers.size(); ++l, ++expected) {
          pages.insert(map->PageOf(g, block, static_cast<int32_t>(l)));
        }
      }
    }
    ASSERT_EQ(map->pages(), expected);
    ASSERT_EQ(pages.size(), static_cast<size_t>(expected));
    ASSERT_EQ(*pages.begin(), 0);
    ASSERT_EQ(*pages.rbegin(), expected - 1);
  }
}

TEST(PageMap, ExpectationsTakeAFixedNumberOfPages) {
  std::vector<int32_t> layers(40);
  for (int32_t l = 0; l < 40; ++l) layers[static_cast<size_t>(l)] = l;
  const std::vector<StateGroup> groups = {Paged(layers, 16)};
  auto map = PageMap::Create(groups, 0, 16 * 250);  // 10,000 pages
  ASSERT_TRUE(map.ok());
  ASSERT_EQ(map->expectations(), 3);
  EXPECT_EQ(map->PiecesOf(0), kMaxExpectedPieces);
  EXPECT_EQ(map->PiecesOf(2), 10000 - 2 * kMaxExpectedPieces);
  std::vector<Expectation> given = {{7u << 12, 4096}, {9u << 12, 4096}, {2u << 12, 1808}};
  EXPECT_TRUE(map->Fits(given));
  EXPECT_EQ(PageMap::ImmediateOf(given, 0), 7u << 12);
  EXPECT_EQ(PageMap::ImmediateOf(given, 4095), (7u << 12) + 4095);
  EXPECT_EQ(PageMap::ImmediateOf(given, 4096), 9u << 12);
  EXPECT_EQ(PageMap::ImmediateOf(given, 9999), (2u << 12) + 1807);
  given[1].first += 1;  // would run into the next slot
  EXPECT_FALSE(map->Fits(given));
  given[1].first -= 1;
  given[2].pieces -= 1;
  EXPECT_FALSE(map->Fits(given));
  given.pop_back();
  EXPECT_FALSE(map->Fits(given));
}

TEST(HandoffFormat, NamesTheFirstDifference) {
  const HandoffFormat mine = testing::FakeFormat();
  EXPECT_TRUE(CheckSameFormat(mine, mine).ok());
  struct Case {
    void (*change)(HandoffFormat*);
    const char* named;
  };
  const Case cases[] = {
      {[](HandoffFormat* f) { f->identity.low ^= 1; }, "another model: fake ("},
      {[](HandoffFormat* f) { f->numerics = "fast"; }, "numerics: exact here, fast there"},
      {[](HandoffFormat* f) { f->groups.pop_back(); }, "number of state groups: 2 here, 1 there"},
      {[](HandoffFormat* f) { f->groups[1].kind = StateKind::kPaged; },
       "state group 1: another kind: window here, paged there"},
      {[](HandoffFormat* f) {
         f->groups[0].shard = {0, 2};
       },
       "split of the heads (shards): 1"},
      {[](HandoffFormat* f) { f->groups[0].layers[1] = 1; }, "other layers: 0 2 3 here, 0 1 3"},
      {[](HandoffFormat* f) { f->groups[0].num_heads = 2; }, "number of heads: 1 here, 2 there"},
      {[](HandoffFormat* f) { f->groups[0].tokens_per_block = 8; }, "tokens per block: 4 here, 8"},
      {[](HandoffFormat* f) { f->groups[1].window_tokens = 8; }, "window: 6 here, 8 there"},
      {[](HandoffFormat* f) { f->groups[0].planes[0].dtype = DType::kF16; },
       "plane 'kv': another type of values: F32 here, F16 there"},
      {[](HandoffFormat* f) { f->groups[0].planes[0].tile = TileLayout::kDimMajor; },
       "tile: token-major here, dim-major there"},
      {[](HandoffFormat* f) { f->groups[0].planes[0].dims = 4; }, "token and head: 2 here, 4"},
      {[](HandoffFormat* f) { f->groups[0].planes[0].name = "v"; }, "name: kv here, v there"},
  };
  for (const Case& c : cases) {
    HandoffFormat theirs = mine;
    c.change(&theirs);
    const Status status = CheckSameFormat(mine, theirs);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(c.named), std::string::npos)
        << status.message() << " lacks: " << c.named;
  }
}

}  // namespace
}  // namespace tandem
