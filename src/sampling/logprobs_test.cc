#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "device/cpu_device.h"

namespace tandem {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class LogprobsTest : public testing::Test {
 protected:
  // The entries of one row.
  std::vector<TokenLogprob> Report(const std::vector<float>& logits, int32_t token, int32_t num_top,
                                   int32_t num_choices = 0) {
    const auto vocab = static_cast<int32_t>(logits.size());
    const LogprobRow row{.token = token, .num_top = num_top};
    std::vector<TokenLogprob> out(1 + static_cast<size_t>(num_top));
    ReportLogprobs(*stream_, {logits.data(), vocab, num_choices == 0 ? vocab : num_choices, &row, 1,
                              nullptr, out.data()});
    stream_->Synchronize();
    return out;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice({.num_threads = 2});
  std::unique_ptr<Stream> stream_ = std::move(device_->NewStream()).value();
};

std::vector<float> RandomLogits(uint64_t seed, int32_t size, float scale) {
  SplitMix64 rng(seed);
  std::vector<float> out(static_cast<size_t>(size));
  for (float& x : out) x = static_cast<float>(rng.NextDouble() * 2 - 1) * scale;
  return out;
}

// The definition, in double.
std::vector<TokenLogprob> Expected(const std::vector<float>& logits, int32_t token, int32_t num_top,
                                   int32_t num_choices) {
  double mass = 0;
  for (const float logit : logits) mass += std::exp(static_cast<double>(logit));
  std::vector<int32_t> order(static_cast<size_t>(num_choices));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const auto entry = [&](int32_t id) {
    const auto place = std::find(order.begin(), order.end(), id) - order.begin();
    return TokenLogprob{TokenId(id),
                        static_cast<float>(logits[static_cast<size_t>(id)] - std::log(mass)),
                        static_cast<int32_t>(place) + 1};
  };
  std::vector<TokenLogprob> out = {entry(token)};
  for (size_t i = 0; i < static_cast<size_t>(num_top); ++i) out.push_back(entry(order[i]));
  return out;
}

TEST_F(LogprobsTest, AreTheLogarithmOfTheSoftmaxInOrder) {
  SplitMix64 rng(3);
  for (const int32_t size : {21, 64, 333, 5000, 49152}) {
    for (int round = 0; round < 8; ++round) {
      auto logits = RandomLogits(rng.Next(), size, round < 4 ? 12.0f : 0.5f);
      if (round % 2 == 0) {  // many ties
        for (float& x : logits) x = std::round(x);
      }
      const int32_t choices = round % 4 < 2 ? size : size - size / 20;
      const int32_t num_top = round % 3 == 0 ? 0 : 5 * (round % 5);
      const auto token = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(choices)));
      const auto got = Report(logits, token, num_top, choices);
      const auto want = Expected(logits, token, num_top, choices);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].token, want[i].token) << size << " " << i;
        EXPECT_EQ(got[i].rank, want[i].rank) << size << " " << i;
        EXPECT_NEAR(got[i].logprob, want[i].logprob, 2e-6) << size << " " << i;
      }
    }
  }
}

TEST_F(LogprobsTest, ARowDependsOnItsOwnLogitsAlone) {
  constexpr int32_t kVocab = 1000;
  constexpr int32_t kRows = 40;
  constexpr int32_t kTop = 3;
  const auto logits = RandomLogits(8, kVocab * kRows, 6.0f);
  std::vector<int32_t> tokens(kRows);
  std::vector<LogprobRow> rows;
  for (int32_t i = 0; i < kRows; ++i) {
    const int32_t token = i * 17;
    tokens[static_cast<size_t>(i)] = token;
    // Half of them name their token, the others say where it will be; the last row comes first.
    rows.push_back({.logits_row = kRows - 1 - i,
                    .token = i % 2 == 0 ? token : -1,
                    .token_index = i,
                    .num_top = kTop,
                    .out_begin = i * (1 + kTop)});
  }
  std::vector<TokenLogprob> together(kRows * (1 + kTop));
  ReportLogprobs(*stream_, {logits.data(), kVocab, kVocab, rows.data(), kRows, tokens.data(),
                            together.data()});
  stream_->Synchronize();
  for (int32_t i = 0; i < kRows; ++i) {
    const auto begin = logits.begin() + int64_t{kRows - 1 - i} * kVocab;
    const auto alone = Report({begin, begin + kVocab}, i * 17, kTop);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + i * (1 + kTop))) << i;
  }
}

TEST_F(LogprobsTest, StrangeLogitsGiveNumbersThatCanBeWritten) {
  const auto finite = [](const std::vector<TokenLogprob>& entries) {
    return std::all_of(entries.begin(), entries.end(), [](const TokenLogprob& e) {
      return e.logprob >= kLeastLogprob && e.logprob <= 1e9f;
    });
  };
  EXPECT_TRUE(finite(Report({kNaN, kNaN, kNaN}, 1, 3)));
  EXPECT_TRUE(finite(Report({-kInf, -kInf}, 1, 2)));
  EXPECT_TRUE(finite(Report({1, kInf, kNaN}, 1, 3)));
  const auto one = Report({kNaN, 2, -kInf}, 2, 3);
  EXPECT_TRUE(finite(one));
  EXPECT_EQ(one[0].rank, 2);
  EXPECT_EQ(one[0].logprob, kLeastLogprob);
  EXPECT_EQ(one[1].token, TokenId(1));
  EXPECT_EQ(one[1].logprob, 0);
  EXPECT_EQ(one[3].token, TokenId(0)) << "NaN comes last";
}

TEST_F(LogprobsTest, FewTokensRepeatTheLastAndTokensBeyondTheChoicesAreRankedBehind) {
  const auto few = Report({1, 3}, 0, 4);
  EXPECT_EQ(few[2].token, TokenId(0));
  EXPECT_EQ(few[4], few[2]);
  const auto beyond = Report({1, 3, 9}, 2, 2, /*num_choices=*/2);
  EXPECT_EQ(beyond[0].rank, 3);
  EXPECT_EQ(beyond[1].token, TokenId(1));
  EXPECT_NEAR(
      std::exp(beyond[0].logprob) + std::exp(beyond[1].logprob) + std::exp(beyond[2].logprob), 1,
      1e-6);
}

}  // namespace
}  // namespace tandem
