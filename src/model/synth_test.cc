#include "model/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/model_source.h"
#include "model/tensor_layout.h"
#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "intermediate_size": 160, "vocab_size": 300, "max_position_embeddings": 128,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})";

SynthOptions Small(const TestDir& dir, DType type) {
  SynthOptions options;
  const Result<ModelSpec> shape =
      ShapeFromName(RealFileSystem(), dir.Write("config.json", kConfig));
  EXPECT_TRUE(shape.ok()) << shape.status().ToString();
  options.shape = *shape;
  options.mix.type = type;
  return options;
}

TEST(Synth, EveryTypeGivesAModelThatOpens) {
  for (const GgmlTypeInfo* type : WritableTypes()) {
    TestDir dir;
    const std::string path = dir.path() + "/x.gguf";
    const SynthOptions options = Small(dir, *type->dtype);
    const auto report = SynthesizeGguf(RealFileSystem(), path, options);
    ASSERT_TRUE(report.ok()) << type->name << " " << report.status().ToString();
    const auto source = ModelSource::Open(RealFileSystem(), path);
    ASSERT_TRUE(source.ok()) << type->name << " " << source.status().ToString();
    EXPECT_EQ((*source)->gguf()->file_bytes(), report->bytes);
    const ModelSpec& spec = (*source)->spec();
    EXPECT_EQ(spec.architecture, "qwen3");
    EXPECT_EQ(spec.head_dim, 64);
    EXPECT_EQ(spec.vocab_size, 300);
    EXPECT_FALSE(spec.tied_embeddings);
    EXPECT_NEAR(spec.rms_epsilon, 1e-6, 1e-9);
  }
}

TEST(Synth, NamedShapesHaveTheirSizes) {
  struct Known {
    const char* name;
    int64_t parameters;
  };
  for (const Known& known : {Known{"smollm2-135m", 134515008}, Known{"qwen3-0.6b", 596049920},
                             Known{"llama-3.2-1b", 1235814400}}) {
    const auto shape = ShapeFromName(RealFileSystem(), known.name);
    ASSERT_TRUE(shape.ok()) << shape.status().ToString();
    int64_t parameters = 0;
    for (const TensorSpec& tensor : TensorsOf(*shape)) parameters += tensor.rows * tensor.cols;
    EXPECT_EQ(parameters, known.parameters) << known.name;
  }
  const Status unknown = ShapeFromName(RealFileSystem(), "qwen4").status();
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("smollm2-135m"));
}

TEST(Synth, ScaledRopeFrequenciesAreKept) {
  TestDir dir;
  const std::string path = dir.path() + "/x.gguf";
  SynthOptions options;
  options.shape = ShapeFromName(RealFileSystem(), "llama-3.2-1b").value();
  options.shape.num_layers = 1;
  options.shape.hidden_dim = 64;
  options.shape.ffn_dim = 64;
  options.shape.num_heads = 2;
  options.shape.num_kv_heads = 1;
  options.shape.vocab_size = 300;
  options.shape.tokenizer_size = 300;
  ASSERT_TRUE(SynthesizeGguf(RealFileSystem(), path, options).ok());
  const auto source = ModelSource::Open(RealFileSystem(), path);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->spec().rope.divisors, options.shape.rope.divisors);
  EXPECT_EQ((*source)->spec().rope.divisors.back(), 32.0f);
}

TEST(Synth, SameSeedSameBytes) {
  TestDir dir;
  const std::string a = dir.path() + "/a.gguf";
  const std::string b = dir.path() + "/b.gguf";
  SynthOptions options = Small(dir, DType::kQ4_1);
  ASSERT_TRUE(SynthesizeGguf(RealFileSystem(), a, options).ok());
  ASSERT_TRUE(SynthesizeGguf(RealFileSystem(), b, options).ok());
  EXPECT_EQ(TestDir::Read(a), TestDir::Read(b));
  options.seed = 1;
  ASSERT_TRUE(SynthesizeGguf(RealFileSystem(), b, options).ok());
  EXPECT_NE(TestDir::Read(a), TestDir::Read(b));
}

TEST(Synth, WeightsKeepActivationsNearOne) {
  TestDir dir;
  const std::string path = dir.path() + "/x.gguf";
  ASSERT_TRUE(SynthesizeGguf(RealFileSystem(), path, Small(dir, DType::kF32)).ok());
  const auto source = ModelSource::Open(RealFileSystem(), path);
  ASSERT_TRUE(source.ok());
  const auto variance = [&](const char* name, double center) {
    const SourceTensor* tensor = (*source)->FindTensor(name);
    std::vector<float> values(static_cast<size_t>(tensor->rows * tensor->cols));
    EXPECT_TRUE((*source)->ReadTensor(*tensor, 0, std::as_writable_bytes(std::span(values))).ok());
    double sum = 0;
    for (const float value : values) sum += (value - center) * (value - center);
    return sum / static_cast<double>(values.size());
  };
  EXPECT_NEAR(variance("blk.0.attn_q.weight", 0) * 96, 1, 0.05);
  EXPECT_NEAR(variance("blk.1.ffn_down.weight", 0) * 160 * 4, 1, 0.05);  // 2 layers add 4 outputs
  EXPECT_NEAR(variance("output.weight", 0) * 96, 4, 0.2);
  EXPECT_LT(variance("output_norm.weight", 1), 0.01);
}

TEST(Synth, FailedOrCancelledWritingLeavesNothing) {
  TestDir config;
  SynthOptions options = Small(config, DType::kQ8_0);
  for (const int64_t budget : {0, 1000, 5000, 100000}) {
    TestDir dir;
    FaultFileSystem fs(RealFileSystem());
    fs.LimitWrites(budget);
    const auto report = SynthesizeGguf(fs, dir.path() + "/x.gguf", options);
    EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted) << budget;
    EXPECT_TRUE(RealFileSystem().List(dir.path()).value().empty());
  }
  TestDir dir;
  int asked = 0;
  options.cancelled = [&asked] { return ++asked > 5; };
  const auto report = SynthesizeGguf(RealFileSystem(), dir.path() + "/x.gguf", options);
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(RealFileSystem().List(dir.path()).value().empty());
}

TEST(Synth, WrongShapesAreRefused) {
  TestDir dir;
  SynthOptions options = Small(dir, DType::kQ4_0);
  EXPECT_EQ(SynthesizeGguf(RealFileSystem(), dir.path(), options).status().code(),
            StatusCode::kInvalidArgument);
  options.shape.num_layers = 0;
  EXPECT_EQ(SynthesizeGguf(RealFileSystem(), dir.path() + "/x", options).status().code(),
            StatusCode::kInvalidArgument);
  options = Small(dir, DType::kQ4_0);
  options.shape.architecture = "gemma3";
  EXPECT_EQ(SynthesizeGguf(RealFileSystem(), dir.path() + "/x", options).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_FALSE(ShapeFromName(RealFileSystem(), dir.Write("bad.json", "{]")).ok());
}

}  // namespace
}  // namespace tandem
