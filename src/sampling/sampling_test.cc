#include "sampling/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/rng.h"
#include "device/cpu_device.h"

namespace tandem {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class SamplingTest : public testing::Test {
 protected:
  // One token for each parameter set, all from the same logits.
  std::vector<int32_t> Sample(const std::vector<float>& logits, std::vector<SampleRow> rows,
                              int32_t num_choices = 0) {
    if (num_choices == 0) num_choices = static_cast<int32_t>(logits.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i].out_index = static_cast<int32_t>(i);
    std::vector<int32_t> out(rows.size(), -1);
    SampleArgs args;
    args.logits = logits.data();
    args.vocab_size = static_cast<int32_t>(logits.size());
    args.num_choices = num_choices;
    args.rows = rows.data();
    args.num_rows = static_cast<int32_t>(rows.size());
    args.biases = biases_.data();
    args.history = history_.data();
    args.history_stride = kHistoryStride;
    args.out = out.data();
    // Nothing is promised about its content.
    std::vector<std::byte> scratch(SampleScratchBytes(args.vocab_size, kThreads), std::byte{0xa5});
    args.scratch = scratch.data();
    SampleRows(*stream_, args);
    stream_->Synchronize();
    return out;
  }
  int32_t SampleOne(const std::vector<float>& logits, const SamplingParams& params,
                    int64_t position = 0) {
    return Sample(logits, {{.params = params, .position = position}})[0];
  }
  // How often each token comes at `draws` positions.
  std::map<int32_t, int> Histogram(const std::vector<float>& logits, const SamplingParams& params,
                                   int draws) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < draws; ++i) rows.push_back({.params = params, .position = i});
    std::map<int32_t, int> counts;
    for (const int32_t token : Sample(logits, rows)) ++counts[token];
    return counts;
  }

  static constexpr int kThreads = 2;
  static constexpr int64_t kHistoryStride = 200;
  std::vector<LogitBias> biases_;
  std::vector<int32_t> history_;  // [.., kHistoryStride]
  std::unique_ptr<Device> device_ = MakeCpuDevice({.num_threads = kThreads});
  std::unique_ptr<Stream> stream_ = std::move(device_->NewStream()).value();
};

std::vector<float> RandomLogits(uint64_t seed, int32_t size, float scale) {
  SplitMix64 rng(seed);
  std::vector<float> out(static_cast<size_t>(size));
  for (float& x : out) x = static_cast<float>(rng.NextDouble() * 2 - 1) * scale;
  return out;
}

// The definition: sort by (logit, id), cut by count, by mass, by the least share; the tokens that
// may come and their probabilities.
std::map<int32_t, double> Expected(const std::vector<float>& logits, const SamplingParams& p) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) {
    order.resize(static_cast<size_t>(p.top_k));
  }
  const double max = logits[static_cast<size_t>(order[0])];
  const auto weight = [&](int32_t id) {
    return std::exp((logits[static_cast<size_t>(id)] - max) / p.temperature);
  };
  double total = 0;
  for (const int32_t id : order) total += weight(id);
  std::map<int32_t, double> kept;
  double mass = 0;
  for (const int32_t id : order) {
    kept[id] = weight(id);
    mass += weight(id);
    if (mass >= p.top_p * total) break;
  }
  std::erase_if(kept, [&](const auto& entry) { return entry.second < p.min_p; });
  mass = 0;
  for (const auto& [id, w] : kept) mass += w;
  for (auto& [id, w] : kept) w /= mass;
  return kept;
}

