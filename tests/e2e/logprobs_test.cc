// Log probabilities of prompts and answers: the same bits however the work is divided, and those of
// the logits that the model returns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/model_under_test.h"
#include "tests/support/workload.h"

namespace tandem {
namespace {

constexpr int32_t kTop = 4;
constexpr size_t kEntries = 1 + kTop;

struct Load {
  std::string model_path;
  int32_t vocab = 0;
  Numerics numerics = Numerics::kExact;
  int32_t prompt_tokens = 60;
  int32_t output_tokens = 12;
  int32_t batch = 16;  // requests that run together
};

TestConfig ConfigOf(const Load& load) {
  TestConfig config;
  config.model_path = load.model_path;
  config.numerics = load.numerics;
  return config;
}

TestRequest RequestOf(const Load& load) {
  return {.prompt = RandomPrompt(1, load.vocab, load.prompt_tokens),
          .output_tokens = load.output_tokens,
          .sampling = {.temperature = 0, .top_logprobs = kTop},
          .prompt_logprobs = true};
}

// One row's entries by the definition, in double: `token`, then the likeliest.
void ExpectEntries(const TokenLogprob* got, const float* logits, const ModelSpec& spec,
                   TokenId token) {
  const auto size = static_cast<size_t>(spec.vocab_size);
  const double max = *std::max_element(logits, logits + size);
  double mass = 0;
  for (size_t i = 0; i < size; ++i) mass += std::exp(logits[i] - max);
  std::vector<int32_t> order(static_cast<size_t>(spec.tokenizer_size));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<int32_t> ids = {token.value()};
  ids.insert(ids.end(), order.begin(), order.begin() + kTop);
  for (size_t i = 0; i < kEntries; ++i) {
    EXPECT_EQ(got[i].token, TokenId(ids[i]));
    EXPECT_NEAR(got[i].logprob, logits[ids[i]] - max - std::log(mass), 1e-5);
    const auto place = std::find(order.begin(), order.end(), ids[i]) - order.begin();
    EXPECT_EQ(got[i].rank, place + 1);
  }
}

void ExpectSoftmaxOfLogits(const Load& load) {
  ModelUnderTest model(ConfigOf(load));
  const TestRequest request = RequestOf(load);
  const TestAnswer answer = model.Answer({request})[0];
  ASSERT_EQ(answer.prompt_logprobs.size(), (request.prompt.size() - 1) * kEntries);
  ASSERT_EQ(answer.tokens.size(), static_cast<size_t>(load.output_tokens));
  ASSERT_EQ(answer.logprobs.size(), answer.tokens.size() * kEntries);
  std::vector<TokenId> all = request.prompt;
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  std::vector<TokenLogprob> entries = answer.prompt_logprobs;
  entries.insert(entries.end(), answer.logprobs.begin(), answer.logprobs.end());
  const std::vector<float> logits = model.Logits(all, 0);
  const auto vocab = static_cast<size_t>(model.spec().vocab_size);
  for (size_t i = 1; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectEntries(entries.data() + (i - 1) * kEntries, logits.data() + (i - 1) * vocab,
                  model.spec(), all[i]);
  }
}

void ExpectSameBits(const Load& load) {
  TestConfig config = ConfigOf(load);
  const TestRequest request = RequestOf(load);
  const TestAnswer expected = ModelUnderTest(config).Answer({request})[0];
  ASSERT_EQ(expected.prompt_logprobs.size(), (request.prompt.size() - 1) * kEntries);
  struct Variant {
    bool together;
    int32_t chunk, threads, depth;
    SlabLimits slab = {};
  };
  const Variant kVariants[] = {{false, 1, 1, 0},
                               {false, 7, 2, 1},
                               {false, 256, 2, 1, {.max_tokens = 13, .max_logits = 3}},
                               {true, 256, 2, 1},
                               {true, 7, 1, 0, {.max_tokens = 9, .max_logits = 5}},
                               {true, 1, 2, 1},
                               {true, 256, 2, 1, {.max_tokens = 11, .max_pass_tokens = 31}}};
  for (const Variant& v : kVariants) {
    config.chunk_tokens = v.chunk;
    config.threads = v.threads;
    config.pipeline_depth = v.depth;
    config.slab = v.slab;
    ModelUnderTest model(config);
    const int32_t requests = v.together ? load.batch : 1;
    EXPECT_EQ(model.Answer(WithCompany(request, requests, load.vocab))[0], expected)
        << requests << " requests, " << config.ToText();
  }
}

TEST(Logprobs, ExactModelsAreTheSoftmaxOfTheirLogits) {
  ExpectSoftmaxOfLogits({GoldenPath("tiny_b.gguf"), 320});
  ExpectSoftmaxOfLogits({GoldenPath("tiny_c.gguf"), 512});
}
TEST(Logprobs, FastModelIsTheSoftmaxOfItsLogits) {
  ExpectSoftmaxOfLogits({GoldenPath("tiny_c.gguf"), 512, Numerics::kFast});
}
// tiny_g's output has columns without a token: they weigh, but are not listed.
TEST(Logprobs, ListOnlyIdsWithAToken) { ExpectSoftmaxOfLogits({GoldenPath("tiny_g.gguf"), 320}); }

TEST(Logprobs, ExactModelGivesTheSameBits) { ExpectSameBits({GoldenPath("tiny_b.gguf"), 320}); }
TEST(Logprobs, FastModelGivesTheSameBits) {
  ExpectSameBits({GoldenPath("tiny_c.gguf"), 512, Numerics::kFast});
}

TEST(Logprobs, AnswersAreTheSameWithAndWithoutThem) {
  const Load load{GoldenPath("tiny_c.gguf"), 512, Numerics::kFast};
  ModelUnderTest model(ConfigOf(load));
  TestRequest request = RequestOf(load);
  const TestAnswer with = model.Answer({request})[0];
  request.sampling.top_logprobs = -1;
  request.prompt_logprobs = false;
  const TestAnswer without = model.Answer({request})[0];
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_TRUE(without.logprobs.empty());
  EXPECT_TRUE(without.prompt_logprobs.empty());
}

// Partial sums of ranks are added in another order than one rank adds them: near, not equal.
TEST(Logprobs, AreReportedOnceByParallelRanks) {
  const Load load{GoldenPath("tiny_b.gguf"), 320};
  TestConfig config = ConfigOf(load);
  const TestRequest request = RequestOf(load);
  const TestAnswer alone = ModelUnderTest(config).Answer({request})[0];
  config.world = 2;
  const TestAnswer ranks = ModelUnderTest(config).Answer({request})[0];
  ASSERT_EQ(ranks.tokens, alone.tokens);
  ASSERT_EQ(ranks.prompt_logprobs.size(), alone.prompt_logprobs.size());
  ASSERT_EQ(ranks.logprobs.size(), alone.logprobs.size());
  for (size_t i = 0; i < alone.prompt_logprobs.size(); i += kEntries) {
    EXPECT_EQ(ranks.prompt_logprobs[i].token, alone.prompt_logprobs[i].token);
    EXPECT_NEAR(ranks.prompt_logprobs[i].logprob, alone.prompt_logprobs[i].logprob, 1e-3);
  }
}

TEST(Logprobs, AreTheSameAfterAPreemption) {
  const Load load{GoldenPath("tiny_b.gguf"), 320};
  TestConfig config = ConfigOf(load);
  config.max_context = 96;
  TestRequest request = RequestOf(load);
  request.output_tokens = 0;
  const TestAnswer expected = ModelUnderTest(config).Answer({request})[0];
  ASSERT_EQ(expected.tokens.size(), 96u - 60u);
  for (const int32_t depth : {0, 1}) {
    config.pipeline_depth = depth;
    config.num_blocks = 14;  // two and a third contexts
    ModelUnderTest model(config);
    std::vector<TestRequest> requests(4, request);
    for (const TestAnswer& answer : model.Answer(requests)) EXPECT_EQ(answer, expected);
    EXPECT_GT(model.recomputed_tokens(), 60);
  }
}

TEST(Logprobs, SmolLm2GivesTheSameBitsAndTheSoftmaxOfItsLogits) {
  if (SmolLm2Path().empty()) GTEST_SKIP() << "needs $TANDEM_TEST_MODEL: run ./test";
  const Load load{SmolLm2Path(), 49152, Numerics::kFast, 24, 4, 4};
  ExpectSoftmaxOfLogits(load);
  ExpectSameBits(load);
}

}  // namespace
}  // namespace tandem
