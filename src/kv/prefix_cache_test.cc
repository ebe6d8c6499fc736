// Vectors: 8.3.3-prefix-reuse, 8.3.3-max-hit, 8.3.3-context-edit; data: kv_cache_salt_sequence.csv.
#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "kv/testing/cache_harness.h"
#include "kv/testing/vectors.h"

namespace tandem {
namespace {

using testing::CacheHarness;
using testing::Group;
using testing::Join;
using testing::Range;
using testing::RunningSequence;
using testing::Tenant;
using testing::TestOptions;
using testing::Vector;

constexpr GroupId kPaged{0};
constexpr GroupId kWindow{1};

int64_t Missed(const PrefixHit& hit, PrefixMiss miss) {
  return hit.missed[static_cast<size_t>(miss)];
}

int64_t Accounted(const PrefixHit& hit) {
  int64_t n = hit.tokens;
  for (int64_t missed : hit.missed) n += missed;
  return n;
}

void Check(const CacheHarness& harness, std::vector<const SequenceBlocks*> running = {}) {
  const Status status = harness.cache.CheckIntegrity(running);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(PrefixCache, TheLastTokenIsAlwaysComputed) {
  const auto& v = Vector("8.3.3-max-hit");
  for (size_t i = 0; i < v["inputs"]["prompt"].size(); ++i) {
    CacheHarness harness({Group(16, 1200)});
    const std::vector<TokenId> prompt = Range(0, v["inputs"]["prompt"][i]);
    harness.Run(Tenant(""), prompt);
    const PrefixHit hit = harness.Run(Tenant(""), prompt);
    EXPECT_EQ(hit.tokens, v["expected"]["hit"][i]);
    EXPECT_EQ(hit.potential_tokens, static_cast<int64_t>(prompt.size()));
    EXPECT_EQ(Accounted(hit), static_cast<int64_t>(prompt.size()));
    EXPECT_EQ(Missed(hit, PrefixMiss::kLastToken), prompt.size() % 16 == 0 ? 16 : 0);
    EXPECT_EQ(Missed(hit, PrefixMiss::kTail), static_cast<int64_t>(prompt.size() % 16));
    Check(harness);
  }
}

TEST(PrefixCache, ReuseEndsAtTheFirstDifference) {
  const auto& v = Vector("8.3.3-prefix-reuse");
  const int64_t prompt = v["inputs"]["prompt"];
  const int64_t cached = v["inputs"]["cached"];
  CacheHarness harness({Group(16, 2000)});
  harness.Run(Tenant(""), Range(0, cached));
  const PrefixHit hit = harness.Run(Tenant(""), Range(0, prompt));
  EXPECT_EQ(prompt - hit.tokens, v["expected"]["to_prefill"]);
  const int64_t same = v["inputs"]["first_difference_at"].get<int64_t>() - 1;
  const PrefixHit edited =
      harness.Run(Tenant(""), Join(Range(0, same), Range(500'000, prompt - same)));
  EXPECT_EQ(edited.potential_tokens, v["expected"]["reusable_tokens"]);
  EXPECT_EQ(edited.tokens, v["expected"]["reusable_in_full_blocks"]);
  EXPECT_EQ(Missed(edited, PrefixMiss::kTail), same - edited.tokens);
  EXPECT_EQ(Missed(edited, PrefixMiss::kNeverStored), prompt - same);
}

TEST(PrefixCache, EditsOfTheContext) {
  const auto& v = Vector("8.3.3-context-edit");
  const int64_t history = v["inputs"]["history"];
  const int64_t added = v["inputs"]["new"];
  const int64_t summary = v["inputs"]["summary"];
  CacheHarness harness({Group(16, 4000)});
  harness.Run(Tenant(""), Range(0, history));
  const std::vector<TokenId> fresh = Range(500'000, added);
  const std::vector<std::pair<const char*, std::vector<TokenId>>> edits = {
      {"append", Join(Range(0, history), fresh)},
      {"rewrite_front", Join(Join({TokenId(400'000)}, Range(1, history - 1)), fresh)},
      {"summary", Join(Range(600'000, summary), fresh)}};
  for (const auto& [name, prompt] : edits) {
    const PrefixHit hit = harness.Run(Tenant(""), prompt);
    EXPECT_EQ(hit.tokens, v["expected"][name]["reuse"]) << name;
    EXPECT_EQ(static_cast<int64_t>(prompt.size()) - hit.tokens, v["expected"][name]["process"]);
  }
}

// Ten requests that differ only in their namespace or first token, measured on another engine.
TEST(PrefixCache, NamespacesOfTheMeasuredSequence) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/data/chapter8/kv_cache_salt_sequence.csv");
  std::string line;
  std::getline(file, line);
  CacheHarness harness({Group(16, 2000)});
  int requests = 0;
  while (std::getline(file, line)) {
    std::vector<std::string> fields;
    std::stringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
    const std::string salt = fields[1] == "unset" || fields[1] == "empty" ? "" : fields[1];
    std::vector<TokenId> prompt = Range(0, 3136);
    const bool changed = fields[2] != "original";
    if (changed) prompt[0] = TokenId(77'777);
    const PrefixHit hit = harness.Run(Tenant(salt), prompt);
    EXPECT_EQ(hit.tokens, std::stoll(fields[3])) << line;
    if (hit.tokens == 0 && requests > 0) {
      EXPECT_EQ(Missed(hit, changed ? PrefixMiss::kNeverStored : PrefixMiss::kOtherIdentity), 3136)
          << line;
    }
    ++requests;
  }
  EXPECT_EQ(requests, 10);
  Check(harness);
}

uint64_t AllEqual(HashKey, uint64_t, std::span<const std::byte>) { return 7; }

TEST(PrefixCache, CollisionsAndTenantsNeverShareState) {
  PrefixCache::Options options = TestOptions();
  options.hash = &AllEqual;
  CacheHarness harness({Group(4, 200)}, options);
  for (const char* tenant : {"a", "b"}) {
    for (int32_t i = 0; i < 10; ++i) {
      const PrefixHit hit = harness.Run(Tenant(tenant), Range(100 * i, 17));
      EXPECT_EQ(hit.tokens, 0) << tenant << i;
    }
  }
  EXPECT_EQ(harness.Run(Tenant("a"), Range(300, 17)).tokens, 16);
  EXPECT_EQ(harness.Run(Tenant("a"), Join(Range(300, 4), Range(404, 13))).tokens, 4);
  EXPECT_EQ(harness.Run(Tenant("c"), Range(300, 17)).tokens, 0);
  Check(harness);
}

TEST(PrefixCache, HitIsByReferenceAndPromisesOnlyTheRest) {
  CacheHarness harness({Group(4, 10)});
  auto a = harness.Start(Tenant(""), Range(0, 16));
  auto b = harness.Start(Tenant(""), Join(Range(0, 12), Range(90, 8)), 0);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->blocks.tokens(), 12);
  EXPECT_EQ(b->blocks.reserved(kPaged), 2);
  for (int32_t e = 0; e < 3; ++e) {
    EXPECT_EQ(b->blocks.table(kPaged).at(e), a->blocks.table(kPaged).at(e));
  }
  ASSERT_EQ(harness.plan.appends.size(), 3u);
  EXPECT_TRUE(harness.plan.copies.empty());
  Check(harness, {&a->blocks, &b->blocks});
  harness.Finish(std::move(a));
  EXPECT_EQ(harness.pools.pool(kPaged).evictable(), 1) << "b holds the other three";
  harness.Finish(std::move(b));
  Check(harness);
}

TEST(PrefixCache, AdmissionCountsEvictableBlocksButNotThoseItStartsFrom) {
  CacheHarness harness({Group(4, 8)});
  harness.Run(Tenant(""), Range(0, 32));
  EXPECT_EQ(harness.pools.pool(kPaged).available(), 8);
  EXPECT_EQ(harness.Start(Tenant(""), Join(Range(0, 16), Range(90, 17))), nullptr) << "9 blocks";
  auto a = harness.Start(Tenant(""), Join(Range(0, 16), Range(90, 16)));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->hit.tokens, 16);
  EXPECT_EQ(harness.cache.stats().spans_evicted, 4) << "the tail of the first";
  EXPECT_EQ(harness.cache.Find(Tenant(""), Range(0, 33)).tokens, 16);
  EXPECT_EQ(Missed(harness.cache.Find(Tenant(""), Range(0, 33)), PrefixMiss::kEvicted), 16);
  Check(harness, {&a->blocks});
  harness.Finish(std::move(a));
}

TEST(PrefixCache, EvictionSkipsLockedFencedAndHeldBlocks) {
  CacheHarness harness({Group(4, 6)});
  auto a = harness.Start(Tenant("a"), Range(0, 4));
  auto b = harness.Start(Tenant("b"), Range(0, 4));
  auto c = harness.Start(Tenant("c"), Range(0, 8));
  const BlockId held = c->blocks.table(kPaged).at(1);
  harness.pools.BeginUse(kPaged, held, UseAgent::kOutboundWrite);
  harness.Finish(std::move(c));
  harness.cache.Release(&b->blocks, b->tokens,
                        StepId(harness.step() + 1));  // a step still reads it
  EXPECT_EQ(harness.pools.pool(kPaged).evictable(), 1);
  EXPECT_EQ(harness.Start(Tenant("d"), Range(0, 16)), nullptr);
  // c's first block lies above a held one: the held one leaves the tree, and stays held.
  auto d = harness.Start(Tenant("d"), Range(0, 12));
  ASSERT_NE(d, nullptr);
  EXPECT_EQ(harness.pools.pool(kPaged).held(), 1);
  EXPECT_EQ(harness.cache.Find(Tenant("a"), Range(0, 5)).tokens, 4) << "a runs";
  EXPECT_EQ(harness.cache.Find(Tenant("b"), Range(0, 5)).tokens, 4) << "its step was not over";
  EXPECT_EQ(harness.cache.Find(Tenant("c"), Range(0, 9)).tokens, 0);
  harness.pools.EndUse(kPaged, held, UseAgent::kOutboundWrite);
  EXPECT_EQ(harness.pools.pool(kPaged).held(), 0);
  harness.Finish(std::move(a));
  harness.Finish(std::move(d));
  Check(harness);
}

TEST(PrefixCache, OnlyCommittedTokensEnter) {
  CacheHarness harness({Group(4, 20)});
  auto a = harness.Start(Tenant(""), Range(0, 16), 10);
  EXPECT_EQ(harness.cache.Find(Tenant(""), Range(0, 16)).tokens, 8);
  StepPlan plan;
  plan.step = StepId(harness.step() + 1);
  ASSERT_EQ(harness.pools.Grow(&a->blocks, 16, a->slot, &plan), Growth::kDone);
  EXPECT_EQ(harness.cache.Find(Tenant(""), Range(0, 17)).tokens, 8) << "planned, not committed";
  harness.cache.Release(&a->blocks, a->tokens, plan.step);
  harness.pools.CompleteSteps(plan.step);
  EXPECT_EQ(harness.cache.Find(Tenant(""), Range(0, 17)).tokens, 8) << "nor by a cancel";
  EXPECT_EQ(harness.pools.busy_blocks(), 0);
  Check(harness);
}

TEST(PrefixCache, AWaiterTakesOverWhenTheOwnerIsCancelled) {
  CacheHarness harness({Group(4, 60)});
  const std::vector<TokenId> prompt = Range(0, 41);
  auto a = harness.Start(Tenant(""), prompt, 8, /*owner=*/1);
  const PrefixHit b = harness.cache.Find(Tenant(""), prompt);
  EXPECT_EQ(b.tokens, 8);
  EXPECT_EQ(b.pending_owner, 1u);
  EXPECT_EQ(b.pending_tokens, 40);
  EXPECT_EQ(Missed(b, PrefixMiss::kPending), 32);
  const PrefixHit part = harness.cache.Find(Tenant(""), Join(Range(0, 20), Range(70, 9)));
  EXPECT_EQ(part.pending_tokens, 20);
  EXPECT_EQ(harness.cache.Find(Tenant("x"), prompt).pending_owner, 0u) << "another tenant";
  harness.Compute(a.get(), 16);
  EXPECT_EQ(harness.cache.Find(Tenant(""), prompt).tokens, 16);
  harness.Finish(std::move(a));
  EXPECT_EQ(harness.cache.Find(Tenant(""), prompt).pending_owner, 0u);
  Check(harness);
  auto taker = harness.Start(Tenant(""), prompt, 20, /*owner=*/2);
  EXPECT_EQ(taker->hit.tokens, 16);
  EXPECT_EQ(harness.cache.Find(Tenant(""), prompt).pending_owner, 2u);
  harness.Compute(taker.get(), 41);
  const PrefixHit c = harness.cache.Find(Tenant(""), prompt);
  EXPECT_EQ(c.tokens, 40);
  EXPECT_EQ(c.pending_owner, 0u);
  Check(harness, {&taker->blocks});
  harness.Finish(std::move(taker));
}

// 16 requests with a common prefix arrive at once: each asks, one computes.
TEST(PrefixCache, SixteenSimultaneousRequestsComputeTheirPrefixOnce) {
  CacheHarness harness({Group(16, 400)});
  std::vector<std::unique_ptr<RunningSequence>> running;
  int64_t computed = 0;
  std::vector<std::vector<TokenId>> waiting;
  for (int32_t i = 0; i < 16; ++i)
    waiting.push_back(Join(Range(0, 1024), Range(9000 + 50 * i, 40)));
  for (int round = 0; !waiting.empty(); ++round) {
    ASSERT_LT(round, 16);
    std::vector<std::vector<TokenId>> again;
    for (std::vector<TokenId>& prompt : waiting) {
      const PrefixHit hit = harness.cache.Find(Tenant(""), prompt);
      if (hit.pending_tokens > hit.tokens) {
        again.push_back(std::move(prompt));
        continue;
      }
      computed += static_cast<int64_t>(prompt.size()) - hit.tokens;
      running.push_back(harness.Start(Tenant(""), std::move(prompt), hit.tokens,
                                      static_cast<uint64_t>(running.size()) + 1));
    }
    for (auto& s : running) {
      const auto all = static_cast<int64_t>(s->tokens.size());
      harness.Compute(s.get(), std::min(all, s->blocks.tokens() + 256));
    }
    waiting = std::move(again);
  }
  EXPECT_EQ(computed, 1024 + 16 * 40);
  for (auto& s : running) {
    harness.Compute(s.get(), static_cast<int64_t>(s->tokens.size()));
    harness.Finish(std::move(s));
  }
  Check(harness);
}

TEST(PrefixCache, DuplicateWorkIsPinnedWhileInUseAndReplacedWhenNot) {
  CacheHarness harness({Group(4, 40)});
  auto a = harness.Start(Tenant(""), Range(0, 12), 0);
  auto b = harness.Start(Tenant(""), Join(Range(0, 8), Range(50, 8)), 0);
  harness.Compute(a.get(), 12);
  harness.Compute(b.get(), 16);  // its first two spans are a's
  EXPECT_EQ(harness.cache.stats().spans_duplicated, 2);
  Check(harness, {&a->blocks, &b->blocks});
  harness.Finish(std::move(a));
  EXPECT_EQ(harness.pools.pool(kPaged).evictable(), 1) << "the spans that b's path needs stay";
  Check(harness, {&b->blocks});
  // c computes the last span of b's prompt again; nobody uses the stored one, so c's own replaces
  // it.
  harness.Finish(std::move(b));
  auto c = harness.Start(Tenant(""), Join(Range(0, 8), Range(50, 8)));
  EXPECT_EQ(c->hit.tokens, 12);
  Check(harness, {&c->blocks});
  EXPECT_EQ(harness.pools.pool(kPaged).evictable(), 1) << "a's last span only";
  harness.Finish(std::move(c));
  Check(harness);
}

TEST(PrefixCache, WindowGroupsRestoreWhereTheirWindowIsStored) {
  CacheHarness harness({Group(4, 100), Group(2, 12, 6)}, TestOptions(), 8);
  const std::vector<TokenId> prompt = Range(0, 41);
  auto a = harness.Start(Tenant(""), prompt, 0);
  for (int64_t end = 8; end <= 40; end += 8) harness.Compute(a.get(), end);
  harness.Finish(std::move(a));
  // 20 window blocks were stored in a pool of 12: the oldest went.
  const PrefixHit whole = harness.cache.Find(Tenant(""), prompt);
  EXPECT_EQ(whole.tokens, 40);
  const PrefixHit early = harness.cache.Find(Tenant(""), Range(0, 13));
  EXPECT_EQ(early.tokens, 0) << "the window before position 12 is gone";
  EXPECT_EQ(Missed(early, PrefixMiss::kWindow), 12);
  auto b = harness.Start(Tenant(""), prompt, 0);
  EXPECT_EQ(b->blocks.tokens(), 40);
  EXPECT_EQ(b->blocks.table(kPaged).num_held(), 10);
  // Position 40 reads 35 .. 39: entries 17 .. 19, as copies.
  EXPECT_EQ(b->blocks.table(kWindow).first_held(), 17);
  EXPECT_EQ(b->blocks.table(kWindow).num_held(), 3);
  EXPECT_EQ(harness.plan.copies.size(), 3u);
  Check(harness, {&b->blocks});
  harness.Finish(std::move(b));
  Check(harness);
}

TEST(PrefixCache, ForkedSequencesStandInTheTreeToo) {
  CacheHarness harness({Group(4, 40)});
  auto a = harness.Start(Tenant(""), Range(0, 18), 17);
  SequenceBlocks child = harness.pools.MakeSequence(100);
  StepPlan plan;
  plan.step = StepId(harness.step() + 1);
  ASSERT_TRUE(harness.cache.Fork(&a->blocks, &child, 17, 30, SlotId(9), &plan));
  Check(harness, {&a->blocks, &child});
  harness.Finish(std::move(a));
  EXPECT_EQ(harness.pools.pool(kPaged).evictable(), 0) << "the child holds the path";
  const std::vector<TokenId> tokens = Join(Range(0, 17), Range(60, 10));
  ASSERT_EQ(harness.pools.Grow(&child, 24, SlotId(9), &plan), Growth::kDone);
  harness.pools.CompleteSteps(plan.step);
  harness.cache.Commit(&child, tokens, 24, plan.step);
  EXPECT_EQ(harness.cache.Find(Tenant(""), tokens).tokens, 24);
  harness.cache.Release(&child, tokens, plan.step);
  Check(harness);
}

TEST(PrefixCache, ManyIdentitiesInASmallTreeStayBounded) {
  CacheHarness harness({Group(4, 8)});
  for (int32_t i = 0; i < 2000; ++i) {
    harness.Run(Tenant(std::to_string(i)), Range(i, 9));
    ASSERT_LE(harness.cache.tree().num_nodes(), harness.cache.tree().max_nodes());
  }
  Check(harness);
}

}  // namespace
}  // namespace tandem
