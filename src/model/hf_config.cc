#include "model/hf_config.h"

#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "model/bounded_json.h"
#include "model/family.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

using nlohmann::json;

// Real configurations have some hundred values, four levels deep.
constexpr JsonLimits kConfigLimits = {.max_depth = 32, .max_values = 100'000};
constexpr size_t kNameBytes = 100;     // of a name in a message
constexpr size_t kMaxEndTokens = 256;  // real models have up to about ten
constexpr double kMaxTemperature = 100;

// How Hugging Face names the families of model/family.h.
struct HfFamily {
  std::string_view model_type;   // also Tandem's name of the architecture
  std::string_view model_class;  // in "architectures"
  int32_t head_dim = 0;          // when the configuration does not say; 0: hidden / heads
};
constexpr HfFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM", 128},
};

// Typed reads of one JSON object, whose place in the file begins the keys in messages. A null is an
// absent field, as transformers reads it.
class Fields {
 public:
  Fields(const json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

  // Null when absent.
  const json* Find(std::string_view key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  std::string Label(std::string_view key) const { return fmt::format("'{}{}'", prefix_, key); }

  Result<int32_t> Int(std::string_view key, std::optional<int32_t> fallback) const {
    const json* value = Find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) return NotFoundError("{} is missing", Label(key));
    return IntOf(*value, key);
  }
  Result<int32_t> IntOf(const json& value, std::string_view key) const {
    if (!value.is_number_integer()) return WrongType(value, key, "an integer");
    const auto number = value.is_number_unsigned() ? static_cast<double>(value.get<uint64_t>())
                                                   : static_cast<double>(value.get<int64_t>());
    if (number < 0 || number > std::numeric_limits<int32_t>::max()) {
      return InvalidArgumentError("{} is {}, out of range", Label(key), value.dump());
    }
    return static_cast<int32_t>(number);
  }
  Result<double> Number(std::string_view key, std::optional<double> fallback) const {
    const json* value = Find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) return NotFoundError("{} is missing", Label(key));
    if (!value->is_number()) return WrongType(*value, key, "a number");
    return value->get<double>();  // finite: JSON has no other
  }
  Result<bool> Bool(std::string_view key, bool fallback) const {
    const json* value = Find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) return WrongType(*value, key, "true or false");
    return value->get<bool>();
  }
  // Escaped and shortened: for comparing with known words and for messages.
  Result<std::string> Word(std::string_view key, std::string_view fallback) const {
    const json* value = Find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) return WrongType(*value, key, "a string");
    return EscapeText(value->get_ref<const std::string&>(), kNameBytes);
  }
  Status WrongType(const json& value, std::string_view key, std::string_view expected) const {
    return InvalidArgumentError("{} must be {}; it is {} {}", Label(key), expected,
                                value.type_name(),
                                value.is_structured() ? "" : EscapeText(value.dump(), kNameBytes));
  }

 private:
  const json& object_;
  const std::string prefix_;
};

// "AWQ" and its like: the checkpoint's weights are not plain numbers.
Status RefuseQuantisation(const Fields& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    const json* value = config.Find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return config.WrongType(*value, key, "an object");
    const Fields fields(*value, fmt::format("{}.", key));
    TANDEM_ASSIGN_OR_RETURN(std::string method, fields.Word("quant_method", ""));
    if (method.empty() && key == "compression_config") method = "compressed-tensors";
    const bool bits_and_bytes =
        fields.Find("load_in_8bit") != nullptr || fields.Find("load_in_4bit") != nullptr;
    if (method.empty()) method = bits_and_bytes ? "bitsandbytes" : "unknown";
    return UnimplementedError(
        "the weights are quantised by '{}', which is not supported (config.json: {}): use F32, F16 "
        "or BF16 weights, or a GGUF file",
        method, config.Label(key));
  }
  return OkStatus();
}

