// The tiny models with K and V stored in each type, against the logits of the reference implementation
// (tests/golden/README.md), and against themselves however the work is divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/support/model_under_test.h"

namespace tandem {
namespace {

// Length of the difference, relative to that of `b`.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

// Of a value, relative to the root mean square of values around it, in the root mean square. f16 and
// bf16 have 11 and 8 bits: a unit of the last place over sqrt(12), 0.74 on average over the binade. q8_0
// has steps of a 127th of the largest of 32 values, which is about 2.2 of their root mean square.
double RoundingOf(DType type) {
  switch (type) {
    case DType::kF16: return 0.74 * 0x1p-10 / std::sqrt(12.0);
    case DType::kBF16: return 0.74 * 0x1p-7 / std::sqrt(12.0);
    case DType::kQ8_0: return 2.2 / 127 / std::sqrt(12.0);
    default: return 0;
  }
}

class KvTypes : public testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  KvTypes() {
    const std::string name = std::get<0>(GetParam());
    config_.model_path = GoldenPath(name + ".gguf");
    config_.numerics.kv = std::get<1>(GetParam());
    const auto meta = nlohmann::json::parse(ReadTextFile(GoldenPath(name + ".json")));
    prompt_ = TokensOf(meta["prompt"].get<std::vector<int32_t>>());
    const std::string raw = ReadTextFile(GoldenPath(name + ".f32"));
    golden_.resize(raw.size() / sizeof(float));
    std::memcpy(golden_.data(), raw.data(), golden_.size() * sizeof(float));
  }

  TestConfig config_;  // exact
  std::vector<TokenId> prompt_;
  std::vector<float> golden_;
};

// Each layer's attention is wrong by the rounding of V, and by that of K through the scores: two errors
// of the same size and no sign in common for each layer, so the root of their number in all. Twice that
// is allowed: scores of these models are larger than 1, and sharpen what K does.
TEST_P(KvTypes, LogitsAreWithinTheRoundingOfTheType) {
  ModelUnderTest model(config_);
  const double rounding = RoundingOf(config_.numerics.kv);
  const double typical = rounding * std::sqrt(2.0 * model.spec().num_layers);
  const double distance = Distance(model.Logits(prompt_, 0), golden_);
  EXPECT_LE(distance, 2 * typical + 1e-5);
  EXPECT_GE(distance, 0.1 * typical);  // it is this type that is stored
  config_.world = 2;
  EXPECT_LE(Distance(ModelUnderTest(config_).Logits(prompt_, 7), golden_), 2 * typical + 1e-5);
}

TEST_P(KvTypes, NeitherChunksNorBlocksNorThreadsChangeABit) {
  const std::vector<float> whole = ModelUnderTest(config_).Logits(prompt_, 0);
  const auto same_bits = [&](const std::vector<float>& logits) {
    return logits.size() == whole.size() &&
           std::memcmp(logits.data(), whole.data(), whole.size() * sizeof(float)) == 0;
  };
  config_.threads = 2;
  ModelUnderTest model(config_);
  for (const int32_t chunk : {1, 7, 33})
    EXPECT_TRUE(same_bits(model.Logits(prompt_, chunk))) << chunk;
  for (const int32_t block : {1, 5, 32}) {
    config_.block_tokens = block;
    EXPECT_TRUE(same_bits(ModelUnderTest(config_).Logits(prompt_, 0))) << "blocks of " << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, KvTypes,
                         testing::Combine(testing::Values("tiny_a", "tiny_b", "tiny_c", "tiny_d",
                                                          "tiny_e", "tiny_f", "tiny_g", "tiny_h"),
                                          testing::ValuesIn(kKvTypes)),
                         [](const auto& type) {
                           return fmt::format("{}_{}", std::get<0>(type.param),
                                              NameOfKvType(std::get<1>(type.param)));
                         });

}  // namespace
}  // namespace tandem
