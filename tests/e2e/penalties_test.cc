// Penalties, biases, bans and min-p on a real model: each chosen token is the one that a plain
// reading of the parameters chooses from the logits of its history.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "device/cpu_device.h"
#include "sampling/sampling.h"
#include "tests/support/model_under_test.h"
#include "tests/support/workload.h"

namespace tandem {
namespace {

constexpr int32_t kVocab = 320;

TestConfig Config() {
  TestConfig config;
  config.model_path = GoldenPath("tiny_b.gguf");
  return config;
}

// Parameters that change the choice in every way there is.
TestRequest Penalised(uint64_t seed, double temperature) {
  SplitMix64 random(seed);
  TestRequest request;
  request.prompt = RandomPrompt(seed, kVocab, 20 + static_cast<int32_t>(random.Below(40)));
  request.output_tokens = 30;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.sampling.repetition_penalty = 0.6 + random.NextDouble();
  request.sampling.presence_penalty = 2 * random.NextDouble() - 0.5;
  request.sampling.frequency_penalty = 2 * random.NextDouble() - 0.5;
  request.sampling.min_p = random.Below(2) == 0 ? 0.0 : 0.02;
  request.logit_bias = {{TokenId(5), 1.5f}, {TokenId(6), -3.0f}};
  return request;
}

// What the definition makes of the raw logits behind `history`.
std::vector<float> Adjusted(const float* raw, const TestRequest& request,
                            const std::vector<TokenId>& history) {
  std::vector<float> logits(raw, raw + kVocab);
  for (const LogitBias& b : request.logit_bias) {
    logits[static_cast<size_t>(b.token.value())] += b.bias;
  }
  const auto outputs = history.size() - request.prompt.size();
  if (static_cast<int32_t>(outputs) < request.sampling.min_tokens) {
    for (const TokenId stop : request.stop_tokens) {
      logits[static_cast<size_t>(stop.value())] = -std::numeric_limits<float>::infinity();
    }
  }
  for (int32_t id = 0; id < kVocab; ++id) {
    const auto begin = history.begin() + static_cast<int64_t>(request.prompt.size());
    const auto count = static_cast<double>(std::count(begin, history.end(), TokenId(id)));
    if (std::count(history.begin(), history.end(), TokenId(id)) == 0) continue;
    double logit = logits[static_cast<size_t>(id)];
    const double repetition = request.sampling.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    logit -= request.sampling.frequency_penalty * count;
    if (count > 0) logit -= request.sampling.presence_penalty;
    logits[static_cast<size_t>(id)] = static_cast<float>(logit);
  }
  return logits;
}

// The plain sampler's choice; it has a test of its own.
TokenId PlainChoice(const std::vector<float>& logits, const SamplingParams& params,
                    size_t position) {
  const auto device = MakeCpuDevice({.num_threads = 1});
  const auto stream = std::move(device->NewStream()).value();
  SampleRow row;
  row.params.temperature = params.temperature;
  row.params.min_p = params.min_p;
  row.params.seed = params.seed;
  row.position = static_cast<int64_t>(position);
  int32_t token = -1;
  SampleArgs args;
  args.logits = logits.data();
  args.vocab_size = args.num_choices = kVocab;
  args.rows = &row;
  args.num_rows = 1;
  args.out = &token;
  SampleRows(*stream, args);
  stream->Synchronize();
  return TokenId(token);
}

void ExpectDefinition(ModelUnderTest& model, const TestRequest& request,
                      const std::vector<TokenId>& answer) {
  std::vector<TokenId> all = request.prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  const std::vector<float> logits = model.Logits(all, 0);
  for (size_t i = request.prompt.size(); i < all.size(); ++i) {
    const std::vector<TokenId> history(all.begin(), all.begin() + static_cast<int64_t>(i));
    const auto adjusted = Adjusted(logits.data() + (i - 1) * kVocab, request, history);
    EXPECT_EQ(all[i], PlainChoice(adjusted, request.sampling, i))
        << "output " << i - request.prompt.size();
  }
}

TEST(Penalties, ChooseWhatTheDefinitionChooses) {
  ModelUnderTest model(Config());
  int changed = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const TestRequest request = Penalised(seed, seed % 2 == 0 ? 0.0 : 0.9);
    TestRequest plain = request;
    plain.sampling = {.temperature = request.sampling.temperature, .seed = seed};
    plain.logit_bias.clear();
    const auto answer = model.Generate({request})[0];
    ASSERT_EQ(answer.size(), 30u);
    ExpectDefinition(model, request, answer);
    changed += answer != model.Generate({plain})[0];
  }
  EXPECT_GE(changed, 10);
}

TEST(Penalties, GiveTheSameTextWhateverElseRuns) {
  for (const double temperature : {0.0, 0.8}) {
    const TestRequest request = Penalised(3, temperature);
    const auto expected = ModelUnderTest(Config()).Generate({request})[0];
    struct Variant {
      int32_t requests, chunk, depth, max_pass_tokens;
    };
    for (const Variant& v : {Variant{1, 7, 0, 512}, Variant{1, 256, 1, 512}, Variant{16, 7, 1, 512},
                             Variant{16, 256, 0, 37}, Variant{16, 256, 1, 37}}) {
      TestConfig config = Config();
      config.chunk_tokens = v.chunk;
      config.pipeline_depth = v.depth;
      config.threads = 2;
      config.slab = {.max_tokens = 16, .max_logits = 5, .max_pass_tokens = v.max_pass_tokens};
      ModelUnderTest model(config);
      EXPECT_EQ(model.Generate(WithCompany(request, v.requests, kVocab))[0], expected)
          << v.requests << " requests, " << config.ToText();
    }
  }
}

TEST(Penalties, GiveTheSameTextAfterAPreemption) {
  TestConfig config = Config();
  config.max_context = 96;
  TestRequest request = Penalised(4, 0.8);
  request.output_tokens = 0;
  const auto expected = ModelUnderTest(config).Generate({request})[0];
  ASSERT_GT(expected.size(), 35u);
  for (const int32_t depth : {0, 1}) {
    config.pipeline_depth = depth;
    config.num_blocks = 14;
    ModelUnderTest model(config);
    const std::vector<TestRequest> requests(4, request);
    for (const auto& answer : model.Generate(requests)) EXPECT_EQ(answer, expected);
    EXPECT_GT(model.recomputed_tokens(), 20);
  }
}

TEST(Penalties, ParallelRanksChooseTheSame) {
  const TestRequest request = Penalised(6, 0.0);
  TestConfig config = Config();
  const auto expected = ModelUnderTest(config).Generate({request})[0];
  config.world = 2;
  EXPECT_EQ(ModelUnderTest(config).Generate({request})[0], expected);
}

TEST(MinTokens, NoStopTokenComesBeforeThem) {
  for (const int32_t depth : {0, 1}) {
    TestConfig config = Config();
    config.pipeline_depth = depth;
    ModelUnderTest model(config);
    TestRequest request;
    request.prompt = RandomPrompt(9, kVocab, 20);
    request.output_tokens = 40;
    // Greedy's first choice stops at once; a strong bias makes it the first choice for ever.
    request.stop_tokens = {TokenId(77), TokenId(78)};
    request.logit_bias = {{TokenId(77), 100.0f}, {TokenId(78), 90.0f}};
    EXPECT_TRUE(model.Generate({request})[0].empty());
    request.sampling.min_tokens = 7;
    const auto answer = model.Generate({request})[0];
    EXPECT_EQ(answer.size(), 7u) << "it stops as soon as it may";
    for (const TokenId token : answer) {
      EXPECT_EQ(std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token), 0);
    }
    ExpectDefinition(model, request, answer);
  }
}

}  // namespace
}  // namespace tandem
