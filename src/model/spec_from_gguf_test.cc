#include "model/spec_from_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "model/gguf_test_writer.h"
#include "model/test_model.h"

namespace tandem {
namespace {

using testing::HasSubstr;

Result<ModelSpec> SpecOf(GgufTestWriter w) {
  const std::string bytes = w.Build();
  const auto file = GgufFile::Read(MakeMemoryFile(std::as_bytes(std::span(bytes)), "dir/m.gguf"));
  if (!file.ok()) return file.status();
  return SpecFromGguf(*file);
}

TEST(SpecFromGguf, ReadsATinyModel) {
  const auto spec = SpecOf(TestModelWriter());
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->name, "Test");
  EXPECT_EQ(spec->num_layers, 2);
  EXPECT_EQ(spec->hidden_dim, 64);
  EXPECT_EQ(spec->num_heads, 4);
  EXPECT_EQ(spec->num_kv_heads, 2);
  EXPECT_EQ(spec->head_dim, 16);
  EXPECT_EQ(spec->ffn_dim, 128);
  EXPECT_EQ(spec->vocab_size, 40);
  EXPECT_EQ(spec->context_length, 256);
  EXPECT_FLOAT_EQ(static_cast<float>(spec->rms_epsilon), 1e-5f);
  EXPECT_EQ(spec->rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->rope.dims, 16);
  EXPECT_TRUE(spec->rope.divisors.empty());
  EXPECT_FALSE(spec->qkv_bias);
  EXPECT_FALSE(spec->qk_norm);
  EXPECT_EQ(spec->tokenizer_size, 40);
  EXPECT_TRUE(spec->tied_embeddings);
}

TEST(SpecFromGguf, QwenFamiliesRotateHalvesAndHaveBiasesOrHeadNorms) {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    const auto spec = SpecOf(TestModelWriter({.architecture = architecture}));
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->architecture, architecture);
    EXPECT_EQ(spec->rope.style, RopeStyle::kHalfSplit);
    EXPECT_EQ(spec->qkv_bias, spec->architecture == "qwen2");
    EXPECT_EQ(spec->qk_norm, spec->architecture == "qwen3");
  }
  GgufTestWriter no_bias = TestModelWriter({.architecture = "qwen2"});
  no_bias.Remove("blk.1.attn_v.bias");
  EXPECT_THAT(SpecOf(no_bias).status().ToString(),
              HasSubstr("NOT_FOUND: dir/m.gguf: tensor 'blk.1.attn_v.bias' is missing"));
  GgufTestWriter no_norm = TestModelWriter({.architecture = "qwen3"});
  no_norm.Remove("blk.0.attn_k_norm.weight");
  EXPECT_THAT(SpecOf(no_norm).status().ToString(),
              HasSubstr("tensor 'blk.0.attn_k_norm.weight' is missing"));
  GgufTestWriter table = TestModelWriter({.architecture = "qwen3"});
  table.AddTensor("rope_freqs.weight", {8}, 0, std::string(32, '\0'));
  EXPECT_THAT(SpecOf(table).status().ToString(),
              HasSubstr("tensor 'rope_freqs.weight' has no place in a qwen3 model"));
}

std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(SpecFromGguf, ReadsTheRopeDivisors) {
  const std::vector<float> divisors = {1, 1, 1.5f, 2, 4, 7, 8, 8};
  GgufTestWriter w = TestModelWriter();
  w.AddTensor("rope_freqs.weight", {8}, 0, FloatBytes(divisors));
  const auto spec = SpecOf(w);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->rope.divisors, divisors);
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    GgufTestWriter damaged = TestModelWriter();
    damaged.AddTensor("rope_freqs.weight", {8}, 0, FloatBytes({1, 1, 1, 1, 1, 1, 1, bad}));
    EXPECT_THAT(SpecOf(damaged).status().ToString(),
                HasSubstr("INVALID_ARGUMENT: dir/m.gguf: rope frequency divisor"));
  }
}