Result<const HfFamily*> ReadFamily(const Fields& config) {
  TANDEM_ASSIGN_OR_RETURN(const std::string type, config.Word("model_type", ""));
  if (type.empty()) return NotFoundError("'model_type' is missing");
  if (type.starts_with("gemma3")) {
    return UnimplementedError("Gemma 3 is not supported yet ('model_type' is '{}')", type);
  }
  const HfFamily* family = nullptr;
  for (const HfFamily& f : kFamilies) {
    if (f.model_type == type) family = &f;
  }
  if (family == nullptr) {
    return UnimplementedError("architecture '{}' is not supported: Tandem runs {}", type,
                              FamilyNames());
  }
  const json* classes = config.Find("architectures");
  if (classes == nullptr) return family;
  if (!classes->is_array()) return config.WrongType(*classes, "architectures", "a list");
  for (const json& name : *classes) {
    if (!name.is_string()) return config.WrongType(name, "architectures", "a list of strings");
    if (name.get_ref<const std::string&>() == family->model_class) continue;
    return UnimplementedError("model class '{}' is not supported: Tandem runs {} of this family",
                              EscapeText(name.get_ref<const std::string&>(), kNameBytes),
                              family->model_class);
  }
  return family;
}

// Options that change the computation and are off in every model that Tandem runs.
Status RefuseOtherMaths(const Fields& config, const Family& family) {
  for (const std::string_view key :
       {"attention_bias", "mlp_bias", "use_sliding_window", "use_mrope"}) {
    if (key == "attention_bias" && family.qkv_bias) continue;  // not asked: it has them always
    TANDEM_ASSIGN_OR_RETURN(const bool on, config.Bool(key, false));
    if (on) return UnimplementedError("{} = true is not supported", config.Label(key));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string activation, config.Word("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return UnimplementedError("activation '{}' is not supported: Tandem computes silu", activation);
  }
  const json* layers = config.Find("layer_types");
  if (layers == nullptr) return OkStatus();
  if (!layers->is_array()) return config.WrongType(*layers, "layer_types", "a list");
  for (const json& type : *layers) {
    if (!type.is_string()) return config.WrongType(type, "layer_types", "a list of strings");
    if (type.get_ref<const std::string&>() == "full_attention") continue;
    return UnimplementedError("layers of type '{}' are not supported",
                              EscapeText(type.get_ref<const std::string&>(), kNameBytes));
  }
  return OkStatus();
}

// Llama 3.1's: frequencies whose wave fits the original context more than `high` times stay, those
// that fit less than `low` times are slowed down by `factor`, those between by something between.
Status ReadLlama3Scaling(const Fields& fields, RopeSpec* rope) {
  TANDEM_ASSIGN_OR_RETURN(const double factor, fields.Number("factor", std::nullopt));
  TANDEM_ASSIGN_OR_RETURN(const double low, fields.Number("low_freq_factor", std::nullopt));
  TANDEM_ASSIGN_OR_RETURN(const double high, fields.Number("high_freq_factor", std::nullopt));
  TANDEM_ASSIGN_OR_RETURN(const double context,
                          fields.Number("original_max_position_embeddings", std::nullopt));
  if (!(factor >= 1 && factor <= 1e6 && low > 0 && high > low && high <= 1e6 && context >= 1 &&
        context <= 1e9)) {
    return InvalidArgumentError(
        "rope scaling 'llama3' has factor {}, low_freq_factor {}, high_freq_factor {} and "
        "original_max_position_embeddings {}, which make no sense together",
        factor, low, high, context);
  }
  for (int32_t i = 0; i < rope->dims / 2; ++i) {
    const double frequency = std::pow(rope->theta, -2.0 * i / rope->dims);
    const double waves = context * frequency / (2 * 3.14159265358979323846);
    double divisor = 1;
    if (waves < low) {
      divisor = factor;
    } else if (waves <= high) {
      const double smooth = (waves - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    rope->divisors.push_back(static_cast<float>(divisor));
  }
  return OkStatus();
}

Status ReadRopeType(const Fields& fields, RopeSpec* rope) {
  TANDEM_ASSIGN_OR_RETURN(const std::string old_type, fields.Word("type", "default"));
  TANDEM_ASSIGN_OR_RETURN(const std::string type, fields.Word("rope_type", old_type));
  TANDEM_ASSIGN_OR_RETURN(const double partial, fields.Number("partial_rotary_factor", 1.0));
  if (partial != 1.0) {
    return UnimplementedError("{} = {} is not supported", fields.Label("partial_rotary_factor"),
                              partial);
  }
  if (type == "default") return OkStatus();
  if (type == "llama3") return ReadLlama3Scaling(fields, rope);
  return UnimplementedError("rope scaling '{}' is not supported", type);
}

// transformers 5: "rope_parameters", for all layers or by the type of layer; 4: "rope_theta" and
// "rope_scaling". Requires spec->head_dim in its range.
Status ReadRope(const Fields& config, ModelSpec* spec) {
  RopeSpec& rope = spec->rope;
  rope.style = RopeStyle::kHalfSplit;
  rope.dims = spec->head_dim;
  TANDEM_ASSIGN_OR_RETURN(rope.theta, config.Number("rope_theta", 10000.0));
  TANDEM_ASSIGN_OR_RETURN(const double partial, config.Number("partial_rotary_factor", 1.0));
  if (partial != 1.0) {
    return UnimplementedError("'partial_rotary_factor' = {} is not supported", partial);
  }
  const bool is_new = config.Find("rope_parameters") != nullptr;
  std::string key = is_new ? "rope_parameters" : "rope_scaling";
  const json* value = config.Find(key);
  if (value == nullptr) return OkStatus();
  if (!value->is_object()) return config.WrongType(*value, key, "an object");
  if (const auto full = value->find("full_attention"); full != value->end()) {
    if (!full->is_object()) return config.WrongType(*full, key, "an object of objects");
    value = &*full;
    key += ".full_attention";
  }
  const Fields fields(*value, key + ".");
  TANDEM_ASSIGN_OR_RETURN(rope.theta, fields.Number("rope_theta", rope.theta));
  if (!(rope.theta > 0) || rope.theta > 1e12) {  // before frequencies are computed from it
    return InvalidArgumentError("'rope_theta' is {}, must be positive", rope.theta);
  }
  return ReadRopeType(fields, &rope);
}

Status ReadSizes(const Fields& config, const HfFamily& family, ModelSpec* spec) {
  const auto read = [&](std::string_view key, std::optional<int32_t> fallback, int32_t* out) {
    const Result<int32_t> value = config.Int(key, fallback);
    if (value.ok()) *out = *value;
    return value.status();
  };
  TANDEM_RETURN_IF_ERROR(read("num_hidden_layers", std::nullopt, &spec->num_layers));
  TANDEM_RETURN_IF_ERROR(read("hidden_size", std::nullopt, &spec->hidden_dim));
  TANDEM_RETURN_IF_ERROR(read("intermediate_size", std::nullopt, &spec->ffn_dim));
  TANDEM_RETURN_IF_ERROR(read("vocab_size", std::nullopt, &spec->vocab_size));
  TANDEM_RETURN_IF_ERROR(read("max_position_embeddings", std::nullopt, &spec->context_length));
  TANDEM_RETURN_IF_ERROR(read("num_attention_heads", std::nullopt, &spec->num_heads));
  TANDEM_RETURN_IF_ERROR(read("num_key_value_heads", spec->num_heads, &spec->num_kv_heads));
  spec->tokenizer_size = spec->vocab_size;  // the tokenizer says if it is less
  std::optional<int32_t> usual;
  if (family.head_dim > 0) {
    usual = family.head_dim;
  } else if (spec->num_heads > 0 && spec->hidden_dim % spec->num_heads == 0) {
    usual = spec->hidden_dim / spec->num_heads;
  }
  TANDEM_RETURN_IF_ERROR(read("head_dim", usual, &spec->head_dim));
  if (spec->head_dim <= kMaxHeadDim) return OkStatus();
  return UnimplementedError("heads of {} dimensions are not supported: at most {}", spec->head_dim,
                            kMaxHeadDim);
}

Status ReadConfig(const Fields& config, ModelSpec* spec) {
  TANDEM_RETURN_IF_ERROR(RefuseQuantisation(config));
  TANDEM_ASSIGN_OR_RETURN(const HfFamily* hf_family, ReadFamily(config));
  const Family* family = FindFamily(hf_family->model_type);
  TANDEM_CHECK(family != nullptr);
  spec->architecture = family->architecture;
  spec->qkv_bias = family->qkv_bias;
  spec->qk_norm = family->qk_norm;
  TANDEM_RETURN_IF_ERROR(RefuseOtherMaths(config, *family));
  TANDEM_RETURN_IF_ERROR(ReadSizes(config, *hf_family, spec));
  TANDEM_ASSIGN_OR_RETURN(spec->rms_epsilon, config.Number("rms_norm_eps", 1e-6));
  TANDEM_ASSIGN_OR_RETURN(spec->tied_embeddings, config.Bool("tie_word_embeddings", false));
  spec->rope.dims = spec->head_dim;
  TANDEM_RETURN_IF_ERROR(spec->Validate());  // sizes first: the rope's table has one for each pair
  TANDEM_RETURN_IF_ERROR(ReadRope(config, spec));
  return spec->Validate();
}

// Whatever is said about the type of the weights: they say it themselves; an unknown one is a
// format that we do not know either.
Status CheckDtype(const Fields& config) {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    TANDEM_ASSIGN_OR_RETURN(const std::string type, config.Word(key, "float32"));
    if (type == "float32" || type == "float16" || type == "bfloat16") continue;
    return UnimplementedError("{} is '{}'; float32, float16 and bfloat16 are supported",
                              config.Label(key), type);
  }
  return OkStatus();
}

Status ReadEndTokens(const Fields& fields, std::vector<int32_t>* out) {
  constexpr std::string_view kKey = "eos_token_id";
  const json* value = fields.Find(kKey);
  if (value == nullptr) return OkStatus();
  if (!value->is_array()) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t id, fields.IntOf(*value, kKey));
    out->push_back(id);
    return OkStatus();
  }
  if (value->size() > kMaxEndTokens) {
    return OutOfRangeError("{} lists {} tokens; at most {} are allowed", fields.Label(kKey),
                           value->size(), kMaxEndTokens);
  }
  for (const json& item : *value) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t id, fields.IntOf(item, kKey));
    out->push_back(id);
  }
  return OkStatus();
}

