#include "model/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Llama 3.2 1B as transformers 4 wrote it, without what Tandem does not read.
json OldLlama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})");
}

// Qwen3 0.6B as transformers 5 writes it.
json NewQwen3() {
  return json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false,
    "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "intermediate_size": 3072, "layer_types": ["full_attention"],
    "max_position_embeddings": 40960, "max_window_layers": 28, "num_attention_heads": 16,
    "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "sliding_window": null,
    "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})");
}

Result<ModelSpec> SpecOf(const json& config) { return SpecFromHfConfig(config.dump(), "m"); }

TEST(HfConfig, ReadsTheOldSpelling) {
  const auto spec = SpecOf(OldLlama());
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->name, "m");
  EXPECT_EQ(spec->num_layers, 16);
  EXPECT_EQ(spec->hidden_dim, 2048);
  EXPECT_EQ(spec->num_heads, 32);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->head_dim, 64);
  EXPECT_EQ(spec->ffn_dim, 8192);
  EXPECT_EQ(spec->vocab_size, 128256);
  EXPECT_EQ(spec->tokenizer_size, 128256);
  EXPECT_EQ(spec->context_length, 131072);
  EXPECT_EQ(spec->rms_epsilon, 1e-5);
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_FALSE(spec->qkv_bias);
  EXPECT_FALSE(spec->qk_norm);
  EXPECT_EQ(spec->rope.style, RopeStyle::kHalfSplit) << "these weights are not permuted";
  EXPECT_EQ(spec->rope.theta, 500000.0);
  EXPECT_EQ(spec->rope.dims, 64);
}

TEST(HfConfig, ReadsTheNewSpelling) {
  const auto spec = SpecOf(NewQwen3());
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->architecture, "qwen3");
  EXPECT_TRUE(spec->qk_norm);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_THAT(spec->rope.divisors, IsEmpty());
  json by_layer_type = NewQwen3();
  by_layer_type["rope_parameters"] = {{"full_attention", {{"rope_theta", 2e6}}}};
  EXPECT_EQ(SpecOf(by_layer_type)->rope.theta, 2e6);
}

TEST(HfConfig, Llama3ScalingIsTheSameInAllSpellings) {
  const auto old_spec = SpecOf(OldLlama());
  ASSERT_TRUE(old_spec.ok());
  const std::vector<float>& divisors = old_spec->rope.divisors;
  ASSERT_EQ(divisors.size(), 32u);
  EXPECT_EQ(divisors.front(), 1.0f);  // turns 1304 times within 8192 tokens
  EXPECT_EQ(divisors.back(), 32.0f);  // turns less than once
  EXPECT_TRUE(std::is_sorted(divisors.begin(), divisors.end()));
  EXPECT_EQ(std::count(divisors.begin(), divisors.end(), 1.0f), 15);
  EXPECT_EQ(std::count(divisors.begin(), divisors.end(), 32.0f), 14);

  json renamed = OldLlama();
  renamed["rope_scaling"]["type"] = "llama3";
  renamed["rope_scaling"].erase("rope_type");
  EXPECT_EQ(SpecOf(renamed)->rope.divisors, divisors);
  json modern = OldLlama();
  modern["rope_parameters"] = modern["rope_scaling"];
  modern["rope_parameters"]["rope_theta"] = modern["rope_theta"];
  modern.erase("rope_scaling");
  modern.erase("rope_theta");
  EXPECT_EQ(SpecOf(modern)->rope.divisors, divisors);
  EXPECT_EQ(SpecOf(modern)->rope.theta, 5e5);
}

