// Replays of requests through pools, prefix cache and policy: the chapter's agent trace, and three
// workloads of our own, each under both policies. Hits and saved prefill time are printed.
// Vectors (tests/data/chapter8/kv_vectors.json): 8.3.3-agent-trace, 8.3.4-replay-pressure.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/rng.h"
#include "kv/testing/cache_harness.h"
#include "kv/testing/vectors.h"

namespace tandem {
namespace {

using testing::CacheHarness;
using testing::Group;
using testing::Join;
using testing::Range;
using testing::Tenant;
using testing::TestOptions;
using testing::Vector;

// Ids that no other input has.
class FreshTokens {
 public:
  std::vector<TokenId> Take(int64_t count) {
    const std::vector<TokenId> tokens = Range(next_, count);
    next_ += static_cast<int32_t>(count);
    return tokens;
  }

 private:
  int32_t next_ = 1'000'000;
};

// Round i's input: common to all rounds but its last four tokens.
std::vector<TokenId> AgentRound(int64_t length, FreshTokens* fresh) {
  return Join(Range(0, length - 4), fresh->Take(4));
}

TEST(KvReplay, AgentTraceHitsAndPotential) {
  const auto& vector = Vector("8.3.3-agent-trace");
  const auto& expected = vector["expected"];
  for (const int32_t block : {16, 1}) {
    CacheHarness harness({Group(block, 16384 / block)});
    FreshTokens fresh;
    std::vector<int64_t> hits;
    std::vector<int64_t> potentials;
    for (int64_t length : vector["inputs"]["input_tokens"]) {
      const PrefixHit hit = harness.Run(Tenant(""), AgentRound(length, &fresh));
      hits.push_back(hit.tokens);
      potentials.push_back(hit.potential_tokens);
    }
    EXPECT_EQ(potentials, expected["adjacent_lcp"].get<std::vector<int64_t>>());
    const PrefixCacheStats stats = harness.cache.stats();
    EXPECT_EQ(stats.tokens, expected["input_total"]);
    EXPECT_EQ(stats.potential_tokens, expected["adjacent_lcp_total"]);
    if (block == 1) {
      EXPECT_EQ(stats.hit_tokens, expected["hit_total_page_size_1"]);
      continue;
    }
    EXPECT_EQ(hits, expected["hits"].get<std::vector<int64_t>>());
    EXPECT_EQ(stats.hit_tokens, expected["hit_total"]);
    EXPECT_EQ(stats.tokens - stats.hit_tokens, expected["recomputed"]);
  }
}

int64_t ReplayPressure(int32_t usable_blocks, RetentionKind kind, int64_t pressure_requests,
                       int64_t pressure_tokens, double* saved_s) {
  CacheHarness harness({Group(16, usable_blocks)}, TestOptions(kind));
  FreshTokens fresh;
  TimeNs now = 0;
  bool first = true;
  for (int64_t length : Vector("8.3.3-agent-trace")["inputs"]["input_tokens"]) {
    for (int64_t i = 0; i < pressure_requests && !first; ++i) {
      harness.cache.Advance(now += 20 * kNsPerMs);
      harness.Run(Tenant(""), fresh.Take(pressure_tokens));
    }
    harness.cache.Advance(now += 200 * kNsPerMs);
    harness.Run(Tenant(""), AgentRound(length, &fresh));
    first = false;
  }
  *saved_s = harness.cache.retention_stats().saved_s;
  return harness.cache.stats().hit_tokens;
}

TEST(KvReplay, AgentTraceUnderPressure) {
  const auto& vector = Vector("8.3.4-replay-pressure");
  std::vector<int64_t> lru;
  for (int32_t blocks : vector["inputs"]["usable_blocks"]) {
    double saved_lru = 0;
    double saved_value = 0;
    const int64_t requests = vector["inputs"]["pressure_requests_between_rounds"];
    const int64_t tokens = vector["inputs"]["pressure_tokens"];
    lru.push_back(ReplayPressure(blocks, RetentionKind::kLru, requests, tokens, &saved_lru));
    const int64_t value =
        ReplayPressure(blocks, RetentionKind::kValue, requests, tokens, &saved_value);
    fmt::print("agent under pressure, {:4} blocks: lru {:5} tokens hit, value {:5}\n", blocks,
               lru.back(), value);
    EXPECT_GE(value, lru.back());
    double saved = 0;
    EXPECT_EQ(ReplayPressure(2729, RetentionKind::kLru, 0, tokens, &saved), 16304);
  }
  EXPECT_EQ(lru, vector["expected"]["hit_tokens"].get<std::vector<int64_t>>());
}

// ---------------------------------------------------------------- workloads of our own

// A request of a workload: its prompt is `common` tokens of the conversation's history (or less,
// when that is shorter) and `fresh` new ones.
struct Turn {
  TimeNs at = 0;
  int32_t conversation = 0;
  int64_t fresh = 0;
  int64_t outputs = 0;
};

struct ReplayResult {
  int64_t hit_tokens = 0;
  int64_t tokens = 0;
  double saved_s = 0;
  double evicted_loss_s = 0;
};

// Each conversation begins with `shared` tokens that all have in common; a turn's prompt is the
// history with outputs, then the new tokens.
ReplayResult Replay(const std::vector<Turn>& turns, int64_t shared, int32_t blocks,
                    RetentionKind kind) {
  PrefixCache::Options options = TestOptions(kind);
  // The chapter's rate for prefill on its card.
  options.costs = testing::ChapterCosts(503.8e12 * 0.622);
  CacheHarness harness({testing::ChapterGroup(blocks)}, std::move(options));
  FreshTokens fresh;
  std::map<int32_t, std::vector<TokenId>> histories;
  for (const Turn& turn : turns) {
    harness.cache.Advance(turn.at);
    std::vector<TokenId>& history = histories[turn.conversation];
    if (history.empty()) history = Range(0, shared);
    history = Join(std::move(history), fresh.Take(turn.fresh));
    const std::vector<TokenId> outputs = fresh.Take(turn.outputs);
    harness.Run(Tenant(""), history, outputs);
    history = Join(std::move(history), outputs);
  }
  const Status status = harness.cache.CheckIntegrity({});
  EXPECT_TRUE(status.ok()) << status.ToString();
  const PrefixCacheStats stats = harness.cache.stats();
  const RetentionStats retention = harness.cache.retention_stats();
  return {stats.hit_tokens, stats.tokens, retention.saved_s, retention.evicted_loss_s};
}

ReplayResult Compare(std::string_view name, const std::vector<Turn>& turns, int64_t shared,
                     int32_t blocks, ReplayResult* lru) {
  *lru = Replay(turns, shared, blocks, RetentionKind::kLru);
  const ReplayResult value = Replay(turns, shared, blocks, RetentionKind::kValue);
  for (const auto& [policy, r] : {std::pair("lru", *lru), std::pair("value", value)}) {
    fmt::print("{:<20} {:<5} {:7} of {:7} tokens hit ({:.1f} %), {:.3f} s of prefill saved\n", name,
               policy, r.hit_tokens, r.tokens,
               100.0 * static_cast<double>(r.hit_tokens) / static_cast<double>(r.tokens),
               r.saved_s);
  }
  return value;
}

void SortByTime(std::vector<Turn>* turns) {
  std::stable_sort(turns->begin(), turns->end(),
                   [](const Turn& a, const Turn& b) { return a.at < b.at; });
}

// Users come and go; each has a few turns with thinking time between them.
std::vector<Turn> ChatTurns(uint64_t seed, int32_t users, TimeNs span) {
  SplitMix64 random(seed);
  std::vector<Turn> turns;
  for (int32_t u = 0; u < users; ++u) {
    auto at = static_cast<TimeNs>(random.Below(static_cast<uint64_t>(span)));
    const auto count = 1 + random.Below(8);
    for (uint64_t t = 0; t < count; ++t) {
      turns.push_back({at, u, static_cast<int64_t>(20 + random.Below(200)),
                       static_cast<int64_t>(40 + random.Below(300))});
      at += static_cast<TimeNs>((5 + random.Below(40)) * kNsPerS);
    }
  }
  SortByTime(&turns);
  return turns;
}

constexpr int64_t kAgentPrompt = 64;  // tokens that all agents have in common

// Agents from the recorded repair attempts (prompt growth, outputs, tool time), started at
// intervals.
std::vector<Turn> AgentTurns(int32_t copies, TimeNs interval) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/data/chapter8/kv_agent_traces_repair.csv");
  std::string line;
  std::getline(file, line);
  std::vector<std::vector<Turn>> traces;
  std::string last_trial;
  int64_t length = 0;
  TimeNs at = 0;
  while (std::getline(file, line)) {
    std::vector<std::string> fields;
    std::stringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
    if (fields[0] != last_trial) {
      last_trial = fields[0];
      traces.emplace_back();
      length = kAgentPrompt;
      at = 0;
    }
    const int64_t prompt = std::stoll(fields[2]);
    const int64_t outputs = std::stoll(fields[3]);
    const int64_t grown = std::max<int64_t>(1, prompt - length);
    traces.back().push_back({at, 0, grown, outputs});
    length += grown + outputs;
    at += static_cast<TimeNs>((std::stod(fields[4]) + 2.0) * 1e9);  // and two seconds of tools
  }
  std::vector<Turn> turns;
  for (int32_t c = 0; c < copies; ++c) {
    for (size_t i = 0; i < traces.size(); ++i) {
      const auto conversation = c * static_cast<int32_t>(traces.size()) + static_cast<int32_t>(i);
      for (Turn turn : traces[i]) {
        turn.at += conversation * interval;
        turn.conversation = conversation;
        turns.push_back(turn);
      }
    }
  }
  SortByTime(&turns);
  return turns;
}

// One-off documents, none of which comes again.
void AddFlood(std::vector<Turn>* turns, TimeNs every, int64_t tokens) {
  const TimeNs end = turns->back().at;
  int32_t document = 1 << 20;
  for (TimeNs at = every; at < end; at += every) turns->push_back({at, document++, tokens, 30});
  SortByTime(turns);
}

TEST(KvReplay, ChatWithASharedSystemPrompt) {
  ReplayResult lru;
  const ReplayResult value =
      Compare("chat, shared prompt", ChatTurns(1, 300, 600 * kNsPerS), 800, 1200, &lru);
  EXPECT_GT(lru.hit_tokens, 0);
  EXPECT_GE(value.saved_s, 0.98 * lru.saved_s);
}

TEST(KvReplay, AgentLoops) {
  ReplayResult lru;
  const ReplayResult value =
      Compare("agent loops", AgentTurns(30, kNsPerS), kAgentPrompt, 1600, &lru);
  EXPECT_GT(lru.hit_tokens, 0);
  EXPECT_GE(value.saved_s, 0.98 * lru.saved_s);
}

TEST(KvReplay, ScanFloodOverChat) {
  std::vector<Turn> turns = ChatTurns(2, 100, 600 * kNsPerS);
  AddFlood(&turns, kNsPerS, 6000);
  ReplayResult lru;
  const ReplayResult value = Compare("scan flood over chat", turns, 800, 1600, &lru);
  EXPECT_GT(value.hit_tokens, lru.hit_tokens);
  EXPECT_GT(value.saved_s, lru.saved_s);
}

}  // namespace
}  // namespace tandem
