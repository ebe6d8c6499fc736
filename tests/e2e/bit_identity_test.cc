// A request's greedy output is the same bits whatever else runs and however the work is divided
// (issue: R5, idea 6).
#include <gtest/gtest.h>

#include "tests/support/model_under_test.h"
#include "tests/support/workload.h"

namespace tandem {
namespace {

struct Workload {
  std::string model_path;
  int32_t vocab = 0;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
};

std::vector<TestRequest> Requests(const Workload& load, int32_t count, SamplingParams sampling) {
  return WithCompany({.prompt = RandomPrompt(1, load.vocab, load.prompt_tokens),
                      .output_tokens = load.output_tokens,
                      .sampling = sampling},
                     count, load.vocab);
}

void ExpectSameBits(const Workload& load, Numerics numerics) {
  TestConfig config;
  config.model_path = load.model_path;
  config.numerics = numerics;
  const SamplingParams greedy = {.temperature = 0};
  const SamplingParams seeded = {.temperature = 0.9, .top_k = 40, .top_p = 0.95, .seed = 11};
  std::vector<TokenId> expected_greedy, expected_seeded;
  {
    ModelUnderTest alone(config);
    expected_greedy = alone.Generate(Requests(load, 1, greedy))[0];
    expected_seeded = alone.Generate(Requests(load, 1, seeded))[0];
  }
  ASSERT_EQ(expected_greedy.size(), static_cast<size_t>(load.output_tokens));
  ASSERT_NE(expected_greedy, expected_seeded);
  struct Variant {
    int32_t requests, chunk, threads, depth;
    SlabLimits slab = {};
  };
  constexpr Variant kVariants[] = {{1, 1, 1, 0},
                                   {1, 7, 2, 1},
                                   {1, 256, 2, 1},
                                   {16, 256, 1, 0},
                                   {16, 256, 2, 1},
                                   {16, 7, 2, 1},
                                   {16, 1, 2, 0},
                                   {16, 256, 2, 1, {.max_tokens = 19, .max_logits = 3}},
                                   {16, 256, 2, 1, {.max_tokens = 19, .max_pass_tokens = 50}},
                                   {1, 256, 1, 0, {.max_tokens = 64, .max_pass_tokens = 13}}};
  for (const Variant& v : kVariants) {
    config.chunk_tokens = v.chunk;
    config.threads = v.threads;
    config.pipeline_depth = v.depth;
    config.slab = v.slab;
    ModelUnderTest model(config);
    EXPECT_EQ(model.Generate(Requests(load, v.requests, greedy))[0], expected_greedy)
        << v.requests << " requests, " << config.ToText();
    EXPECT_EQ(model.Generate(Requests(load, v.requests, seeded))[0], expected_seeded)
        << v.requests << " requests, " << config.ToText();
  }
}

TEST(BitIdentity, TinyModelExact) {
  ExpectSameBits({GoldenPath("tiny_b.gguf"), 320, 60, 40}, Numerics::kExact);
}
TEST(BitIdentity, TinyQuantisedModelExact) {
  ExpectSameBits({GoldenPath("tiny_c.gguf"), 512, 60, 40}, Numerics::kExact);
}
TEST(BitIdentity, TinyQuantisedModelFast) {
  ExpectSameBits({GoldenPath("tiny_c.gguf"), 512, 60, 40}, Numerics::kFast);
}

TEST(BitIdentity, TinyScaledRopeExact) {
  ExpectSameBits({GoldenPath("tiny_d.gguf"), 320, 60, 40}, Numerics::kExact);
}
TEST(BitIdentity, TinyQwen2Exact) {
  ExpectSameBits({GoldenPath("tiny_f.gguf"), 320, 60, 40}, Numerics::kExact);
}
TEST(BitIdentity, TinyQwen2Fast) {
  ExpectSameBits({GoldenPath("tiny_e.gguf"), 320, 60, 40}, Numerics::kFast);
}
TEST(BitIdentity, TinyQwen3Exact) {
  ExpectSameBits({GoldenPath("tiny_g.gguf"), 336, 60, 40}, Numerics::kExact);
}
TEST(BitIdentity, TinyQuantisedQwen3Fast) {
  ExpectSameBits({GoldenPath("tiny_h.gguf"), 320, 60, 40}, Numerics::kFast);
}

class KvTypes : public testing::TestWithParam<DType> {};

TEST_P(KvTypes, TinyModelExact) {
  ExpectSameBits({GoldenPath("tiny_b.gguf"), 320, 60, 40}, {Arithmetic::kExact, GetParam()});
}
TEST_P(KvTypes, TinyQuantisedModelFast) {  // heads of two runs
  ExpectSameBits({GoldenPath("tiny_h.gguf"), 320, 60, 40}, {Arithmetic::kFast, GetParam()});
}

INSTANTIATE_TEST_SUITE_P(BitIdentity, KvTypes, testing::ValuesIn(kKvTypes),
                         [](const auto& type) { return std::string(NameOfKvType(type.param)); });

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    if (SmolLm2Path().empty()) GTEST_SKIP() << "needs $TANDEM_TEST_MODEL: run ./test";
  }
};

TEST_F(SmolLm2, FastIsTheSameBits) {
  ExpectSameBits({SmolLm2Path(), 49152, 40, 16}, Numerics::kFast);
}
TEST_F(SmolLm2, ExactIsTheSameBits) {
  ExpectSameBits({SmolLm2Path(), 49152, 24, 10}, Numerics::kExact);
}
TEST_F(SmolLm2, FastWithQ8KvIsTheSameBits) {
  ExpectSameBits({SmolLm2Path(), 49152, 40, 16}, {Arithmetic::kFast, DType::kQ8_0});
}

}  // namespace
}  // namespace tandem
