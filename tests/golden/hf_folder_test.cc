// The tiny models of the goldens, written as Hugging Face folders, against the same logits: the
// weights are not permuted there, and the configuration is another file (tests/golden/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "model/hf_test_writer.h"
#include "os/test_dir.h"
#include "tests/support/model_under_test.h"

namespace tandem {
namespace {

struct Model {
  const char* name;
  const char* rope_scaling = "";
};

// tiny_d's, as make_goldens.py has it.
constexpr const char* kLlama3 =
    R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
    R"("original_max_position_embeddings":96)";

class HfFolderGolden : public testing::TestWithParam<Model> {
 protected:
  TestConfig Config(HfTestOptions options) const {
    options.rope_scaling = GetParam().rope_scaling;
    const auto file = GgufFile::Open(RealFileSystem(), GoldenPath(name_ + ".gguf"));
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    TestConfig config;
    config.model_path = WriteHfFolder(dir_, "hf", *file, options);
    config.tokenizer_size = SpecFromGguf(*file)->tokenizer_size;
    return config;
  }

  const TestDir dir_;
  const std::string name_ = GetParam().name;
  const nlohmann::json golden_ = nlohmann::json::parse(ReadTextFile(GoldenPath(name_ + ".json")));
  const std::vector<TokenId> prompt_ = TokensOf(golden_["prompt"].get<std::vector<int32_t>>());
};

TEST_P(HfFolderGolden, ExactLogitsEqualTheReferenceInBothSpellings) {
  const std::string raw = ReadTextFile(GoldenPath(name_ + ".f32"));
  std::vector<float> expected(raw.size() / sizeof(float));
  std::memcpy(expected.data(), raw.data(), raw.size());
  for (const bool new_spelling : {true, false}) {
    ModelUnderTest model(Config({.new_spelling = new_spelling, .shards = new_spelling ? 1 : 3}));
    const std::vector<float> logits = model.Logits(prompt_, 0);
    ASSERT_EQ(logits.size(), expected.size());
    float most = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const float difference = std::fabs(logits[i] - expected[i]);
      if (!(difference <= most)) most = difference;  // NaN counts
    }
    EXPECT_LE(most, golden_["tolerance"].get<float>());
  }
}

TEST_P(HfFolderGolden, ExactGreedyTokensEqualTheReference) {
  const auto expected = golden_["greedy"].get<std::vector<int32_t>>();
  ModelUnderTest model(Config({}));
  const auto tokens =
      model.Generate({{prompt_, static_cast<int32_t>(expected.size()), {.temperature = 0}}});
  EXPECT_EQ(tokens[0], TokensOf(expected));
}

INSTANTIATE_TEST_SUITE_P(Golden, HfFolderGolden,
                         testing::Values(Model{"tiny_a"}, Model{"tiny_b"}, Model{"tiny_c"},
                                         Model{"tiny_d", kLlama3}, Model{"tiny_e"}, Model{"tiny_f"},
                                         Model{"tiny_g"}, Model{"tiny_h"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tandem