TEST(HfConfig, AbsentAndNullFieldsHaveTheirFamilysDefaults) {
  json config = OldLlama();
  for (const char* key :
       {"head_dim", "num_key_value_heads", "rope_theta", "rope_scaling", "rms_norm_eps",
        "tie_word_embeddings", "architectures", "hidden_act", "torch_dtype", "eos_token_id"}) {
    config[key] = nullptr;
  }
  const auto spec = SpecOf(config);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->head_dim, 64);
  EXPECT_EQ(spec->num_kv_heads, 32);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->rms_epsilon, 1e-6);
  EXPECT_FALSE(spec->tied_embeddings);
  json qwen3 = NewQwen3();
  qwen3.erase("head_dim");
  EXPECT_EQ(SpecOf(qwen3)->head_dim, 128);
  json qwen2 = NewQwen3();
  qwen2["model_type"] = "qwen2";
  qwen2["architectures"] = {"Qwen2ForCausalLM"};
  qwen2.erase("head_dim");
  EXPECT_EQ(SpecOf(qwen2)->head_dim, 64);
  EXPECT_TRUE(SpecOf(qwen2)->qkv_bias);
  EXPECT_FALSE(SpecOf(qwen2)->qk_norm);
}

// One field set to something else.
struct Change {
  const char* key;
  const char* value;  // JSON
  const char* expected;
};

void ExpectRefused(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    json config = OldLlama();
    config[change.key] = json::parse(change.value);
    const auto spec = SpecOf(config);
    ASSERT_FALSE(spec.ok()) << change.expected;
    EXPECT_THAT(spec.status().ToString(), HasSubstr(change.expected));
  }
}

TEST(HfConfig, NamesWhatTandemDoesNotRun) {
  ExpectRefused({
      {"quantization_config", R"({"quant_method": "awq", "bits": 4})",
       "UNIMPLEMENTED: config.json: the weights are quantised by 'awq', which is not supported"},
      {"quantization_config", R"({"quant_method": "gptq"})", "quantised by 'gptq'"},
      {"quantization_config", R"({"quant_method": "fp8"})", "quantised by 'fp8'"},
      {"quantization_config", R"({"quant_method": "compressed-tensors"})", "'compressed-tensors'"},
      {"quantization_config", R"({"load_in_4bit": true})", "quantised by 'bitsandbytes'"},
      {"quantization_config", R"({"quant_method": "mxfp4"})", "quantised by 'mxfp4'"},
      {"quantization_config", R"({"quant_method": "new\u001b[2J"})", "quantised by 'new\\x1b[2J'"},
      {"quantization_config", R"({})", "quantised by 'unknown'"},
      {"quantization_config", R"("awq")", "'quantization_config' must be an object"},
      {"compression_config", R"({"format": "x"})", "quantised by 'compressed-tensors'"},
      {"model_type", R"("mamba")",
       "UNIMPLEMENTED: config.json: architecture 'mamba' is not supported: Tandem runs llama, "
       "qwen2, qwen3"},
      {"model_type", R"("gemma3_text")", "Gemma 3 is not supported yet"},
      {"model_type", R"("gemma3")", "Gemma 3 is not supported yet"},
      {"model_type", R"("qwen3_moe")", "architecture 'qwen3_moe'"},
      {"architectures", R"(["LlamaForSequenceClassification"])",
       "model class 'LlamaForSequenceClassification' is not supported"},
      {"rope_scaling", R"({"rope_type": "yarn", "factor": 4})", "rope scaling 'yarn'"},
      {"rope_scaling", R"({"type": "linear", "factor": 4})", "rope scaling 'linear'"},
      {"rope_scaling", R"({"type": "dynamic", "factor": 4})", "rope scaling 'dynamic'"},
      {"rope_parameters", R"({"rope_type": "longrope"})", "rope scaling 'longrope'"},
      {"rope_parameters", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor' = 0.5"},
      {"partial_rotary_factor", "0.25", "'partial_rotary_factor' = 0.25 is not supported"},
      {"attention_bias", "true", "'attention_bias' = true is not supported"},
      {"mlp_bias", "true", "'mlp_bias' = true is not supported"},
      {"use_sliding_window", "true", "'use_sliding_window' = true"},
      {"head_dim", "512", "heads of 512 dimensions are not supported: at most 256"},
      {"hidden_act", R"("gelu")", "activation 'gelu' is not supported"},
      {"layer_types", R"(["full_attention", "sliding_attention"])", "type 'sliding_attention'"},
      {"torch_dtype", R"("float8_e4m3fn")", "'torch_dtype' is 'float8_e4m3fn'"},
      {"dtype", R"("int8")", "'dtype' is 'int8'"},
  });
}

TEST(HfConfig, NamesWhatMakesNoSense) {
  ExpectRefused({
      {"model_type", "null", "NOT_FOUND: config.json: 'model_type' is missing"},
      {"model_type", "3", "INVALID_ARGUMENT: config.json: 'model_type' must be a string; it is"},
      {"hidden_size", "null", "NOT_FOUND: config.json: 'hidden_size' is missing"},
      {"hidden_size", R"("2048")", "'hidden_size' must be an integer; it is string \"2048\""},
      {"hidden_size", "2048.0", "'hidden_size' must be an integer"},
      {"hidden_size", "-1", "'hidden_size' is -1, out of range"},
      {"hidden_size", "18446744073709551615", "'hidden_size' is 18446744073709551615, out of"},
      {"hidden_size", "0", "embedding length is 0"},
      {"num_hidden_layers", "0", "layer count is 0"},
      {"num_hidden_layers", "1000000", "layer count is 1000000"},
      {"num_key_value_heads", "5", "32 heads do not divide into 5 KV heads"},
      {"num_attention_heads", "0", "head count is 0"},
      {"head_dim", "63", "rope dimension count 63"},
      {"head_dim", "[64]", "'head_dim' must be an integer; it is array"},
      {"vocab_size", "0", "vocabulary size is 0"},
      {"max_position_embeddings", "null", "'max_position_embeddings' is missing"},
      {"rms_norm_eps", "0", "layer norm epsilon 0"},
      {"rms_norm_eps", "true", "'rms_norm_eps' must be a number; it is boolean true"},
      {"tie_word_embeddings", "1", "'tie_word_embeddings' must be true or false"},
      {"architectures", R"("LlamaForCausalLM")", "'architectures' must be a list"},
      {"architectures", "[1]", "'architectures' must be a list of strings"},
      {"layer_types", "{}", "'layer_types' must be a list"},
      {"rope_theta", "-1", "'rope_theta' is -1, must be positive"},
      {"rope_theta", "1e300", "must be positive"},
      {"rope_scaling", "8", "'rope_scaling' must be an object"},
      {"rope_scaling", R"({"rope_type": 3})", "'rope_scaling.rope_type' must be a string"},
      {"rope_scaling", R"({"rope_type": "llama3"})", "'rope_scaling.factor' is missing"},
      {"rope_scaling",
       R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
           "original_max_position_embeddings": 8192})",
       "which make no sense together"},
      {"rope_parameters", R"({"full_attention": 1})", "'rope_parameters' must be an object of"},
  });
}