Status ReadInRange(const Fields& fields, std::string_view key, double high,
                   std::optional<double>* out) {
  if (fields.Find(key) == nullptr) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const double value, fields.Number(key, std::nullopt));
  if (value < 0 || value > high) {
    return InvalidArgumentError("{} is {}, must be 0..{}", fields.Label(key), value, high);
  }
  *out = value;
  return OkStatus();
}

Status ReadGenerationConfig(const Fields& fields, GenerationDefaults* out) {
  TANDEM_RETURN_IF_ERROR(ReadEndTokens(fields, &out->eos));
  TANDEM_RETURN_IF_ERROR(ReadInRange(fields, "temperature", kMaxTemperature, &out->temperature));
  TANDEM_RETURN_IF_ERROR(ReadInRange(fields, "top_p", 1, &out->top_p));
  if (out->top_p == 0.0) return InvalidArgumentError("'top_p' is 0, which would leave no token");
  if (fields.Find("top_k") == nullptr) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(out->top_k, fields.Int("top_k", std::nullopt));
  return OkStatus();
}

}  // namespace

Result<ModelSpec> SpecFromHfConfig(std::string_view config, std::string_view name) {
  const Result<json> object = ParseJsonObject(config, kConfigLimits);
  if (!object.ok()) return object.status().WithContext("config.json");
  ModelSpec spec;
  spec.name = EscapeText(name, kNameBytes);
  const Fields fields(*object, "");
  Status status = ReadConfig(fields, &spec);
  if (status.ok()) status = CheckDtype(fields);
  if (!status.ok()) return status.WithContext("config.json");
  return spec;
}

