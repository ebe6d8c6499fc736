// SmolLM2 against the reference implementation: text, greedy tokens, and what `fast` costs in
// accuracy.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/eval_divergence.h"
#include "cli/vocabulary_from_gguf.h"
#include "model/gguf.h"
#include "tests/support/model_under_test.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

nlohmann::json LoadJson(const std::string& name) {
  return nlohmann::json::parse(ReadTextFile(GoldenPath(name)));
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    if (SmolLm2Path().empty()) GTEST_SKIP() << "needs $TANDEM_TEST_MODEL: run ./test";
  }
  std::unique_ptr<Tokenizer> LoadTokenizer() {
    const auto file = GgufFile::Open(RealFileSystem(), SmolLm2Path());
    return std::move(Tokenizer::Create(VocabularyFromGguf(*file).value())).value();
  }
  TestConfig Config(Numerics numerics) {
    TestConfig config;
    config.model_path = SmolLm2Path();
    config.numerics = numerics;
    config.threads = 2;
    config.max_context = 512;
    return config;
  }
};

TEST_F(SmolLm2, TokensEqualTheReference) {
  const auto tokenizer = LoadTokenizer();
  const nlohmann::json golden = LoadJson("smollm2_tokens.json");
  ASSERT_GT(golden["records"].size(), 300u);
  for (const auto& record : golden["records"]) {
    const auto text = record["text"].get<std::string>();
    const auto expected = TokensOf(record["ids"].get<std::vector<int32_t>>());
    const auto tokens = tokenizer->Encode(text, {.parse_special = record.value("special", false)});
    ASSERT_EQ(tokens, expected) << nlohmann::json(text).dump();
    if (record.value("lossy", false)) continue;
    IncrementalDetokenizer detokenizer(*tokenizer);
    std::string decoded;
    for (const TokenId token : tokens) decoded += detokenizer.Append(token, /*skip_special=*/false);
    decoded += detokenizer.Flush();
    ASSERT_EQ(decoded, text);
  }
}

TEST_F(SmolLm2, ChatTemplateRendersAsTheReference) {
  const auto tokenizer = LoadTokenizer();
  const nlohmann::ordered_json golden =
      nlohmann::ordered_json::parse(ReadTextFile(GoldenPath("smollm2_chat.json")));
  const auto chat = ChatTemplate::Create(tokenizer->vocabulary().chat_template,
                                         std::string(tokenizer->TokenBytes(*tokenizer->bos())),
                                         std::string(tokenizer->TokenBytes(*tokenizer->eos())));
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  ASSERT_GT(golden["records"].size(), 20u);
  for (const auto& record : golden["records"]) {
    const auto text = chat->Render(
        record["messages"], {.add_generation_prompt = record["add_generation_prompt"].get<bool>()});
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_EQ(*text, record["text"].get<std::string>());
    EXPECT_EQ(tokenizer->Encode(*text, {.parse_special = true}),
              TokensOf(record["ids"].get<std::vector<int32_t>>()));
  }
}

TEST_F(SmolLm2, ExactGreedyTokensEqualTheReference) {
  const nlohmann::json golden = LoadJson("smollm2_greedy.json");
  const double near_tie = golden["near_tie"].get<double>();
  std::vector<TestRequest> requests;
  for (const auto& record : golden["records"]) {
    requests.push_back({TokensOf(record["prompt"].get<std::vector<int32_t>>()),
                        static_cast<int32_t>(record["greedy"].size()),
                        {.temperature = 0}});
  }
  ASSERT_EQ(requests.size(), 20u);
  TestConfig config = Config(Numerics::kExact);
  config.pipeline_depth = 1;
  ModelUnderTest model(config);
  const auto outputs = model.Generate(requests);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& record = golden["records"][i];
    const auto expected = TokensOf(record["greedy"].get<std::vector<int32_t>>());
    ASSERT_EQ(outputs[i].size(), expected.size());
    for (size_t step = 0; step < expected.size(); ++step) {
      if (outputs[i][step] == expected[step]) continue;
      EXPECT_LT(record["gaps"][step].get<double>(), near_tie) << "prompt " << i << " step " << step;
      break;  // from here on the two continue different texts
    }
  }
}

void Compare(std::span<const float> exact, std::span<const float> fast, size_t vocab,
             Divergence* divergence) {
  for (size_t at = 0; at < exact.size(); at += vocab) {
    divergence->Add(exact.subspan(at, vocab), fast.subspan(at, vocab));
  }
}

// Measured 2026-11-30: mean 0.00051, p99 0.0031, top-1 99.2 % (docs/decisions/003). Frozen with
// room for the next kernel's rounding, far inside what `fast` must keep (0.002, 0.02, 98 %).
TEST_F(SmolLm2, FastStaysCloseToExact) {
  const nlohmann::json golden = LoadJson("eval_text.json");
  const std::vector<TokenId> all = TokensOf(golden["ids"].get<std::vector<int32_t>>());
  ModelUnderTest exact(Config(Numerics::kExact));
  ModelUnderTest fast(Config(Numerics::kFast));
  const auto vocab = static_cast<size_t>(exact.spec().vocab_size);
  constexpr size_t kPiece = 256;  // logits of one piece are 50 MB
  Divergence divergence;
  for (size_t begin = 0; begin + kPiece <= all.size(); begin += kPiece) {
    const auto first = all.begin() + static_cast<int64_t>(begin);
    const std::vector<TokenId> piece(first, first + kPiece);
    Compare(exact.Logits(piece, 0), fast.Logits(piece, 0), vocab, &divergence);
  }
  ASSERT_GT(divergence.positions(), 2000u);
  fmt::print("fast against exact: mean KL {:.5f}, p99 {:.5f}, top-1 {:.2f} %\n",
             divergence.MeanKl(), divergence.P99Kl(), 100 * divergence.Top1());
  EXPECT_LE(divergence.MeanKl(), 0.0008);
  EXPECT_LE(divergence.P99Kl(), 0.006);
  EXPECT_GE(divergence.Top1(), 0.985);
}

// The reference's own likelihoods of the text: an absolute check of `exact` over long contexts.
TEST_F(SmolLm2, ExactLikelihoodsEqualTheReference) {
  const nlohmann::json golden = LoadJson("eval_text.json");
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  const auto nll = golden["nll"].get<std::vector<double>>();
  constexpr size_t kPositions = 384;
  ModelUnderTest model(Config(Numerics::kExact));
  const auto vocab = static_cast<size_t>(model.spec().vocab_size);
  const std::vector<TokenId> tokens = TokensOf({ids.begin(), ids.begin() + kPositions});
  const std::vector<float> logits = model.Logits(tokens, 100);
  for (size_t p = 0; p + 1 < kPositions; ++p) {
    const float* x = logits.data() + p * vocab;
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(std::log(sum) - x[static_cast<size_t>(ids[p + 1])], nll[p], 2e-3)
        << "position " << p;
  }
}

}  // namespace
}  // namespace tandem