TEST(HfConfig, DamagedTextIsRefused) {
  const auto message = [](std::string_view text) {
    return SpecFromHfConfig(text, "m").status().ToString();
  };
  EXPECT_THAT(message(""), HasSubstr("DATA_LOSS: config.json: not valid JSON near byte"));
  EXPECT_THAT(message("[]"), HasSubstr("config.json: a list, not a JSON object"));
  EXPECT_THAT(message("7"), HasSubstr("config.json: an integer, not a JSON object"));
  EXPECT_THAT(message("{\"a\": NaN}"), HasSubstr("not valid JSON near byte 7"));
  EXPECT_THAT(message("{\"a\": 1e999}"), HasSubstr("is too large"));
  EXPECT_THAT(message("{\"a\": 1, \"a\": 2}"), HasSubstr("the key 'a' occurs twice"));
  EXPECT_THAT(message("{\"a\": \"\xC3\"}"), HasSubstr("not valid JSON near byte"));
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  EXPECT_THAT(message(deep), HasSubstr("OUT_OF_RANGE: config.json: the JSON is nested deeper"));
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 200'000; ++i) many += ",0";
  EXPECT_THAT(message(many + "]}"), HasSubstr("the JSON has more than 100000 values"));
  const std::string good = OldLlama().dump();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(SpecFromHfConfig(std::string_view(good).substr(0, size), "m").ok()) << size;
  }
}

