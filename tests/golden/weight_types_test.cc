// A small model with its matrices in every type of weights: `exact` gives the logits of the same
// values stored as F32, `fast` comes near them, and neither depends on how the tokens are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/test_model.h"
#include "os/test_dir.h"
#include "tests/support/model_under_test.h"

namespace tandem {
namespace {

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (const GgmlTypeInfo& type : AllGgmlTypes()) {
    if (type.dtype) types.push_back(*type.dtype);
  }
  return types;
}

std::vector<TokenId> Prompt() {
  SplitMix64 rng(5);
  std::vector<TokenId> prompt;
  for (int i = 0; i < 30; ++i) prompt.push_back(TokenId(static_cast<int32_t>(rng.Below(40))));
  return prompt;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

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

class WeightTypes : public testing::TestWithParam<DType> {
 protected:
  // Rows of 512: two ranks get whole blocks of 256.
  std::string Write(bool decoded) {
    const TestModelOptions options{.layers = 1,
                                   .hidden = 512,
                                   .ffn = 512,
                                   .tied = false,
                                   .matrices = GetParam(),
                                   .embedding = GetParam(),
                                   .decoded = decoded};
    return dir_.Write(decoded ? "f32.gguf" : "typed.gguf", MakeTestModel(options));
  }
  static std::vector<float> Logits(TestConfig config, int32_t chunk) {
    return ModelUnderTest(config).Logits(Prompt(), chunk);
  }

  TestDir dir_;
  const std::string typed_ = Write(false);
  const std::string f32_ = Write(true);
};

TEST_P(WeightTypes, ExactEqualsTheValuesInF32) {
  const std::vector<float> expected = Logits({.model_path = f32_}, 0);
  EXPECT_TRUE(SameBits(Logits({.model_path = typed_}, 0), expected));
  EXPECT_TRUE(SameBits(Logits({.model_path = typed_, .threads = 2}, 7), expected));
  EXPECT_LE(Distance(Logits({.model_path = typed_, .world = 2}, 0), expected), 1e-5);
}

TEST_P(WeightTypes, FastIsNearAndARowDependsOnItselfAlone) {
  const std::vector<float> exact = Logits({.model_path = typed_}, 0);
  TestConfig config{.model_path = typed_, .numerics = Numerics::kFast};
  const std::vector<float> fast = Logits(config, 0);
  EXPECT_LE(Distance(fast, exact), 0.02);
  for (const int32_t chunk : {1, 7}) EXPECT_TRUE(SameBits(Logits(config, chunk), fast)) << chunk;
  config.threads = 2;
  EXPECT_TRUE(SameBits(Logits(config, 0), fast));
}

INSTANTIATE_TEST_SUITE_P(All, WeightTypes, testing::ValuesIn(AllTypes()),
                         [](const auto& type) { return std::string(NameOf(type.param)); });

}  // namespace
}  // namespace tandem