std::string HfTensorName(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
      {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
      {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
  };
  if (name == "token_embd.weight") return "model.embed_tokens.weight";
  if (name == "output_norm.weight") return "model.norm.weight";
  if (name == "output.weight") return "lm_head.weight";
  TANDEM_CHECK(name.starts_with("blk."));
  const size_t layer_end = name.find('.', 4);
  const size_t part_end = name.rfind('.');
  TANDEM_CHECK(layer_end != std::string_view::npos && part_end > layer_end);
  const std::string_view part = name.substr(layer_end + 1, part_end - layer_end - 1);
  for (const auto& [ours, theirs] : kParts) {
    if (part != ours) continue;
    return fmt::format("model.layers.{}.{}{}", name.substr(4, layer_end - 4), theirs,
                       name.substr(part_end));
  }
  internal::CheckFailed(__FILE__, __LINE__, "a tensor of TensorsOf", std::string(name));
}

Result<GenerationDefaults> ReadGenerationDefaults(std::string_view generation_config,
                                                  std::string_view config) {
  GenerationDefaults out;
  if (!generation_config.empty()) {
    const Result<json> object = ParseJsonObject(generation_config, kConfigLimits);
    Status status = object.status();
    if (object.ok()) status = ReadGenerationConfig(Fields(*object, ""), &out);
    if (!status.ok()) return status.WithContext("generation_config.json");
  }
  if (!out.eos.empty()) return out;
  const Result<json> object = ParseJsonObject(config, kConfigLimits);
  Status status = object.status();
  if (object.ok()) status = ReadEndTokens(Fields(*object, ""), &out.eos);
  if (!status.ok()) return status.WithContext("config.json");
  return out;
}

}  // namespace tandem