TEST(HfConfig, TensorNamesAreLlamas) {
  EXPECT_EQ(HfTensorName("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(HfTensorName("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(HfTensorName("output.weight"), "lm_head.weight");
  EXPECT_EQ(HfTensorName("blk.0.attn_norm.weight"), "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(HfTensorName("blk.17.attn_q.weight"), "model.layers.17.self_attn.q_proj.weight");
  EXPECT_EQ(HfTensorName("blk.17.attn_k.bias"), "model.layers.17.self_attn.k_proj.bias");
  EXPECT_EQ(HfTensorName("blk.1.attn_q_norm.weight"), "model.layers.1.self_attn.q_norm.weight");
  EXPECT_EQ(HfTensorName("blk.1.attn_output.weight"), "model.layers.1.self_attn.o_proj.weight");
  EXPECT_EQ(HfTensorName("blk.1.ffn_norm.weight"),
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(HfTensorName("blk.1.ffn_down.weight"), "model.layers.1.mlp.down_proj.weight");
}

TEST(GenerationDefaults, OneEndTokenOrAList) {
  const auto eos = [](std::string_view generation, std::string_view config) {
    const auto defaults = ReadGenerationDefaults(generation, config);
    EXPECT_TRUE(defaults.ok()) << defaults.status().ToString();
    return defaults->eos;
  };
  EXPECT_THAT(eos(R"({"eos_token_id": 7})", R"({"eos_token_id": 8})"), ElementsAre(7));
  EXPECT_THAT(eos(R"({"eos_token_id": [7, 9]})", "{}"), ElementsAre(7, 9));
  EXPECT_THAT(eos("", R"({"eos_token_id": [8, 10]})"), ElementsAre(8, 10));
  EXPECT_THAT(eos("{}", R"({"eos_token_id": 8})"), ElementsAre(8));
  EXPECT_THAT(eos(R"({"eos_token_id": null})", "{}"), IsEmpty());
}

TEST(GenerationDefaults, SamplingOfQwen3) {
  const auto defaults = ReadGenerationDefaults(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
          "pad_token_id": 151643, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
          "transformers_version": "4.51.0"})",
      "{}");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->top_k, 20);
  const auto none = ReadGenerationDefaults("", "{}");
  EXPECT_EQ(none->temperature, std::nullopt);
  EXPECT_EQ(none->top_p, std::nullopt);
  EXPECT_EQ(none->top_k, std::nullopt);
}

TEST(GenerationDefaults, NamesWhatMakesNoSense) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{", "DATA_LOSS: generation_config.json: not valid JSON"},
      {"[]", "generation_config.json: a list, not a JSON object"},
      {R"({"eos_token_id": "2"})", "generation_config.json: 'eos_token_id' must be an integer"},
      {R"({"eos_token_id": [2, -1]})", "'eos_token_id' is -1, out of range"},
      {R"({"eos_token_id": [[2]]})", "'eos_token_id' must be an integer; it is array"},
      {R"({"temperature": "hot"})", "'temperature' must be a number"},
      {R"({"temperature": -0.1})", "'temperature' is -0.1, must be 0..100"},
      {R"({"top_p": 1.5})", "'top_p' is 1.5, must be 0..1"},
      {R"({"top_p": 0})", "'top_p' is 0, which would leave no token"},
      {R"({"top_k": 0.5})", "'top_k' must be an integer"},
      {R"({"top_k": -3})", "'top_k' is -3, out of range"},
  };
  for (const auto& [text, expected] : kCases) {
    EXPECT_THAT(ReadGenerationDefaults(text, "{}").status().ToString(), HasSubstr(expected));
  }
  std::string many = "{\"eos_token_id\": [0";
  for (int i = 0; i < 256; ++i) many += ",1";
  EXPECT_THAT(ReadGenerationDefaults(many + "]}", "{}").status().message(),
              HasSubstr("lists 257 tokens; at most 256 are allowed"));
  EXPECT_THAT(ReadGenerationDefaults("", R"({"eos_token_id": true})").status().message(),
              HasSubstr("config.json: 'eos_token_id' must be an integer; it is boolean true"));
}

}  // namespace
}  // namespace tandem