TEST(SpecFromGguf, TheTokenizerEndsBeforeTheUnusedTail) {
  const auto size_with = [](std::vector<int32_t> types, uint64_t num_tokens) {
    GgufTestWriter w = TestModelWriter();
    w.AddArray("tokenizer.ggml.tokens", GgufValueType::kU8, num_tokens,
               std::string(num_tokens, 'x'));
    if (!types.empty()) {
      w.AddArray("tokenizer.ggml.token_type", GgufValueType::kI32, types.size(),
                 {reinterpret_cast<const char*>(types.data()), types.size() * sizeof(int32_t)});
    }
    const auto spec = SpecOf(w);
    return spec.ok() ? spec->tokenizer_size : -1;
  };
  EXPECT_EQ(size_with({}, 40), 40);
  EXPECT_EQ(size_with({}, 33), 33);
  std::vector<int32_t> types(40, 1);
  EXPECT_EQ(size_with(types, 40), 40);
  types[7] = types[38] = types[39] = 5;  // unused, as converters mark rows without a token
  EXPECT_EQ(size_with(types, 40), 38);
  types[39] = 3;
  EXPECT_EQ(size_with(types, 40), 40);
  EXPECT_EQ(size_with(std::vector<int32_t>(40, 5), 40), -1);
}

TEST(SpecFromGguf, GivenValuesReplaceDefaults) {
  GgufTestWriter w = TestModelWriter({.tied = false});
  w.AddFloat("llama.rope.freq_base", 5e5f);
  w.AddInt("llama.rope.dimension_count", 8);
  w.AddInt("llama.vocab_size", 40);
  w.AddString("llama.rope.scaling.type", "none");
  w.AddInt("llama.expert_count", 0);
  const auto spec = SpecOf(w);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->rope.theta, 5e5);
  EXPECT_EQ(spec->rope.dims, 8);
  EXPECT_FALSE(spec->tied_embeddings);
}

// The files were written by the `gguf` package from the seed's own numbers
// (tests/golden/manifest.json).
TEST(SpecFromGguf, ReadsTheGoldenModels) {
  const struct {
    const char* name;
    int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    double theta;
    bool tied;
    int32_t tokens;
    size_t divisors;
  } kModels[] = {{"tiny_a", 4, 64, 4, 2, 16, 128, 320, 1e4, false, 320, 0},
                 {"tiny_b", 2, 96, 6, 2, 32, 160, 320, 1e5, true, 320, 0},
                 {"tiny_c", 3, 160, 4, 2, 32, 320, 512, 1e5, true, 512, 0},
                 {"tiny_d", 3, 64, 4, 2, 32, 128, 320, 1e4, false, 320, 16},
                 {"tiny_e", 3, 64, 4, 2, 16, 128, 320, 1e6, true, 320, 0},
                 {"tiny_f", 2, 96, 6, 2, 16, 160, 320, 1e6, false, 320, 0},
                 {"tiny_g", 2, 64, 4, 2, 32, 128, 336, 1e6, false, 320, 0},
                 {"tiny_h", 2, 160, 4, 2, 64, 320, 320, 1e6, true, 320, 0}};
  for (const auto& m : kModels) {
    const auto file = GgufFile::Open(
        RealFileSystem(), fmt::format("{}/tests/golden/{}.gguf", TANDEM_SOURCE_DIR, m.name));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const auto spec = SpecFromGguf(*file);
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->num_layers, m.layers) << m.name;
    EXPECT_EQ(spec->hidden_dim, m.hidden) << m.name;
    EXPECT_EQ(spec->num_heads, m.heads) << m.name;
    EXPECT_EQ(spec->num_kv_heads, m.kv_heads) << m.name;
    EXPECT_EQ(spec->head_dim, m.head_dim) << m.name;
    EXPECT_EQ(spec->rope.dims, m.head_dim) << m.name;
    EXPECT_EQ(spec->ffn_dim, m.ffn) << m.name;
    EXPECT_EQ(spec->vocab_size, m.vocab) << m.name;
    EXPECT_EQ(spec->rope.theta, m.theta) << m.name;
    EXPECT_EQ(spec->tied_embeddings, m.tied) << m.name;
    EXPECT_EQ(spec->tokenizer_size, m.tokens) << m.name;
    EXPECT_EQ(spec->rope.divisors.size(), m.divisors) << m.name;
  }
}