// Chi-square against `expected`; tokens with fewer than 5 expected draws are pooled.
void ExpectDistribution(const std::map<int32_t, int>& counts,
                        const std::map<int32_t, double>& expected, int draws) {
  double chi = 0, pooled_expected = 0, pooled_count = 0;
  int cells = 0;
  for (const auto& [id, probability] : expected) {
    const double want = probability * draws;
    const auto it = counts.find(id);
    const double got = it == counts.end() ? 0 : it->second;
    if (want < 5) {
      pooled_expected += want;
      pooled_count += got;
      continue;
    }
    chi += (got - want) * (got - want) / want;
    ++cells;
  }
  if (pooled_expected >= 5) {
    chi += (pooled_count - pooled_expected) * (pooled_count - pooled_expected) / pooled_expected;
    ++cells;
  }
  for (const auto& [id, count] : counts) EXPECT_TRUE(expected.contains(id)) << id << " " << count;
  // Mean cells - 1, variance twice that: five standard deviations.
  EXPECT_LT(chi, cells - 1 + 5 * std::sqrt(2.0 * cells));
}

TEST_F(SamplingTest, GreedyTakesTheLowestIdOfEqualMaxima) {
  const SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(SampleOne({1, 5, 5, 2}, greedy), 1);
  EXPECT_EQ(SampleOne({-1, -2}, greedy), 0);
  EXPECT_EQ(SampleOne({3}, greedy), 0);
  EXPECT_EQ(SampleOne({-0.0f, 0.0f, -1}, greedy), 0);
  EXPECT_EQ(SampleOne({-kInf, -kInf, -kInf}, greedy), 0);
  EXPECT_EQ(SampleOne({1, kInf, kInf}, greedy), 1);
}

TEST_F(SamplingTest, NaNIsNeverChosenUnlessAllAre) {
  for (const double temperature : {0.0, 0.7}) {
    const SamplingParams p{.temperature = temperature, .seed = 3};
    EXPECT_EQ(SampleOne({kNaN, kNaN, kNaN}, p), 0);
    EXPECT_EQ(SampleOne({kNaN, -kInf, kNaN}, p), 1);
    for (int i = 0; i < 50; ++i) {
      EXPECT_NE(SampleOne({kNaN, 1, 1, kNaN}, p, i) % 3, 0);
      for (const SamplingParams& cut : {SamplingParams{.temperature = 1, .top_k = 3},
                                        SamplingParams{.temperature = 1, .top_p = 0.99}}) {
        EXPECT_NE(SampleOne({kNaN, 1, 1, kNaN}, cut, i) % 3, 0);
      }
    }
  }
}

TEST_F(SamplingTest, OneCandidateIsGreedy) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto logits = RandomLogits(seed, 500, 4.0f);
    logits[77] = logits[300] = 4.5f;  // a tie
    EXPECT_EQ(SampleOne(logits, {.temperature = 1.3, .top_k = 1, .seed = seed}), 77);
    EXPECT_EQ(SampleOne(logits, {.temperature = 1.0, .top_p = 1e-9, .seed = seed}), 77);
    EXPECT_EQ(SampleOne(logits, {.temperature = 1.0, .top_p = 0.0, .seed = seed}), 77);
    // Not the tie: between equals even a tiny temperature draws lots.
    logits[300] = 4.4f;
    EXPECT_EQ(SampleOne(logits, {.temperature = 1.0, .min_p = 1.0, .seed = seed}), 77);
    EXPECT_EQ(SampleOne(logits, {.temperature = 1e-4, .seed = seed}), 77);
    EXPECT_EQ(SampleOne(logits, {.temperature = 1e-300, .seed = seed}), 77);
  }
}

