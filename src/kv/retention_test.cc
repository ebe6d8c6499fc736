// Vectors: 8.3.4-cache-value, 8.3.4-cache-value-62, repo-prefix-value, 8.2.3-pairs,
//   8.2.3-chunk-work,
// 8.2.3-split-reads (the cost terms that T_r comes from).
#include "kv/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "core/cost.h"
#include "kv/testing/cache_harness.h"
#include "kv/testing/vectors.h"

namespace tandem {
namespace {

using testing::CacheHarness;
using testing::ChapterCost;
using testing::ChapterCosts;
using testing::ChapterGroup;
using testing::Range;
using testing::Tenant;
using testing::TestOptions;
using testing::Vector;

constexpr double kMiB = 1 << 20;

RetentionCosts Costs() {
  RetentionCosts costs;
  costs.recompute_s = &testing::TestRecomputeS;
  return costs;
}

bool Any(PrefixNodeId) { return true; }

TEST(Retention, CostTermsOfTheChapter) {
  const auto& pairs = Vector("8.2.3-pairs");
  for (size_t i = 0; i < pairs["inputs"]["cases"].size(); ++i) {
    const int64_t c = pairs["inputs"]["cases"][i][0];
    const int64_t h = pairs["inputs"]["cases"][i][1];
    EXPECT_EQ(ChapterCost(h, h + c).causal_pairs, pairs["expected"]["pairs"][i]);
  }
  const auto& work = Vector("8.2.3-chunk-work");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t h = work["inputs"]["h"][i];
    EXPECT_EQ(static_cast<int64_t>(ChapterCost(h, h + 512).flops), work["expected"]["flops"][i]);
  }
  // Each pass reads the weights once more.
  const auto& reads = Vector("8.2.3-split-reads");
  const int64_t ffn_bytes = reads["inputs"]["ffn_bytes"];
  const StateGroup groups[] = {ChapterGroup(1).group};
  const ModelCost model = CostOfModel(testing::ChapterModel(), groups, ffn_bytes, 0);
  StepPlan chunk{.rows = {PlanRow{.num_tokens = 256}}};
  StepPlan half{.rows = {PlanRow{.num_tokens = 128}}};
  StepCost two = CostOfStep(model, half);
  two += CostOfStep(model, half);
  EXPECT_EQ(CostOfStep(model, chunk).weight_bytes, reads["expected"]["one_mib"].get<int64_t>()
                                                       << 20);
  EXPECT_EQ(two.weight_bytes, reads["expected"]["two_mib"].get<int64_t>() << 20);
}

struct ChapterPrefix {
  double recompute_s, transfer_s, value_s, mib;
};

ChapterPrefix Prefix(int64_t tokens, double efficiency, double p, double link) {
  const StateGroup group = ChapterGroup(1).group;
  const auto bytes = static_cast<double>(group.BlocksFor(tokens) * group.BlockBytes());
  ChapterPrefix prefix{};
  prefix.recompute_s = ChapterCosts(503.8e12 * efficiency).recompute_s(0, tokens);
  prefix.transfer_s = bytes / link;
  prefix.value_s = RetentionValue(p, prefix.recompute_s, prefix.transfer_s, prefix.transfer_s);
  prefix.mib = bytes / kMiB;
  return prefix;
}

void ExpectNear(double ours, const nlohmann::json& theirs) {
  EXPECT_NEAR(ours, theirs.get<double>(), 1e-9 * std::abs(theirs.get<double>()));
}

TEST(Retention, ValuesOfTheChaptersPrefixes) {
  for (const char* id : {"8.3.4-cache-value", "8.3.4-cache-value-62"}) {
    const auto& v = Vector(id);
    const double efficiency = v["inputs"]["efficiency"];
    const double p = v["inputs"]["p"];
    for (const auto& [gen, link] : {std::pair("gen5", 64e9), std::pair("gen4", 32e9)}) {
      std::array<ChapterPrefix, 2> prefixes{};
      for (size_t i = 0; i < 2; ++i) {
        const auto& expected = v["expected"][std::string(i == 0 ? "A_" : "B_") + gen];
        const ChapterPrefix prefix = Prefix(i == 0 ? 6144 : 2048, efficiency, p, link);
        prefixes[i] = prefix;
        ExpectNear(prefix.recompute_s * 1e3, expected["T_r_ms"]);
        ExpectNear(prefix.transfer_s * 1e3, expected["T_f_ms"]);
        ExpectNear(RetentionValue(1, prefix.recompute_s, prefix.transfer_s, 0) * 1e3,
                   expected["saving_per_hit_ms"]);
        ExpectNear(prefix.value_s * 1e3, expected["V_ms"]);
        ExpectNear(prefix.value_s * 1e3 / prefix.mib, expected["V_per_mib"]);
        const double least = expected["min_hit_prob"];
        EXPECT_NEAR(RetentionValue(least, prefix.recompute_s, prefix.transfer_s, prefix.transfer_s),
                    0, 1e-12);
      }
      ExpectNear(3 * prefixes[1].value_s * 1e3,
                 v["expected"][std::string("three_B_") + gen + "_ms"]);
      const bool a = prefixes[0].value_s / prefixes[0].mib > prefixes[1].value_s / prefixes[1].mib;
      EXPECT_EQ(a ? "A" : "B", v["expected"][std::string("choose_") + gen]);
      const double tie = v["expected"][std::string("A_prob_tie_") + gen];
      EXPECT_NEAR(RetentionValue(tie, prefixes[0].recompute_s, prefixes[0].transfer_s,
                                 prefixes[0].transfer_s),
                  3 * prefixes[1].value_s, 1e-9);
    }
  }
}

// The value policy is the greedy choice of the vector: of prefixes that are reused equally often
// the one of the highest value per byte stays whole.
TEST(Retention, GreedyChoiceUnderAByteBudget) {
  const auto& v = Vector("repo-prefix-value");
  const int64_t block_bytes = ChapterGroup(1).group.BlockBytes();
  const auto& lengths = v["inputs"]["prefixes"];
  const auto budget =
      static_cast<int32_t>(v["inputs"]["budget_bytes"].get<int64_t>() / block_bytes);
  PrefixCache::Options options = TestOptions(RetentionKind::kValue);
  options.costs = ChapterCosts(1e12);
  const int32_t all = 512 / 16 + 768 / 16 + 1024 / 16;
  CacheHarness harness({ChapterGroup(all + 1)}, std::move(options));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    EXPECT_EQ(length / 16 * block_bytes, v["expected"]["bytes"][i]);
    EXPECT_EQ(static_cast<int64_t>(ChapterCost(0, length).flops), v["expected"]["saved_flops"][i]);
  }
  const auto prefix = [](size_t i, int64_t length) {
    return Range(static_cast<int32_t>(100000 * (i + 1)), length);
  };
  for (int reuse = 0; reuse < 10; ++reuse) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      harness.Run(Tenant(""), prefix(i, lengths[i].get<int64_t>() + 1));
    }
  }
  EXPECT_EQ(harness.pools.pool(GroupId(0)).evictable(), all);
  harness.Start(Tenant("other"), Range(0, int64_t{all + 1 - budget} * 16));
  std::vector<int64_t> whole;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    const PrefixHit hit = harness.cache.Find(Tenant(""), prefix(i, length + 1));
    if (hit.tokens == length) whole.push_back(length);
  }
  EXPECT_EQ(whole, v["expected"]["greedy"].get<std::vector<int64_t>>());
}