TEST(SpecFromGguf, HeadCountsMayBeGivenPerLayer) {
  const auto with = [](int32_t second) {
    GgufTestWriter w = TestModelWriter({.kv_heads = 4});
    const std::string raw = GgufTestWriter::Raw(int32_t{4}) + GgufTestWriter::Raw(second);
    w.Replace("llama.attention.head_count_kv", GgufValueType::kArray,
              GgufTestWriter::Raw(uint32_t{5}) + GgufTestWriter::Raw(uint64_t{2}) + raw);
    return SpecOf(w);
  };
  const auto same = with(4);
  ASSERT_TRUE(same.ok()) << same.status().ToString();
  EXPECT_EQ(same->num_kv_heads, 4);
  EXPECT_EQ(with(2).status().ToString(),
            "UNIMPLEMENTED: dir/m.gguf: metadata 'llama.attention.head_count_kv' differs between "
            "layers, which is not supported");
}

struct Refusal {
  std::function<void(GgufTestWriter&)> change;
  std::string expected;
};

std::function<void(GgufTestWriter&)> Int(std::string key, uint32_t value) {
  return
      [=](GgufTestWriter& w) { w.Replace(key, GgufValueType::kU32, GgufTestWriter::Raw(value)); };
}
std::function<void(GgufTestWriter&)> Float(std::string key, float value) {
  return
      [=](GgufTestWriter& w) { w.Replace(key, GgufValueType::kF32, GgufTestWriter::Raw(value)); };
}
std::function<void(GgufTestWriter&)> Text(std::string key, std::string value) {
  return [=](GgufTestWriter& w) {
    w.Replace(key, GgufValueType::kString, GgufTestWriter::RawString(value));
  };
}
std::function<void(GgufTestWriter&)> Without(std::string name) {
  return [=](GgufTestWriter& w) { w.Remove(name); };
}
std::function<void(GgufTestWriter&)> Tensor(std::string name, std::vector<uint64_t> dims,
                                            uint32_t type, size_t bytes) {
  return [=](GgufTestWriter& w) {
    w.Remove(name);
    w.AddTensor(name, dims, type, std::string(bytes, '\0'));
  };
}

TEST(SpecFromGguf, RefusesWhatItWouldComputeWrongly) {
  const Refusal refusals[] = {
      {Text("general.architecture", "gemma3"),
       "UNIMPLEMENTED: dir/m.gguf: architecture 'gemma3' is not supported: Tandem runs llama, "
       "qwen2, qwen3"},
      {Text("general.architecture", "qwen3moe"), "architecture 'qwen3moe' is not supported"},
      {Int("llama.attention.key_length", 512),
       "keys of 512 and values of 16 dimensions are not supported"},
      {Text("general.type", "adapter"), "the file holds a 'adapter', not a model"},
      {Text("llama.rope.scaling.type", "yarn"),
       "rope scaling 'yarn' is not supported (metadata 'llama.rope.scaling.type')"},
      {Float("llama.rope.scaling.factor", 4),
       "linear rope scaling is not supported (metadata 'llama.rope.scaling.factor' = 4)"},
      {Float("llama.rope.scale_linear", 2), "metadata 'llama.rope.scale_linear' = 2"},
      {Int("llama.expert_count", 8), "metadata 'llama.expert_count' = 8 is not supported"},
      {Int("llama.attention.sliding_window", 4096),
       "metadata 'llama.attention.sliding_window' = 4096"},
      {Float("llama.logit_scale", 0.5f), "metadata 'llama.logit_scale' = 0.5"},
      {Int("llama.attention.value_length", 32), "keys of 16 and values of 32 dimensions"},
      {Tensor("blk.0.attn_q.bias", {64}, 0, 256),
       "UNIMPLEMENTED: dir/m.gguf: tensor 'blk.0.attn_q.bias' has no place in a llama model"},
      {Tensor("blk.1.attn_v.weight", {64, 32}, 99, 1280),
       "UNIMPLEMENTED: dir/m.gguf: tensor 'blk.1.attn_v.weight' has type 99, which Tandem does not "
       "know"},
      {Tensor("token_embd.weight", {256, 40}, 16, 2640),
       "tensor 'token_embd.weight' is IQ2_XXS, which is not supported: Tandem runs F32, F16, Q4_0, "
       "Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, MXFP4"},
  };
  for (const Refusal& refusal : refusals) {
    GgufTestWriter w = TestModelWriter();
    refusal.change(w);
    const auto spec = SpecOf(w);
    ASSERT_FALSE(spec.ok()) << refusal.expected;
    EXPECT_EQ(spec.status().code(), StatusCode::kUnimplemented) << spec.status().ToString();
    EXPECT_THAT(spec.status().ToString(), HasSubstr(refusal.expected));
  }
}

