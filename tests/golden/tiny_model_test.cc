// Tiny random models of each family against the logits of the reference implementation
// (tests/golden/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/model_under_test.h"

namespace tandem {
namespace {

struct Golden {
  std::string name;
  nlohmann::json meta;
  std::vector<TokenId> prompt;
  std::vector<float> logits;  // [positions, vocab]
};

Golden LoadGolden(const std::string& name) {
  Golden golden;
  golden.name = name;
  golden.meta = nlohmann::json::parse(ReadTextFile(GoldenPath(name + ".json")));
  golden.prompt = TokensOf(golden.meta["prompt"].get<std::vector<int32_t>>());
  const std::string raw = ReadTextFile(GoldenPath(name + ".f32"));
  golden.logits.resize(raw.size() / sizeof(float));
  std::memcpy(golden.logits.data(), raw.data(), golden.logits.size() * sizeof(float));
  return golden;
}

float MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= most)) most = difference;  // NaN counts
  }
  return most;
}

class TinyModel : public testing::TestWithParam<const char*> {
 protected:
  const Golden golden_ = LoadGolden(GetParam());
  const float tolerance_ = golden_.meta["tolerance"].get<float>();

  TestConfig Config() const {
    TestConfig config;
    config.model_path = GoldenPath(golden_.name + ".gguf");
    return config;
  }
};

TEST_P(TinyModel, ExactLogitsEqualTheReferenceInAnyChunking) {
  ModelUnderTest model(Config());
  ASSERT_GT(golden_.prompt.size(), 32u);
  const std::vector<float> whole = model.Logits(golden_.prompt, 0);
  EXPECT_LE(MaxDifference(whole, golden_.logits), tolerance_) << "in one piece";
  for (const int32_t chunk : {1, 7, 16, 33}) {
    const std::vector<float> chunked = model.Logits(golden_.prompt, chunk);
    EXPECT_EQ(std::memcmp(chunked.data(), whole.data(), whole.size() * sizeof(float)), 0)
        << "chunks of " << chunk;
  }
}

TEST_P(TinyModel, ExactGreedyTokensEqualTheReference) {
  ModelUnderTest model(Config());
  const auto expected = golden_.meta["greedy"].get<std::vector<int32_t>>();
  const auto tokens =
      model.Generate({{golden_.prompt, static_cast<int32_t>(expected.size()), {.temperature = 0}}});
  EXPECT_EQ(tokens[0], TokensOf(expected));
}

TEST_P(TinyModel, TwoTensorParallelRanksEqualTheReference) {
  TestConfig config = Config();
  config.world = 2;
  ModelUnderTest model(config);
  EXPECT_LE(MaxDifference(model.Logits(golden_.prompt, 0), golden_.logits), tolerance_);
  EXPECT_LE(MaxDifference(model.Logits(golden_.prompt, 7), golden_.logits), tolerance_);
  const auto expected = golden_.meta["greedy"].get<std::vector<int32_t>>();
  EXPECT_EQ(model.Generate(
                {{golden_.prompt, static_cast<int32_t>(expected.size()), {.temperature = 0}}})[0],
            TokensOf(expected));
}

TEST_P(TinyModel, OddBlockSizesAndSmallSlabsChangeNothing) {
  ModelUnderTest reference(Config());
  const std::vector<float> expected = reference.Logits(golden_.prompt, 0);
  for (const int32_t block : {1, 5, 32}) {
    TestConfig config = Config();
    config.block_tokens = block;
    config.slab = {.max_tokens = 13, .max_logits = 3};
    ModelUnderTest model(config);
    const float difference = MaxDifference(model.Logits(golden_.prompt, 0), golden_.logits);
    EXPECT_LE(difference, tolerance_) << "blocks of " << block;
  }
  TestConfig config = Config();
  config.slab = {.max_tokens = 13, .max_logits = 3};
  ModelUnderTest slabs(config);
  const std::vector<float> logits = slabs.Logits(golden_.prompt, 0);
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Golden, TinyModel,
                         testing::Values("tiny_a", "tiny_b", "tiny_c", "tiny_d", "tiny_e", "tiny_f",
                                         "tiny_g", "tiny_h"));

// tiny_g's logits have 16 columns beyond the last token, which are often the largest.
TEST(Sampling, NeverChoosesAnIdWithoutAToken) {
  const Golden golden = LoadGolden("tiny_g");
  TestConfig config;
  config.model_path = GoldenPath("tiny_g.gguf");
  ModelUnderTest model(config);
  const int32_t tokens = model.spec().tokenizer_size;
  ASSERT_EQ(model.spec().vocab_size, tokens + 16);
  int padding_wins = 0;
  for (size_t row = 0; row < golden.prompt.size(); ++row) {
    const auto begin = golden.logits.begin() + static_cast<std::ptrdiff_t>(row) * (tokens + 16);
    padding_wins += std::max_element(begin, begin + tokens + 16) - begin >= tokens;
  }
  EXPECT_GT(padding_wins, 5);
  for (const double top_p : {1.0, 0.9}) {
    const SamplingParams sampling = {.temperature = 1.5, .top_p = top_p, .seed = 3};
    const auto output = model.Generate({{golden.prompt, 100, sampling}});
    ASSERT_EQ(output[0].size(), 100u);
    for (const TokenId token : output[0]) EXPECT_LT(token.value(), tokens);
  }
}

class CountTaps final : public LayerTap {
 public:
  void AfterLayer(Stream&, int32_t layer, const float* hidden, int32_t num_tokens) override {
    layers.push_back(layer);
    tokens += num_tokens;
    last_hidden = hidden;
  }
  std::vector<int32_t> layers;
  int64_t tokens = 0;
  const float* last_hidden = nullptr;
};

TEST(LayerTap, SeesEveryLayerInOrder) {
  TestConfig config;
  config.model_path = GoldenPath("tiny_a.gguf");
  ModelUnderTest model(config);
  CountTaps taps;
  model.executor().SetTap(0, &taps);
  model.Logits(TokensOf({5, 6, 7}), 0);
  EXPECT_EQ(taps.layers, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(taps.tokens, 3 * 4);
  EXPECT_NE(taps.last_hidden, nullptr);
}

// A layer is complete before the next one begins, however small the slabs; passes follow each other.
TEST(LayerTap, SeesAWholePassAtATime) {
  TestConfig config;
  config.model_path = GoldenPath("tiny_a.gguf");
  config.slab = {.max_tokens = 3, .max_logits = 2, .max_pass_tokens = 8};
  ModelUnderTest model(config);
  CountTaps taps;
  model.executor().SetTap(0, &taps);
  model.Logits(TokensOf({5, 6, 7, 8, 9, 10, 11, 12, 13, 14}), 0);
  EXPECT_EQ(taps.layers, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(taps.tokens, 10 * 4);
}

}  // namespace
}  // namespace tandem