TEST(Retention, LruEvictsTheTailOfTheOldestFirst) {
  LruRetention lru(8, Costs());
  for (int32_t i = 0; i < 4; ++i) {
    lru.Insert(PrefixNodeId(i), {.first_token = 16 * (i % 2), .num_tokens = 16, .bytes = 1});
  }
  for (int32_t i : {2, 3}) lru.Touch(PrefixNodeId(i), 1);
  for (int32_t i : {0, 1}) lru.Touch(PrefixNodeId(i), 2);
  for (int32_t i = 0; i < 4; ++i) lru.Offer(PrefixNodeId(i));
  std::vector<int32_t> order;
  while (const std::optional<PrefixNodeId> node = lru.Choose(&Any)) {
    order.push_back(node->value());
    lru.Evict(*node);
  }
  EXPECT_EQ(order, (std::vector<int32_t>{3, 2, 1, 0}));
}

TEST(Retention, ChooseSkipsWhatMayNotGoAndKeepsItOffered) {
  LruRetention lru(4, Costs());
  for (int32_t i = 0; i < 3; ++i) {
    lru.Insert(PrefixNodeId(i), {.first_token = 0, .num_tokens = 16, .bytes = 1});
    lru.Touch(PrefixNodeId(i), static_cast<uint64_t>(i));
    lru.Offer(PrefixNodeId(i));
  }
  EXPECT_EQ(lru.Choose([](PrefixNodeId n) { return n.value() == 2; }), PrefixNodeId(2));
  EXPECT_EQ(lru.Choose([](PrefixNodeId) { return false; }), std::nullopt);
  EXPECT_EQ(lru.Choose(&Any), PrefixNodeId(0));
  EXPECT_TRUE(lru.CheckIntegrity().ok());
}

