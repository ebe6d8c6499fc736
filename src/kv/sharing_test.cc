// Sharing by forks and copy-on-write (StatePools) against the chapter's vectors.
// Vectors: 8.1.2-kv-per-token, 8.1.2-cached-tokens, 8.1.2-admission-capacity, 8.1.2-prefix-split,
// 8.3.1-paging, ex-8-3-pages, 8.3.2-cow, 8.3.2-four-branches, 8.3.2-shared-capacity,
// ex-8-3-one-block, 8.3.2-cancel, repo-kv-pages-branches (8.3.2-refcount: block_pool_test.cc).

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kv/testing/cache_harness.h"
#include "kv/testing/vectors.h"

namespace tandem {
namespace {

using testing::ChapterGroup;
using testing::Group;
using testing::Vector;

constexpr GroupId kPaged{0};
constexpr GroupId kWindow{1};
constexpr int64_t kMiB = 1 << 20;

class Sharing : public ::testing::Test {
 protected:
  void Make(std::vector<StateGroupBlocks> groups, int32_t max_uncommitted = 4) {
    pools_ = std::make_unique<StatePools>(groups, max_uncommitted, 2);
  }
  StatePools& pools() { return *pools_; }
  SequenceBlocks* New() { return &sequences_.emplace_back(pools_->MakeSequence(20000)); }
  Growth Grow(SequenceBlocks* s, int64_t tokens) {
    return pools_->Grow(s, tokens, SlotId(0), NextPlan());
  }
  // A sequence of `tokens` tokens, grown on demand.
  SequenceBlocks* Grown(int64_t tokens) {
    SequenceBlocks* s = New();
    EXPECT_EQ(Grow(s, tokens), Growth::kDone);
    return s;
  }
  bool Fork(SequenceBlocks* parent, SequenceBlocks* child, int64_t tokens, int64_t reserve = 0) {
    return pools_->Fork(parent, child, tokens, reserve, SlotId(1), NextPlan());
  }
  void End(SequenceBlocks* s) { pools_->Release(s, StepId(0)); }
  // Plans a step that is over at once.
  StepPlan* NextPlan() {
    pools_->CompleteSteps(StepId(step_));
    plan_.Clear();
    plan_.step = StepId(++step_);
    return &plan_;
  }
  void Check() {
    std::vector<const SequenceBlocks*> all;
    for (const SequenceBlocks& s : sequences_) all.push_back(&s);
    const Status status = pools_->CheckIntegrity(all);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  int32_t InUse() { return pools_->pool(kPaged).in_use(); }
  int64_t References() {
    int64_t n = 0;
    for (const SequenceBlocks& s : sequences_) n += s.table(kPaged).num_held();
    return n;
  }
  // Tokens that lie in different blocks, or at different places of one.
  int64_t UniqueTokens() {
    std::map<int32_t, int64_t> filled;
    const int32_t p = pools_->group(kPaged).tokens_per_block;
    for (const SequenceBlocks& s : sequences_) {
      for (int32_t e = 0; e < s.table(kPaged).num_blocks(); ++e) {
        int64_t& most = filled[s.table(kPaged).at(e).value()];
        most = std::max(most, std::min<int64_t>(p, s.tokens() - int64_t{e} * p));
      }
    }
    int64_t n = 0;
    for (const auto& [block, tokens] : filled) n += tokens;
    return n;
  }

  std::unique_ptr<StatePools> pools_;
  std::deque<SequenceBlocks> sequences_;
  StepPlan plan_;
  uint64_t step_ = 0;
};

TEST_F(Sharing, BytesOfTheChaptersModel) {
  const auto& v = Vector("8.1.2-kv-per-token")["expected"];
  const StateGroup group = ChapterGroup(1).group;
  const auto bytes = [&group](int64_t tokens) {
    return group.BlocksFor(tokens) * group.BlockBytes();
  };
  EXPECT_EQ(group.BlockBytes() / group.tokens_per_block, v["kv_bytes_per_token"]);
  EXPECT_EQ(bytes(2048), v["kv_2048_mib"].get<int64_t>() * kMiB);
  EXPECT_EQ(bytes(8192), v["kv_8192_mib"].get<int64_t>() * kMiB);
  EXPECT_EQ(16 * bytes(8192), v["sixteen_8192_gib"].get<int64_t>() << 30);
  Make({ChapterGroup(static_cast<int32_t>((int64_t{12} << 30) / group.BlockBytes()))});
  int admitted = 0;
  while (admitted < 16 && pools().Reserve(New(), 8192)) ++admitted;
  EXPECT_EQ(admitted == 16, v["fits_12gib"].get<bool>());
  const auto& split = Vector("8.1.2-prefix-split");
  EXPECT_EQ(bytes(split["inputs"]["prefix"]),
            split["expected"]["prefix_mib"].get<int64_t>() * kMiB);
  EXPECT_EQ(bytes(split["inputs"]["suffix"]),
            split["expected"]["suffix_mib"].get<int64_t>() * kMiB);
}

TEST_F(Sharing, ReservationsThatFitTheChaptersPool) {
  const auto& cached = Vector("8.1.2-cached-tokens");
  const auto& capacity = Vector("8.1.2-admission-capacity");
  const int64_t block_bytes = ChapterGroup(1).group.BlockBytes();
  const int64_t pool_bytes = capacity["inputs"]["pool_bytes"];
  const auto pool_blocks = static_cast<int32_t>(pool_bytes / block_bytes);
  const auto admitted = [&](int64_t tokens, int64_t* blocks) {
    Make({ChapterGroup(pool_blocks)});
    int32_t n = 0;
    while (pools().Reserve(New(), tokens)) ++n;
    *blocks = pools().pool(kPaged).reserved() / n;
    return n;
  };
  const std::array<const char*, 2> names = {"short", "long"};
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t tokens = cached["inputs"]["prompts"][i].get<int64_t>() +
                           cached["inputs"]["output"].get<int64_t>() - 1;
    EXPECT_EQ(tokens, cached["expected"]["computed"][i]);
    int64_t blocks = 0;
    EXPECT_EQ(admitted(tokens, &blocks), capacity["expected"][names[i]]);
    EXPECT_EQ(blocks, cached["expected"]["blocks"][i]);
    EXPECT_EQ(blocks * 16, cached["expected"]["reserved_tokens"][i]);
    EXPECT_EQ(blocks * block_bytes, cached["expected"]["reserved_mib"][i].get<int64_t>() * kMiB);
  }
  int64_t blocks = 0;
  EXPECT_EQ(admitted(2048, &blocks), capacity["expected"]["short_prompt_only"]);
  EXPECT_EQ(42 * cached["expected"]["blocks"][0].get<int64_t>() * block_bytes,
            capacity["expected"]["short_prompt_only_grown_mib"].get<int64_t>() * kMiB);
}

void ExpectPaging(StatePools* pools, std::deque<SequenceBlocks>* sequences,
                  const nlohmann::json& lengths, const nlohmann::json& expected) {
  int64_t allocated = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const BlockTable& table = (*sequences)[i].table(kPaged);
    EXPECT_EQ(table.capacity_tokens(), expected["allocated"][i]);
    EXPECT_EQ(table.capacity_tokens() - lengths[i].get<int64_t>(), expected["unused_per_seq"][i]);
    allocated += table.num_blocks();
  }
  EXPECT_EQ(allocated, expected["table_entries"]);
  EXPECT_EQ(int64_t{pools->pool(kPaged).in_use()} * pools->group(kPaged).tokens_per_block,
            expected["total"]);
}

TEST_F(Sharing, PagingWastesTheTailOnly) {
  const auto& paging = Vector("8.3.1-paging");
  std::vector<std::pair<int32_t, nlohmann::json>> cases = {{4, paging["expected"]}};
  for (const auto& row : Vector("ex-8-3-pages")["expected"]["rows"]) {
    cases.emplace_back(row["page"].get<int32_t>(), row);
  }
  const auto& lengths = paging["inputs"]["lengths"];
  for (const auto& [page, expected] : cases) {
    Make({Group(page, 100)});
    sequences_.clear();
    for (int64_t length : lengths) Grown(length);
    ExpectPaging(&pools(), &sequences_, lengths, expected);
  }
  // A place for the longest each, which is one block of its length.
  Make({Group(paging["inputs"]["max_len"], 100)});
  sequences_.clear();
  for (int64_t length : lengths) Grown(length);
  const int64_t reserved = InUse() * paging["inputs"]["max_len"].get<int64_t>();
  EXPECT_EQ(reserved, paging["expected"]["reserved"]);
  EXPECT_EQ(reserved - UniqueTokens(), paging["expected"]["reserved_unused"]);
}

TEST_F(Sharing, TwoSequencesShareEightTokens) {
  const auto& v = Vector("8.3.1-paging");
  Make({Group(4, 100)});
  SequenceBlocks* a = Grown(8);
  SequenceBlocks* b = New();
  ASSERT_TRUE(Fork(a, b, v["inputs"]["shared_tokens"]));
  ASSERT_EQ(Grow(a, 9), Growth::kDone);
  ASSERT_EQ(Grow(b, 13), Growth::kDone);
  EXPECT_TRUE(plan_.copies.empty()) << "nobody writes into a shared block";
  Grown(5);
  Grown(15);
  EXPECT_EQ(InUse(), v["expected"]["physical_blocks_shared"]);
  EXPECT_EQ(InUse() * 4, v["expected"]["shared_total"]);
  Check();
}

TEST_F(Sharing, TailIsCopiedWhileSharedAndWrittenInPlaceByTheLast) {
  const auto& v = Vector("8.3.2-cow");
  Make({Group(4, 8)});
  SequenceBlocks* a = Grown(v["inputs"]["shared"]);
  SequenceBlocks* b = New();
  ASSERT_TRUE(Fork(a, b, 3));
  EXPECT_EQ(InUse(), v["expected"]["physical_blocks_before"]);
  const BlockId shared = a->table(kPaged).at(0);
  ASSERT_EQ(Grow(a, 4), Growth::kDone);
  const BlockId copy = a->table(kPaged).at(0);
  ASSERT_EQ(plan_.copies.size(), 1u);
  EXPECT_EQ(plan_.copies[0].from, shared);
  EXPECT_EQ(plan_.copies[0].to, copy);
  ASSERT_EQ(plan_.appends.size(), 1u);
  EXPECT_EQ(plan_.appends[0].block, copy);
  EXPECT_EQ(plan_.appends[0].entry, 0);
  ASSERT_EQ(Grow(b, 4), Growth::kDone);
  EXPECT_TRUE(plan_.copies.empty());
  EXPECT_EQ(b->table(kPaged).at(0), shared);
  EXPECT_EQ(InUse(), v["expected"]["physical_blocks_after_both_write"]);
  Check();
}

TEST_F(Sharing, FourBranchesAre131Blocks) {
  const auto& v = Vector("8.3.2-four-branches");
  const int64_t shared = v["inputs"]["shared"].get<int64_t>() * 16;
  const int64_t all = shared + v["inputs"]["private"].get<int64_t>() * 16;
  Make({Group(16, v["expected"]["physical"])});
  std::vector<SequenceBlocks*> branches = {New()};
  ASSERT_TRUE(pools().Reserve(branches[0], all));
  ASSERT_EQ(Grow(branches[0], shared), Growth::kDone);
  for (int i = 1; i < v["inputs"]["branches"]; ++i) {
    branches.push_back(New());
    ASSERT_TRUE(Fork(branches[0], branches.back(), shared, all)) << "branch " << i;
  }
  EXPECT_EQ(pools().pool(kPaged).available(), 0) << "promises count what is not shared";
  for (SequenceBlocks* branch : branches) ASSERT_EQ(Grow(branch, all), Growth::kDone);
  EXPECT_EQ(InUse(), v["expected"]["physical"]);
  EXPECT_EQ(References(), v["expected"]["references"]);
  EXPECT_DOUBLE_EQ(1 - static_cast<double>(InUse()) / static_cast<double>(References()),
                   v["expected"]["saving"]);
  Check();
}

TEST_F(Sharing, CapacityOverASharedPrefix) {
  const auto& v = Vector("8.3.2-shared-capacity");
  const int64_t block_bytes = ChapterGroup(1).group.BlockBytes();
  const int64_t pool_bytes = v["inputs"]["pool_bytes"];
  const int64_t prefix = v["inputs"]["prefix"];
  const int64_t all = prefix + v["inputs"]["private_tokens"].get<int64_t>();
  for (const bool shared : {true, false}) {
    Make({ChapterGroup(static_cast<int32_t>(pool_bytes / block_bytes))});
    sequences_.clear();
    SequenceBlocks* first = New();
    ASSERT_TRUE(pools().Reserve(first, all));
    ASSERT_EQ(Grow(first, prefix), Growth::kDone);
    int32_t admitted = 1;
    const auto mib = [&] {
      const BlockPool& pool = pools().pool(kPaged);
      return (pool.in_use() + pool.reserved()) * block_bytes / kMiB;
    };
    const char* sizes = shared ? "shared_mib" : "independent_mib";
    for (;; ++admitted) {
      for (size_t i = 0; i < v["inputs"]["b"].size(); ++i) {
        if (v["inputs"]["b"][i] == admitted) {
          EXPECT_EQ(mib(), v["expected"][sizes][i]);
        }
      }
      if (!(shared ? Fork(first, New(), prefix, all) : pools().Reserve(New(), all))) break;
    }
    EXPECT_EQ(admitted, v["expected"][shared ? "max_shared" : "max_independent"]);
  }
}

TEST_F(Sharing, AFullBlockMovedIntoThePrefixSavesAllButOne) {
  const auto& v = Vector("ex-8-3-one-block");
  for (size_t i = 0; i < v["inputs"]["b"].size(); ++i) {
    std::array<int32_t, 2> blocks{};
    for (const int64_t prefix : {16, 32}) {
      Make({Group(16, 200)});
      sequences_.clear();
      SequenceBlocks* first = Grown(prefix);
      for (int b = 1; b < v["inputs"]["b"][i]; ++b) ASSERT_TRUE(Fork(first, New(), prefix));
      for (SequenceBlocks& s : sequences_) ASSERT_EQ(Grow(&s, 48), Growth::kDone);
      blocks[prefix == 16 ? 0 : 1] = InUse();
    }
    EXPECT_EQ(blocks[0] - blocks[1], v["expected"]["physical_blocks_saved"][i]);
  }
}

void ReplayBranches(StatePools* pools, const nlohmann::json& expected,
                    const std::function<SequenceBlocks*()>& make,
                    const std::function<StepPlan*()>& next_plan,
                    const std::function<int64_t()>& unique_tokens) {
  std::map<std::string, SequenceBlocks*> named;
  const auto& events = Vector("repo-kv-pages-branches")["inputs"]["events"];
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& event = events[i];
    const std::string kind = event[0];
    SequenceBlocks*& s = named[event[1].get<std::string>()];
    StepPlan* plan = next_plan();
    bool accepted = true;
    int64_t copied = 0;
    if (kind == "create" || kind == "append") {
      if (kind == "create") s = make();
      const int64_t before = s->tokens();
      const int64_t tokens = before + event[2].get<int64_t>();
      accepted = pools->Grow(s, tokens, SlotId(0), plan) == Growth::kDone;
      copied = static_cast<int64_t>(plan->copies.size()) * (before % 16);
    } else if (kind == "fork") {
      SequenceBlocks*& child = named[event[2].get<std::string>()];
      child = make();
      accepted = pools->Fork(s, child, s->tokens(), 0, SlotId(1), plan);
    } else {
      pools->Release(s, StepId(0));
    }
    EXPECT_EQ(accepted, expected.contains("accepted") ? expected["accepted"][i].get<bool>() : true);
    EXPECT_EQ(pools->pool(kPaged).in_use(), expected["allocated_pages"][i]) << "event " << i;
    EXPECT_EQ(unique_tokens(), expected["unique_live_tokens"][i]) << "event " << i;
    EXPECT_EQ(copied, expected["cow_copied_tokens"][i]) << "event " << i;
  }
}

