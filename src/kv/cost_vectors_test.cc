// What a step reads and computes (core/cost.h), and what of it is KV state in the pools, against
// the chapter's tables.
// Vectors: 8.0-matrix-flops, 8.2.1-arithmetic-intensity, 8.2.1-reads-table, 8.2.1-kv-crossover,
// 8.2.1-resident-after-step, 8.2.1-roofline-crossover, 8.2.1-rom-path, 8.3.3-summary-breakeven.
#include <gtest/gtest.h>

#include "kv/testing/cache_harness.h"
#include "kv/testing/vectors.h"

namespace tandem {
namespace {

using testing::ChapterGroup;
using testing::Vector;

constexpr int64_t kOutputBytes = 1'244'659'712;  // of D_w, the output projection
constexpr double kGiB = 1 << 30;

ModelCost Model() {
  const StateGroup groups[] = {ChapterGroup(1).group};
  const int64_t all = Vector("8.2.1-reads-table")["inputs"]["D_w"];
  return CostOfModel(testing::ChapterModel(), groups, all - kOutputBytes, kOutputBytes);
}

// `rows` rows of `tokens` tokens behind `history`; the last of each chooses a token if `logits`.
StepCost Step(int64_t rows, int64_t history, int64_t tokens, bool logits) {
  PlanRow row;
  row.position = static_cast<int32_t>(history);
  row.num_tokens = static_cast<int32_t>(tokens);
  row.sample = logits;
  StepPlan plan;
  plan.rows.assign(static_cast<size_t>(rows), row);
  return CostOfStep(Model(), plan);
}

// The chapter counts what is read of the history; a step also writes and reads its own positions.
int64_t HistoryBytes(const StepCost& cost) {
  return cost.kv_bytes - 2 * cost.new_tokens * Model().kv_bytes_per_token;
}

void ExpectNear(double ours, const nlohmann::json& theirs) {
  EXPECT_NEAR(ours, theirs.get<double>(), 1e-9 * std::abs(theirs.get<double>()));
}

TEST(CostVectors, MatrixWork) {
  const auto& v = Vector("8.0-matrix-flops");
  EXPECT_EQ(2 * Model().macs_per_token, v["inputs"]["LIN_per_new_token"]);
  EXPECT_EQ(2 * Model().macs_per_pair, v["inputs"]["PAIR_per_causal_pair"]);
  EXPECT_EQ(2 * Model().macs_per_logits, v["inputs"]["HEAD_per_logit_row"]);
  const auto& e = v["expected"];
  EXPECT_EQ(Step(1, 0, 8192, true).flops, e["prefill_8192_last_head"].get<double>());
  EXPECT_EQ(Step(1, 8192, 1, true).flops, e["decode_1_at_8192"].get<double>());
  EXPECT_EQ(Step(1, 6144, 2048, true).flops, e["suffix_2048_after_6144"].get<double>());
  EXPECT_EQ(Step(1, 0, 6144, false).flops, e["prefill_6144_no_head"].get<double>());
  EXPECT_EQ(Step(1, 0, 2048, false).flops, e["prefill_2048_no_head"].get<double>());
  EXPECT_EQ(Step(1, 0, 1024, false).flops, e["prefill_1024_no_head"].get<double>());
  EXPECT_EQ(Step(1, 2048, 1, true).flops, e["decode_1_at_2048"].get<double>());
  StepPlan verify;
  verify.rows = {PlanRow{.position = 8192, .num_tokens = 8, .sample = true, .score = 7}};
  EXPECT_EQ(CostOfStep(Model(), verify).flops, e["verify_8_at_8192_all_heads"].get<double>());
}

TEST(CostVectors, OperationsPerByteOfWeights) {
  const auto& v = Vector("8.2.1-arithmetic-intensity");
  const int64_t layer_bytes = Model().macs_per_token * v["inputs"]["s_w"].get<int64_t>();
  for (size_t i = 0; i < v["inputs"]["b"].size(); ++i) {
    const StepCost cost = Step(v["inputs"]["b"][i], 0, 1, false);
    const double matrices =
        cost.flops - 2.0 * static_cast<double>(cost.causal_pairs * Model().macs_per_pair);
    ExpectNear(matrices / static_cast<double>(layer_bytes), v["expected"]["flops_per_byte"][i]);
  }
}

TEST(CostVectors, BytesReadPerRoundAndPerToken) {
  const auto& v = Vector("8.2.1-reads-table");
  for (const auto& row : v["expected"]["rows"]) {
    const int64_t b = row["b"];
    const StepCost cost = Step(b, row["L"], 1, true);
    const int64_t total = cost.weight_bytes + HistoryBytes(cost);
    EXPECT_EQ(total, row["total_bytes"]);
    EXPECT_EQ(total / b, row["per_token_bytes"]);
    const auto per_token = static_cast<double>(b) * kGiB;
    ExpectNear(static_cast<double>(total) / per_token, row["per_token_gib"]);
    ExpectNear(static_cast<double>(cost.weight_bytes) / per_token, row["weight_per_token_gib"]);
    ExpectNear(static_cast<double>(HistoryBytes(cost)) / per_token, row["kv_per_token_gib"]);
  }
  // The same with the weights in a memory of their own.
  const auto& rom = Vector("8.2.1-rom-path");
  for (size_t i = 0; i < rom["inputs"]["B"].size(); ++i) {
    const int64_t b = rom["inputs"]["B"][i];
    const StepCost cost = Step(b, 8192, 1, true);
    const auto kv = static_cast<double>(HistoryBytes(cost)) / static_cast<double>(b);
    ExpectNear((kv + static_cast<double>(cost.weight_bytes) / static_cast<double>(b)) / kGiB,
               rom["expected"]["hbm_gib"][i]);
    ExpectNear(kv / kGiB, rom["expected"]["rom_gib"][i]);
  }
}

TEST(CostVectors, TheBatchWhoseStateIsReadAsMuchAsTheWeights) {
  const auto& v = Vector("8.2.1-kv-crossover");
  const auto& capacity = Vector("8.1.2-admission-capacity");
  for (size_t i = 0; i < v["inputs"]["L"].size(); ++i) {
    const int64_t length = v["inputs"]["L"][i];
    const auto state = [&](int64_t b) { return HistoryBytes(Step(b, length, 1, true)); };
    const int64_t weights = Step(1, length, 1, true).weight_bytes;
    int64_t b = 1;
    while (state(b) < weights) ++b;
    EXPECT_EQ(b, v["expected"]["b_kv"][i]);
    ExpectNear(static_cast<double>(weights) / static_cast<double>(state(1)),
               v["expected"]["ratio"][i]);
    // sharing_test.cc fills the pool.
    const int64_t limit = capacity["expected"][i == 0 ? "short" : "long"];
    EXPECT_EQ(limit, v["expected"]["capacity_limit"][i]);
    EXPECT_EQ(limit < b, v["expected"]["capacity_binds_first"][i].get<bool>());
  }
}

TEST(CostVectors, ResidentAfterADecodeStep) {
  const auto& v = Vector("8.2.1-resident-after-step");
  const int64_t b = v["inputs"]["b"];
  const int64_t length = v["inputs"]["L"];
  StateGroupBlocks group = ChapterGroup(static_cast<int32_t>(b * (length + 1)));
  group.group.tokens_per_block = 1;
  const StateGroupBlocks groups[] = {group};
  StatePools pools(groups, 1, 1);
  StepPlan plan;
  plan.step = StepId(1);
  std::vector<SequenceBlocks> sequences;
  for (int64_t i = 0; i < b; ++i) {
    sequences.push_back(pools.MakeSequence(length + 1));
    ASSERT_EQ(pools.Grow(&sequences.back(), length, SlotId(0), &plan), Growth::kDone);
    ASSERT_EQ(pools.Grow(&sequences.back(), length + 1, SlotId(0), &plan), Growth::kDone);
  }
  constexpr int64_t kResidentWeights = 16'381'470'720;  // D_w and the table of embeddings
  EXPECT_EQ(kResidentWeights + pools.busy_blocks() * group.group.BlockBytes(),
            v["expected"]["bytes"]);
}

TEST(CostVectors, WhereComputingCatchesUpWithReading) {
  const auto& v = Vector("8.2.1-roofline-crossover");
  const double peak = v["inputs"]["P"];
  const double bandwidth = v["inputs"]["beta"];
  const StepCost one = Step(1, 2048, 1, true);
  EXPECT_EQ(one.flops, v["inputs"]["F"].get<double>());
  ExpectNear(one.flops / peak * 1e6, v["expected"]["compute_us_per_request"]);
  ExpectNear(static_cast<double>(HistoryBytes(one)) / bandwidth * 1e6,
             v["expected"]["kv_read_us_per_request"]);
  const auto crossing = [&](int64_t length) -> int64_t {
    for (int64_t b = 1; b <= 1000; ++b) {
      const StepCost cost = Step(b, length, 1, true);
      const auto bytes = static_cast<double>(cost.weight_bytes + HistoryBytes(cost));
      if (cost.flops / peak >= bytes / bandwidth) return b;
    }
    return 0;
  };
  EXPECT_EQ(crossing(2048), 0);
  const auto& example = v["expected"]["short_context_example"];
  EXPECT_EQ(crossing(example["L"]), example["crossover_batch"]);
}

TEST(CostVectors, ASummaryThatSavesHistory) {
  const auto& v = Vector("8.3.3-summary-breakeven");
  const auto& in = v["inputs"];
  const int64_t saved = HistoryBytes(Step(1, in["saved_tokens"], 1, true));
  const double saving_s = static_cast<double>(saved) / in["bw_bytes_per_s"].get<double>();
  ExpectNear(saving_s * 1e3, v["expected"]["saving_ms_per_step"]);
  const double peak = Vector("8.3.4-cache-value")["inputs"]["peak"];
  const double rebuild_s =
      Step(1, 0, in["rebuild_tokens"], true).flops / (peak * in["eff"].get<double>());
  ExpectNear(rebuild_s, v["expected"]["rebuild_s"]);
  ExpectNear(rebuild_s / saving_s, v["expected"]["steps_to_repay_rebuild"]);
}

}  // namespace
}  // namespace tandem