TEST_F(SamplingTest, TokensComeWithTheirProbabilities) {
  constexpr int kDraws = 20000;
  const auto logits = RandomLogits(1, 300, 3.0f);
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1.0, .seed = 1},
        SamplingParams{.temperature = 0.6, .seed = 2},
        SamplingParams{.temperature = 2.0, .seed = 3},
        SamplingParams{.temperature = 1.0, .top_k = 10, .seed = 4},
        SamplingParams{.temperature = 1.0, .top_p = 0.8, .seed = 5},
        SamplingParams{.temperature = 0.9, .top_k = 40, .top_p = 0.7, .seed = 6},
        SamplingParams{.temperature = 1.5, .top_k = 299, .top_p = 0.999, .seed = 7},
        SamplingParams{.temperature = 1.0, .top_k = 5000, .seed = 8},
        SamplingParams{.temperature = 1.0, .min_p = 0.3, .seed = 9},
        SamplingParams{.temperature = 0.7, .top_k = 60, .min_p = 0.2, .seed = 10},
        SamplingParams{.temperature = 1.4, .top_k = 80, .top_p = 0.9, .min_p = 0.1, .seed = 11}}) {
    SCOPED_TRACE(testing::Message() << "T=" << params.temperature << " k=" << params.top_k
                                    << " p=" << params.top_p << " min_p=" << params.min_p);
    ExpectDistribution(Histogram(logits, params, kDraws), Expected(logits, params), kDraws);
  }
}

TEST_F(SamplingTest, CutsKeepExactlyTheTokensOfTheDefinition) {
  // A flat distribution over few tokens, so that many draws meet every kept one; with many ties.
  SplitMix64 rng(9);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> logits(40);
    for (float& x : logits) x = static_cast<float>(rng.Below(6)) * 0.25f;
    const SamplingParams params{.temperature = 1.0 + static_cast<double>(round % 3),
                                .top_k = static_cast<int32_t>(rng.Below(30)),
                                .top_p = 0.2 + 0.75 * rng.NextDouble(),
                                .min_p = round % 2 == 0 ? 0.0 : 0.6 * rng.NextDouble(),
                                .seed = static_cast<uint64_t>(round)};
    std::set<int32_t> kept, expected;
    for (const auto& [id, count] : Histogram(logits, params, 3000)) kept.insert(id);
    for (const auto& [id, p] : Expected(logits, params)) expected.insert(id);
    EXPECT_EQ(kept, expected) << "round " << round;
  }
}

TEST_F(SamplingTest, LargeVocabulariesAndFlatDistributions) {
  const auto logits = RandomLogits(2, 49152, 0.01f);  // nearly uniform: the nucleus is most of it
  const SamplingParams params{.temperature = 1.0, .top_p = 0.5, .seed = 1};
  const auto expected = Expected(logits, params);
  int outside = 0;
  for (const auto& [id, count] : Histogram(logits, params, 500)) {
    if (!expected.contains(id)) ++outside;
  }
  // Rounding may move the border by a few tokens of 24,000.
  EXPECT_LE(outside, 1);
}

TEST_F(SamplingTest, ARowDependsOnItsOwnInputsAlone) {
  const auto logits = RandomLogits(3, 1000, 2.0f);
  std::vector<SampleRow> rows;
  for (int i = 0; i < 64; ++i) {
    rows.push_back({.params = {.temperature = 1.0,
                               .top_k = i % 3 == 0 ? 0 : 50,
                               .top_p = i % 2 == 0 ? 1.0 : 0.9,
                               .seed = 7},
                    .sample_index = static_cast<uint32_t>(i % 5),
                    .position = i});
  }
  const auto together = Sample(logits, rows);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(Sample(logits, {rows[i]})[0], together[i]);
  // And on each of seed, sample index and position.
  const auto differs = [&](auto change) {
    auto changed = rows;
    for (auto& row : changed) change(row);
    return Sample(logits, changed) != together;
  };
  EXPECT_TRUE(differs([](SampleRow& r) { r.params.seed = 8; }));
  EXPECT_TRUE(differs([](SampleRow& r) { r.sample_index += 1; }));
  EXPECT_TRUE(differs([](SampleRow& r) { r.position += 1; }));
}