TEST_F(Sharing, BranchesEventByEvent) {
  const auto& expected = Vector("repo-kv-pages-branches")["expected"];
  for (const int32_t pages : {100, 3}) {
    Make({Group(16, pages)});
    sequences_.clear();
    ReplayBranches(
        &pools(), pages == 3 ? expected["with_capacity_3"] : expected, [this] { return New(); },
        [this] { return NextPlan(); }, [this] { return UniqueTokens(); });
    Check();
  }
}

TEST_F(Sharing, CancelGivesBackWhatTheRequestOwnsOnce) {
  const auto& v = Vector("8.3.2-cancel");
  const auto& in = v["inputs"];
  const int32_t owned = v["expected"]["blocks_owned"];
  const int32_t free_before = in["free_before"];
  Make({Group(16, owned + free_before)});
  SequenceBlocks* s =
      Grown(in["prompt"].get<int64_t>() + in["output_tokens_at_cancel"].get<int64_t>() - 1);
  EXPECT_EQ(InUse(), owned);
  EXPECT_EQ(pools().pool(kPaged).free(), free_before);
  pools().Release(s, StepId(step_));  // the API returns; the step in flight still runs
  EXPECT_EQ(pools().pool(kPaged).free(), free_before);
  EXPECT_EQ(pools().pool(kPaged).fenced(), owned);
  pools().CompleteSteps(StepId(step_));
  EXPECT_EQ(pools().pool(kPaged).free(), v["expected"]["free_after"]);
  pools().Release(s, StepId(step_));
  EXPECT_EQ(pools().pool(kPaged).free(), v["expected"]["free_after"])
      << "a second end gives nothing";
}

