#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cli/eval_divergence.h"
#include "cli/eval_kl.h"
#include "cli/eval_model.h"
#include "cli/synth_vocabulary.h"
#include "cli/vocabulary_from_gguf.h"
#include "model/synth.h"
#include "os/test_dir.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 400, "max_position_embeddings": 100,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";

TEST(Divergence, EqualLogitsDivergeByNothing) {
  Divergence divergence;
  const std::vector<float> logits = {1, -2, 30, 0.5f};
  divergence.Add(logits, logits);
  EXPECT_EQ(divergence.MeanKl(), 0);
  EXPECT_EQ(divergence.P99Kl(), 0);
  EXPECT_EQ(divergence.Top1(), 1);
}

TEST(Divergence, KnownDistributions) {
  Divergence divergence;
  const std::vector<float> even = {5, 5};
  const std::vector<float> skewed = {std::log(3.0f), 0};  // 3/4 and 1/4
  divergence.Add(skewed, even);
  const double expected = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_NEAR(divergence.MeanKl(), expected, 1e-6);
  divergence.Add(std::vector<float>{1, 0}, std::vector<float>{0, 1});
  EXPECT_EQ(divergence.positions(), 2u);
  EXPECT_EQ(divergence.Top1(), 0.5);
  EXPECT_GT(divergence.P99Kl(), expected);
}

TEST(SynthVocabulary, EncodesAndDecodesAnyText) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const int32_t size : {259, 400, 20000, 256 + 65536 + 1000}) {
      auto vocabulary = MakeSynthVocabulary(architecture, size);
      ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
      EXPECT_EQ(vocabulary->tokens.size(), static_cast<size_t>(size));
      const auto tokenizer = Tokenizer::Create(*vocabulary);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
      const std::string text = "Hello, wörld! 日本語 \x01\n\n  123";
      const auto tokens = (*tokenizer)->Encode(text, {});
      std::string decoded;
      for (const TokenId token : tokens) decoded += (*tokenizer)->TokenBytes(token);
      EXPECT_EQ(decoded, text);
      if (size > 20000) {
        EXPECT_LT(tokens.size(), text.size());
      }
      EXPECT_EQ((*tokenizer)->Encode("<|im_end|>", {.parse_special = true}),
                std::vector<TokenId>{*vocabulary->eos});
    }
  }
  EXPECT_FALSE(MakeSynthVocabulary("llama", 258).ok());
  EXPECT_FALSE(MakeSynthVocabulary("llama", std::numeric_limits<int32_t>::max()).ok());
}

TEST(SynthVocabulary, ChatTemplateIsAccepted) {
  const Vocabulary vocabulary = MakeSynthVocabulary("qwen3", 300).value();
  const auto chat = ChatTemplate::Create(vocabulary.chat_template, "", "");
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  const auto text =
      chat->Render({{{"role", "user"}, {"content", "Hi"}}}, {.add_generation_prompt = true});
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

class Eval : public testing::Test {
 protected:
  void SetUp() override {
    const std::string config = dir_.Write("config.json", kConfig);
    SynthOptions options;
    options.shape = ShapeFromName(RealFileSystem(), config).value();
    options.mix.type = DType::kQ4_0;
    const Vocabulary vocabulary = MakeSynthVocabulary("llama", 400).value();
    options.add_tokenizer = [&](GgufHeader& header) { AddVocabularyTo(header, vocabulary); };
    const std::string path = dir_.path() + "/x.gguf";
    ASSERT_TRUE(SynthesizeGguf(RealFileSystem(), path, options).ok());
    const auto source = ModelSource::Open(RealFileSystem(), path).value();
    spec_ = source->spec();
    WeightsOptions weights;
    weights.use_cache = false;
    weights_ = ModelWeights::Open(RealFileSystem(), *source, weights).value();
    const auto tokenizer = Tokenizer::Create(VocabularyFromGguf(*source->gguf()).value()).value();
    tokens_ = tokenizer->Encode(DefaultEvalText().substr(0, 500), {});
  }
  Result<Divergence> Kl(Numerics numerics, Numerics against) {
    return EvaluateKl(spec_, *weights_, tokens_,
                      {.numerics = numerics, .against = against, .num_threads = 1});
  }

  TestDir dir_;
  ModelSpec spec_;
  std::unique_ptr<ModelWeights> weights_;
  std::vector<TokenId> tokens_;
};

TEST_F(Eval, ExactAgainstExactIsZero) {
  const auto divergence = Kl(Numerics::kExact, Numerics::kExact);
  ASSERT_TRUE(divergence.ok()) << divergence.status().ToString();
  EXPECT_EQ(divergence->positions(), tokens_.size());
  EXPECT_EQ(divergence->MeanKl(), 0);
  EXPECT_EQ(divergence->Top1(), 1);
}

TEST_F(Eval, FastIsNearExactAndNotEqual) {
  const auto divergence = Kl(Numerics::kFast, Numerics::kExact);
  ASSERT_TRUE(divergence.ok()) << divergence.status().ToString();
  EXPECT_GT(divergence->MeanKl(), 0);
  EXPECT_LT(divergence->MeanKl(), 0.01);
  EXPECT_GE(divergence->P99Kl(), divergence->MeanKl());
  EXPECT_GT(divergence->Top1(), 0.9);
}

TEST_F(Eval, NoTextIsRefused) {
  tokens_.clear();
  EXPECT_EQ(Kl(Numerics::kFast, Numerics::kExact).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Eval, LogitsDependOnTheTextAloneNotOnItsPiecesOrThoseBefore) {
  const auto model = EvalModel::Create(spec_, *weights_, Numerics::kExact, 1, 64).value();
  const std::span<const TokenId> text = std::span(tokens_).first(40);
  const auto whole = model->Append(text).value();
  const std::vector<float> expected(whole.begin(), whole.end());
  ASSERT_EQ(expected.size(), 40 * static_cast<size_t>(spec_.vocab_size));
  EXPECT_EQ(model->Append(text).status().code(), StatusCode::kOutOfRange);
  model->Restart();
  std::vector<float> found;
  for (size_t begin = 0; begin < 40; begin += 7) {
    const auto piece = model->Append(text.subspan(begin, std::min<size_t>(7, 40 - begin))).value();
    found.insert(found.end(), piece.begin(), piece.end());
  }
  EXPECT_TRUE(found == expected);
}

TEST(EvalText, IsTheOneThatIsMeasuredEverywhere) {
  EXPECT_EQ(DefaultEvalText(),
            TestDir::Read(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/eval_text.txt"));
}

}  // namespace
}  // namespace tandem