TEST(Retention, HitProbabilityCountsReuseBeforeEvictionByClassAndAge) {
  ValueRetention policy(64, Costs());
  const PrefixClass fresh{};
  EXPECT_DOUBLE_EQ(policy.HitProbability(fresh, 0), 0.5);
  TimeNs now = 0;
  for (int32_t i = 0; i < 40; ++i) {
    const PrefixNodeId node(i);
    policy.Insert(node, {.first_token = 0, .num_tokens = 16, .bytes = 1});
    policy.Touch(node, static_cast<uint64_t>(i));
    policy.Advance(now += kNsPerMs);
    if (i % 4 == 0) {
      policy.Hit(node);  // after a millisecond
      continue;
    }
    policy.Offer(node);
    policy.Evict(node);
  }
  EXPECT_NEAR(policy.HitProbability(fresh, 0), 0.25, 0.02);
  EXPECT_LT(policy.HitProbability(fresh, kNsPerS), 0.02) << "none was hit so late";
  const RetentionStats stats = policy.stats();
  EXPECT_EQ(stats.hits, 10);
  EXPECT_EQ(stats.evictions, 30);
  EXPECT_EQ(stats.classes[static_cast<size_t>(fresh.index())].hits, 10);
  EXPECT_EQ(stats.classes[static_cast<size_t>(PrefixClass{.reuses = 1}.index())].parts, 10);
  EXPECT_DOUBLE_EQ(stats.saved_s, 10 * testing::TestRecomputeS(0, 16));
  for (int32_t i = 0; i < kNumPrefixClasses; ++i) EXPECT_EQ(PrefixClass::At(i).index(), i);
  EXPECT_EQ((PrefixClass{.depth = 0}).first_token_from(), 0);
  EXPECT_EQ((PrefixClass{.depth = 3}).first_token_from(), 4096);
}

TEST(Retention, HeapsAgreeWithASortedSet) {
  constexpr int32_t kNodes = 40;
  LruRetention lru(kNodes, Costs());
  SplitMix64 random(5);
  std::set<std::pair<std::pair<uint64_t, int64_t>, int32_t>> offered;
  std::vector<std::pair<uint64_t, int64_t>> keys(kNodes);
  const auto offer = [&](int32_t i) {
    lru.Offer(PrefixNodeId(i));
    offered.insert({keys[static_cast<size_t>(i)], i});
  };
  for (int32_t op = 0; op < 200'000; ++op) {
    const auto i = static_cast<int32_t>(random.Below(kNodes));
    const PrefixNodeId node(i);
    auto& key = keys[static_cast<size_t>(i)];
    if (!lru.kept(node)) {
      key = {random.Below(20), -static_cast<int64_t>(16 * random.Below(4))};
      lru.Insert(node, {.first_token = -key.second, .num_tokens = 16, .bytes = 1});
      lru.Touch(node, key.first);
      offer(i);
    } else if (!lru.offered(node)) {
      offer(i);
    } else if (random.Below(2) == 0) {
      lru.Withdraw(node);
      offered.erase({key, i});
    } else {
      const auto odd = [](PrefixNodeId n) { return n.value() % 2 == 1; };
      const bool any = random.Below(3) > 0;
      const auto best = std::find_if(offered.begin(), offered.end(),
                                     [&](const auto& e) { return any || e.second % 2 == 1; });
      const std::optional<PrefixNodeId> got = any ? lru.Choose(&Any) : lru.Choose(odd);
      ASSERT_EQ(got.has_value(), best != offered.end());
      if (!got) continue;
      ASSERT_EQ(got->value(), best->second) << "operation " << op;
      lru.Evict(*got);
      offered.erase(best);
    }
    if (op % 64 == 0) {
      ASSERT_TRUE(lru.CheckIntegrity().ok());
    }
  }
}

}  // namespace
}  // namespace tandem