TEST_F(SamplingTest, IdsBeyondTheChoicesDoNotExist) {
  constexpr int32_t kChoices = 70;
  std::vector<float> logits = RandomLogits(4, 100, 2.0f);
  for (size_t id = kChoices; id < logits.size(); ++id) logits[id] += id % 3 == 0 ? 10.0f : kInf;
  const std::vector<float> short_row(logits.begin(), logits.begin() + kChoices);
  std::vector<SampleRow> rows = {{.params = {.temperature = 0}}};
  for (int i = 0; i < 60; ++i) {
    rows.push_back({.params = {.temperature = 2.0,
                               .top_k = i % 3 == 0   ? 0
                                        : i % 3 == 1 ? 20
                                                     : 90,
                               .top_p = i % 2 == 0 ? 1.0 : 0.9,
                               .seed = 7},
                    .position = i});
  }
  EXPECT_EQ(Sample(logits, rows, kChoices), Sample(short_row, rows));
}

TEST_F(SamplingTest, LeastSharesOfLargeVocabulariesNeedNoList) {
  // More tokens are kept than a list of candidates holds.
  const auto logits = RandomLogits(12, 20'000, 0.5f);
  const SamplingParams params{.temperature = 1.0, .min_p = 0.5, .seed = 4};
  const auto expected = Expected(logits, params);
  ASSERT_GT(expected.size(), 5000u);
  ASSERT_LT(expected.size(), 16'000u);
  for (const auto& [id, count] : Histogram(logits, params, 500)) {
    EXPECT_TRUE(expected.contains(id)) << id;
  }
}

// What the parameters say, written down without a thought for speed. `history` is prompt, then
// outputs.
std::vector<float> AdjustedLogits(std::vector<float> logits, const SamplingParams& p,
                                  const std::vector<LogitBias>& biases,
                                  const std::vector<int32_t>& history, size_t prompt_tokens) {
  for (const LogitBias& b : biases) logits[static_cast<size_t>(b.token.value())] += b.bias;
  const auto outputs_begin = history.begin() + static_cast<int64_t>(prompt_tokens);
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (std::count(history.begin(), history.end(), token) == 0) continue;
    double logit = logits[id];
    if (logit > 0) {
      logit /= p.repetition_penalty;
    } else {
      logit *= p.repetition_penalty;
    }
    const auto count = static_cast<double>(std::count(outputs_begin, history.end(), token));
    logit -= count * p.frequency_penalty;
    logit -= (count > 0 ? 1.0 : 0.0) * p.presence_penalty;
    logits[id] = static_cast<float>(logit);
  }
  return logits;
}

TEST_F(SamplingTest, PenaltiesAndBiasesAreThoseOfTheDefinition) {
  SplitMix64 rng(21);
  int changed = 0;
  for (int round = 0; round < 300; ++round) {
    const auto logits = RandomLogits(static_cast<uint64_t>(round) + 100, 90, 3.0f);
    // Few distinct tokens, so that they repeat; now and then an empty output, or all of it.
    const auto length = static_cast<size_t>(rng.Below(static_cast<uint64_t>(kHistoryStride)));
    const size_t prompt = rng.Below(length + 1);
    history_.assign(static_cast<size_t>(kHistoryStride) * 3, 5);  // other slots' tokens
    std::vector<int32_t> history;
    for (size_t i = 0; i < length; ++i) {
      history.push_back(static_cast<int32_t>(rng.Below(40)));
      history_[static_cast<size_t>(kHistoryStride) + i] = history.back();
    }
    biases_ = {{TokenId(1), 9.0f}, {TokenId(7), 9.0f}};  // of another row
    std::vector<LogitBias> biases;
    for (uint64_t i = 0; i < rng.Below(6); ++i) {
      biases.push_back(
          {TokenId(static_cast<int32_t>(i * 13)), static_cast<float>(rng.NextDouble() * 10 - 5)});
    }
    if (rng.Below(2) == 0) biases.push_back({TokenId(3), -kInf});
    biases_.insert(biases_.end(), biases.begin(), biases.end());
    SampleRow row{.params = {.temperature = rng.Below(2) == 0 ? 0.0 : 0.8,
                             .top_k = static_cast<int32_t>(rng.Below(30)),
                             .min_p = rng.Below(2) == 0 ? 0.0 : 0.05,
                             .seed = rng.Next()},
                  .position = static_cast<int64_t>(length),
                  .biases_begin = 2,
                  .num_biases = static_cast<int32_t>(biases.size()),
                  .history_row = 1,
                  .prompt_tokens = static_cast<int32_t>(prompt)};
    if (rng.Below(3) != 0) row.params.repetition_penalty = 0.5 + 2 * rng.NextDouble();
    if (rng.Below(3) != 0) row.params.presence_penalty = 4 * rng.NextDouble() - 2;
    if (rng.Below(3) != 0) row.params.frequency_penalty = 4 * rng.NextDouble() - 2;
    // The same draw from logits that are adjusted already.
    const auto adjusted = AdjustedLogits(logits, row.params, biases, history, prompt);
    const SampleRow plain{.params = {.temperature = row.params.temperature,
                                     .top_k = row.params.top_k,
                                     .min_p = row.params.min_p,
                                     .seed = row.params.seed},
                          .position = row.position};
    const int32_t token = Sample(logits, {row})[0];
    EXPECT_EQ(token, Sample(adjusted, {plain})[0]) << "round " << round;
    changed += token != Sample(logits, {plain})[0];
  }
  EXPECT_GT(changed, 100);
}

TEST_F(SamplingTest, PenaltiesLeaveTheLogitsAndOtherRowsAlone) {
  const auto logits = RandomLogits(5, 60, 2.0f);
  const auto before = logits;
  history_.assign(static_cast<size_t>(kHistoryStride), 0);
  for (int i = 0; i < 60; ++i) history_[static_cast<size_t>(i)] = i % 30;
  biases_ = {{TokenId(11), 100.0f}};
  std::vector<SampleRow> rows;
  for (int i = 0; i < 40; ++i) {
    SampleRow row{.params = {.temperature = i % 2 == 0 ? 0.0 : 1.0, .seed = 1}, .position = i + 1};
    if (i % 3 == 0) row.params.frequency_penalty = 1.5;
    if (i % 3 == 1) row.params.repetition_penalty = 3;
    if (i % 5 == 0) row.num_biases = 1;
    rows.push_back(row);
  }
  const auto together = Sample(logits, rows);
  EXPECT_EQ(logits, before);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(Sample(logits, {rows[i]})[0], together[i]) << i;
    if (rows[i].num_biases > 0) {
      EXPECT_EQ(together[i], 11);
    }
  }
}

