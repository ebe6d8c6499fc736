#include "fabric/expectation_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"

namespace tandem {
namespace {

using Seen = ExpectationTable::Seen;

TEST(ExpectationTable, EveryPieceOnceIsMet) {
  ExpectationTable table;
  const Expectation e = table.Expect(3, 100).value();
  EXPECT_EQ(table.Count(e.first + 2), Seen::kCounted);
  EXPECT_EQ(table.Count(e.first), Seen::kCounted);
  EXPECT_EQ(table.Count(e.first + 2), Seen::kDuplicate);  // the right count is not enough
  EXPECT_EQ(table.Count(e.first + 3), Seen::kUnknown);
  EXPECT_EQ(table.Count(e.first + 1), Seen::kMet);
  EXPECT_EQ(table.Count(e.first + 1), Seen::kDuplicate);
  EXPECT_FALSE(table.TakeLate(1000));  // met
}

TEST(ExpectationTable, LateAndAbandonedPiecesAreStale) {
  ExpectationTable table;
  const Expectation late = table.Expect(2, 100).value();
  const Expectation given_up = table.Expect(1, 300).value();
  EXPECT_EQ(table.next_deadline(), 100);
  EXPECT_EQ(table.Count(late.first), Seen::kCounted);
  EXPECT_FALSE(table.TakeLate(99));
  const auto ended = table.TakeLate(100);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->first, late.first);
  EXPECT_EQ(ended->missing, 1u);
  EXPECT_EQ(ended->status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(table.TakeLate(200));
  EXPECT_EQ(table.Count(late.first + 1), Seen::kStale);
  table.Abandon(given_up.first);
  EXPECT_FALSE(table.next_deadline());
  EXPECT_EQ(table.Count(given_up.first), Seen::kStale);
}

TEST(ExpectationTable, ASlotIsUsedAgainOnlyAfterDrainedAndUnderTheNextGeneration) {
  ExpectationTable table(1);
  const Expectation first = table.Expect(1, 100).value();
  EXPECT_EQ(table.Count(first.first), Seen::kMet);
  EXPECT_EQ(table.Expect(1, 100).status().code(), StatusCode::kResourceExhausted);
  table.Drained(first.first);
  EXPECT_EQ(table.Count(first.first), Seen::kStale);
  const Expectation second = table.Expect(1, 100).value();
  EXPECT_NE(second.first, first.first);
  EXPECT_EQ(table.Count(first.first), Seen::kStale);                  // the earlier generation
  EXPECT_EQ(table.Count(second.first + (1u << 24)), Seen::kUnknown);  // one that has not begun
  table.Drained(first.first);  // not the one that holds the slot
  EXPECT_EQ(table.taken(), 1u);
  EXPECT_EQ(table.Count(second.first), Seen::kMet);
}

TEST(ExpectationTable, PiecesHaveLimits) {
  ExpectationTable table;
  EXPECT_EQ(table.Expect(0, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Expect(kMaxExpectedPieces + 1, 1).status().code(), StatusCode::kInvalidArgument);
  const Expectation e = table.Expect(kMaxExpectedPieces, 1).value();
  for (uint32_t i = 0; i + 1 < e.pieces; ++i) ASSERT_EQ(table.Count(e.first + i), Seen::kCounted);
  EXPECT_EQ(table.Count(e.first + e.pieces - 1), Seen::kMet);
}

TEST(ExpectationTable, RandomRunsAgreeWithSets) {
  SplitMix64 rng(7);
  ExpectationTable table(4);
  struct Model {
    uint32_t pieces;
    std::set<uint32_t> missing;
    bool waiting = true;
  };
  std::map<Immediate, Model> live;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t what = rng.Below(10);
    if (what == 0 || live.empty()) {
      const auto pieces = static_cast<uint32_t>(1 + rng.Below(70));
      const auto e = table.Expect(pieces, 1 << 20);
      ASSERT_EQ(e.ok(), live.size() < 4);
      if (!e.ok()) continue;
      Model model{pieces, {}};
      for (uint32_t p = 0; p < pieces; ++p) model.missing.insert(p);
      ASSERT_TRUE(live.emplace(e->first, model).second);
      continue;
    }
    auto it = live.begin();
    std::advance(it, static_cast<long>(rng.Below(live.size())));
    Model& model = it->second;
    if (what == 1) {
      table.Drained(it->first);
      ASSERT_EQ(table.Count(it->first), Seen::kStale);
      live.erase(it);
    } else if (what == 2) {
      table.Abandon(it->first);
      model.waiting = false;
    } else {
      const auto piece = static_cast<uint32_t>(rng.Below(model.pieces + 2));
      const Seen seen = table.Count(it->first + piece);
      if (piece >= model.pieces) {
        ASSERT_EQ(seen, Seen::kUnknown);
      } else if (!model.waiting) {
        ASSERT_EQ(seen, Seen::kStale);
      } else if (model.missing.erase(piece) == 0) {
        ASSERT_EQ(seen, Seen::kDuplicate);
      } else {
        ASSERT_EQ(seen, model.missing.empty() ? Seen::kMet : Seen::kCounted);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