TEST_F(Sharing, PromisesCoverTheCopyWhoeverWritesFirst) {
  for (const bool parent_first : {true, false}) {
    Make({Group(4, 7)});
    sequences_.clear();
    SequenceBlocks* a = New();
    ASSERT_TRUE(pools().Reserve(a, 12));
    ASSERT_EQ(Grow(a, 6), Growth::kDone);
    SequenceBlocks* b = New();
    EXPECT_FALSE(Fork(a, b, 6, 20)) << "5 own blocks, less one shared, and the parent's copy";
    ASSERT_TRUE(Fork(a, b, 6, 12));
    EXPECT_EQ(pools().pool(kPaged).available(), 1);
    SequenceBlocks* const first = parent_first ? a : b;
    SequenceBlocks* const second = parent_first ? b : a;
    ASSERT_EQ(Grow(first, 12), Growth::kDone);
    ASSERT_EQ(Grow(second, 12), Growth::kDone);
    EXPECT_EQ(InUse(), 5);
    EXPECT_EQ(pools().pool(kPaged).reserved(), 0) << "the last writer gives the copy's place back";
    Check();
    End(a);
    End(b);
    EXPECT_EQ(pools().busy_blocks(), 0);
  }
}

TEST_F(Sharing, ForkInAWindowGroupCopiesTheWindow) {
  Make({Group(4, 20), Group(2, 20, 5)});
  SequenceBlocks* a = Grown(11);
  pools().ReleasePassed(a, 11, StepId(0));
  SequenceBlocks* b = New();
  ASSERT_TRUE(Fork(a, b, 11, 30));
  // Position 11 reads 7 .. 10: entries 3, 4 and the tail 5.
  EXPECT_EQ(b->table(kWindow).first_held(), 3);
  EXPECT_EQ(b->table(kWindow).num_held(), 3);
  ASSERT_EQ(plan_.copies.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plan_.copies[static_cast<size_t>(i)].from, a->table(kWindow).at(3 + i));
    EXPECT_EQ(plan_.copies[static_cast<size_t>(i)].to, b->table(kWindow).at(3 + i));
  }
  ASSERT_EQ(plan_.appends.size(), 3u + 3u);
  EXPECT_EQ(plan_.appends[3].entry, 3) << "entries before the window stay empty";
  Check();
  // The parent's window moves on while the copy still runs: it waits, it does not run short.
  pools().ReleasePassed(a, 11, StepId(0));
  ASSERT_EQ(Grow(b, 12), Growth::kDone);
  Check();
}