TEST(SpecFromGguf, NamesWhatMakesNoSense) {
  const Refusal refusals[] = {
      {Without("general.architecture"),
       "NOT_FOUND: dir/m.gguf: metadata 'general.architecture' is missing"},
      {Without("llama.embedding_length"),
       "NOT_FOUND: dir/m.gguf: metadata 'llama.embedding_length' is missing"},
      {Without("llama.attention.layer_norm_rms_epsilon"),
       "metadata 'llama.attention.layer_norm_rms_epsilon' is missing"},
      {Text("llama.block_count", "two"),
       "metadata 'llama.block_count' must be an integer; it is string"},
      {Int("llama.block_count", 0),
       "metadata 'llama.block_count' is 0, but the file has 20 tensors"},
      {Int("llama.block_count", 2000000000),
       "metadata 'llama.block_count' is 2000000000, but the file has 20 tensors"},
      {Int("llama.block_count", 3),
       "NOT_FOUND: dir/m.gguf: tensor 'blk.2.attn_norm.weight' is missing"},
      {Int("llama.embedding_length", 4000000000u),
       "metadata 'llama.embedding_length' is 4000000000, out of range"},
      {Int("llama.attention.head_count", 5),
       "5 heads do not divide an embedding of 64, and 'llama.attention.key_length' is missing"},
      {Int("llama.attention.head_count", 0), "0 heads do not divide"},
      {Int("llama.attention.head_count_kv", 3), "4 heads do not divide into 3 KV heads"},
      {Int("llama.rope.dimension_count", 17), "rope dimension count 17"},
      {Float("llama.rope.freq_base", -1), "rope frequency base -1"},
      {Float("llama.attention.layer_norm_rms_epsilon", 0), "layer norm epsilon 0"},
      {Int("llama.context_length", 0), "context length is 0"},
      {Without("token_embd.weight"),
       "NOT_FOUND: dir/m.gguf: tensor 'token_embd.weight' is missing"},
      {Without("blk.1.ffn_up.weight"), "tensor 'blk.1.ffn_up.weight' is missing"},
      {Int("llama.vocab_size", 41),
       "tensor 'token_embd.weight' must have the shape [64, 41]; it has [64, 40]"},
      {Int("llama.feed_forward_length", 256),
       "tensor 'blk.0.ffn_gate.weight' must have the shape [64, 256]; it has [64, 128]"},
      {Tensor("output_norm.weight", {32}, 0, 128),
       "tensor 'output_norm.weight' must have the shape [64]; it has [32]"},
      {Tensor("rope_freqs.weight", {16}, 0, 64),
       "tensor 'rope_freqs.weight' must have the shape [8]; it has [16]"},
      {Tensor("blk.0.attn_k.weight", {64, 32, 2}, 0, 16384),
       "tensor 'blk.0.attn_k.weight' must have the shape [64, 32]; it has [64, 32, 2]"},
  };
  for (const Refusal& refusal : refusals) {
    GgufTestWriter w = TestModelWriter();
    refusal.change(w);
    const auto spec = SpecOf(w);
    ASSERT_FALSE(spec.ok()) << refusal.expected;
    EXPECT_THAT(spec.status().ToString(), HasSubstr(refusal.expected));
  }
  GgufTestWriter wide = TestModelWriter();
  wide.AddInt("llama.attention.key_length", 512);
  wide.AddInt("llama.attention.value_length", 512);
  EXPECT_THAT(SpecOf(wide).status().ToString(),
              HasSubstr("UNIMPLEMENTED: dir/m.gguf: heads of 512 dimensions are not supported"));
  GgufTestWriter tokens = TestModelWriter();
  tokens.AddArray("tokenizer.ggml.tokens", GgufValueType::kU8, 41, std::string(41, 'x'));
  EXPECT_THAT(SpecOf(tokens).status().message(), HasSubstr("has 41 tokens, the model 40 rows"));
}

}  // namespace
}  // namespace tandem