TEST_F(SamplingTest, HistoryAndBiasesOfIdsBeyondTheChoicesDoNothing) {
  const std::vector<float> logits = {1, 2, 3, 9, 9};
  history_.assign(static_cast<size_t>(kHistoryStride), 4);
  biases_ = {{TokenId(3), 50.0f}};
  const SampleRow row{
      .params = {.temperature = 0, .presence_penalty = 1}, .position = 10, .num_biases = 1};
  EXPECT_EQ(Sample(logits, {row}, /*num_choices=*/3)[0], 2);
}

TEST_F(SamplingTest, RowsReadAndWriteWhereTheySay) {
  // Three rows of logits; the maxima are at 2, 0 and 1.
  const std::vector<float> logits = {0, 0, 1, 1, 0, 0, 0, 1, 0};
  const SamplingParams greedy{.temperature = 0};
  const std::vector<SampleRow> rows = {
      {.params = greedy, .logits_row = 2, .out_index = 4},
      {.params = greedy, .logits_row = 0, .out_index = 1},
  };
  std::vector<int32_t> out(5, -1);
  SampleArgs args;
  args.logits = logits.data();
  args.vocab_size = args.num_choices = 3;
  args.rows = rows.data();
  args.num_rows = 2;
  args.out = out.data();
  SampleRows(*stream_, args);
  stream_->Synchronize();
  EXPECT_EQ(out, (std::vector<int32_t>{-1, 2, -1, -1, 1}));
}

}  // namespace
}  // namespace tandem