// The source of a copy is fenced when its window passes it; the parent's promise survives.
TEST_F(Sharing, AWindowWaitsForItsBlocksButKeepsItsPromise) {
  Make({Group(1, 8, 3)}, 1);
  const auto peak = static_cast<int32_t>(pools().PeakBlocks(kPaged, 100));
  ASSERT_EQ(peak, 3);
  Make({Group(1, 2 * peak, 3)}, 1);
  SequenceBlocks* a = New();
  ASSERT_TRUE(pools().Reserve(a, 100));
  ASSERT_EQ(Grow(a, 3), Growth::kDone);
  SequenceBlocks* b = New();
  StepPlan* plan = NextPlan();
  ASSERT_TRUE(pools().Fork(a, b, 3, 100, SlotId(1), plan));
  pools().ReleasePassed(a, 3, StepId(0));
  EXPECT_EQ(a->reserved(kPaged), 1);
  EXPECT_EQ(pools().Grow(a, 4, SlotId(0), plan), Growth::kDone);
  pools().ReleasePassed(a, 4, StepId(0));
  EXPECT_EQ(pools().pool(kPaged).fenced(), 1) << "position 1 is copied by the step in flight";
  EXPECT_EQ(pools().Grow(b, 4, SlotId(1), plan), Growth::kDone) << "the last free block";
  EXPECT_FALSE(pools().Reserve(New(), 1));
  EXPECT_EQ(pools().Grow(a, 5, SlotId(0), plan), Growth::kWait);
  pools().CompleteSteps(plan->step);
  EXPECT_FALSE(pools().Reserve(New(), 1)) << "what came back is promised";
  EXPECT_EQ(pools().Grow(a, 5, SlotId(0), plan), Growth::kDone);
  Check();
}

}  // namespace
}  // namespace tandem
