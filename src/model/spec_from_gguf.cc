#include "model/spec_from_gguf.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/ops.h"
#include "model/family.h"
#include "model/tensor_layout.h"
#include "model/text_escape.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

constexpr size_t kNameBytes = 100;  // of a name in a message
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
constexpr int64_t kUnusedToken = 5;  // in tokenizer.ggml.token_type

class SpecReader {
 public:
  explicit SpecReader(const GgufFile& file) : file_(file) {}
  Result<ModelSpec> Run();

 private:
  std::string Key(std::string_view suffix) const {
    return fmt::format("{}.{}", spec_.architecture, suffix);
  }
  Status ReadArchitecture();
  Status RefuseOtherMaths() const;
  Status RefuseRopeScaling() const;
  Status ReadDims();
  Status ReadHeadDim();
  Status ReadRope();
  Status ReadRopeDivisors();
  Status ReadVocabularySizes();
  Status ReadInt(const std::string& key, std::optional<int32_t> fallback, int32_t* out) const;
  // A count that may be given per layer, where all layers must agree.
  Status ReadUniform(const std::string& key, std::optional<int32_t> fallback, int32_t* out) const;
  Status CheckTensors() const;
  Status CheckTensor(const TensorSpec& expected) const;

  const GgufFile& file_;
  const Family* family_ = nullptr;  // from ReadArchitecture on
  ModelSpec spec_;
};

Status FitsInt32(const std::string& key, int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) return OkStatus();
  return InvalidArgumentError("metadata '{}' is {}, out of range", key, value);
}

Status SpecReader::ReadInt(const std::string& key, std::optional<int32_t> fallback,
                           int32_t* out) const {
  if (fallback && file_.FindEntry(key) == nullptr) {
    *out = *fallback;
    return OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t value, file_.GetInt(key));
  TANDEM_RETURN_IF_ERROR(FitsInt32(key, value));
  *out = static_cast<int32_t>(value);
  return OkStatus();
}

Status SpecReader::ReadUniform(const std::string& key, std::optional<int32_t> fallback,
                               int32_t* out) const {
  if (fallback && file_.FindEntry(key) == nullptr) {
    *out = *fallback;
    return OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                          file_.GetIntPerLayer(key, spec_.num_layers));
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end()) {
    return UnimplementedError("metadata '{}' differs between layers, which is not supported", key);
  }
  TANDEM_RETURN_IF_ERROR(FitsInt32(key, values.at(0)));
  *out = static_cast<int32_t>(values[0]);
  return OkStatus();
}

Status SpecReader::ReadArchitecture() {
  TANDEM_ASSIGN_OR_RETURN(const std::string_view type, file_.GetStringOr("general.type", "model"));
  if (type != "model") {
    return UnimplementedError("the file holds a '{}', not a model", EscapeText(type, kNameBytes));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string_view name, file_.GetString("general.architecture"));
  family_ = FindFamily(name);
  if (family_ == nullptr) {
    return UnimplementedError("architecture '{}' is not supported: Tandem runs {}",
                              EscapeText(name, kNameBytes), FamilyNames());
  }
  spec_.architecture = name;
  spec_.qkv_bias = family_->qkv_bias;
  spec_.qk_norm = family_->qk_norm;
  const size_t slash = file_.path().rfind('/');
  const std::string base =
      slash == std::string::npos ? file_.path() : file_.path().substr(slash + 1);
  TANDEM_ASSIGN_OR_RETURN(const std::string_view title, file_.GetStringOr("general.name", base));
  spec_.name = EscapeText(title, kNameBytes);
  return OkStatus();
}

// Keys that other models of this architecture use to change the computation. Each has a value that
// means "as usual"; anything else is refused rather than computed wrongly.
Status SpecReader::RefuseOtherMaths() const {
  struct Neutral {
    std::string_view suffix;
    double values[2];
  };
  constexpr Neutral kNeutral[] = {
      {"expert_count", {0, 0}},
      {"attention.sliding_window", {0, 0}},
      {"attention.scale", {0, 0}},
      {"attention.clamp_kqv", {0, 0}},
      {"attn_logit_softcapping", {0, 0}},
      {"final_logit_softcapping", {0, 0}},
      {"logit_scale", {0, 1}},
      {"embedding_scale", {0, 1}},
      {"residual_scale", {0, 1}},
  };
  for (const Neutral& n : kNeutral) {
    const std::string key = Key(n.suffix);
    TANDEM_ASSIGN_OR_RETURN(const double value, file_.GetFloatOr(key, n.values[0]));
    if (value != n.values[0] && value != n.values[1]) {
      return UnimplementedError("metadata '{}' = {} is not supported", key, value);
    }
  }
  return RefuseRopeScaling();
}

Status SpecReader::RefuseRopeScaling() const {
  const std::string type_key = Key("rope.scaling.type");
  TANDEM_ASSIGN_OR_RETURN(const std::string_view type, file_.GetStringOr(type_key, "none"));
  if (type != "none") {
    return UnimplementedError("rope scaling '{}' is not supported (metadata '{}')",
                              EscapeText(type, kNameBytes), type_key);
  }
  // Without a type these two mean linear scaling, the older one's spelling.
  for (const std::string_view suffix : {"rope.scaling.factor", "rope.scale_linear"}) {
    const std::string key = Key(suffix);
    TANDEM_ASSIGN_OR_RETURN(const double factor, file_.GetFloatOr(key, 1.0));
    if (factor != 1.0 && factor != 0.0 && file_.FindEntry(type_key) == nullptr) {
      return UnimplementedError("linear rope scaling is not supported (metadata '{}' = {})", key,
                                factor);
    }
  }
  return OkStatus();
}

Status SpecReader::ReadDims() {
  TANDEM_RETURN_IF_ERROR(ReadInt(Key("block_count"), std::nullopt, &spec_.num_layers));
  // A layer has tensors: this bounds what a hostile count makes us allocate.
  if (spec_.num_layers < 1 || static_cast<size_t>(spec_.num_layers) > file_.tensors().size()) {
    return InvalidArgumentError("metadata '{}' is {}, but the file has {} tensors",
                                Key("block_count"), spec_.num_layers, file_.tensors().size());
  }
  TANDEM_RETURN_IF_ERROR(ReadInt(Key("context_length"), std::nullopt, &spec_.context_length));
  TANDEM_RETURN_IF_ERROR(ReadInt(Key("embedding_length"), std::nullopt, &spec_.hidden_dim));
  TANDEM_RETURN_IF_ERROR(ReadUniform(Key("feed_forward_length"), std::nullopt, &spec_.ffn_dim));
  TANDEM_RETURN_IF_ERROR(ReadUniform(Key("attention.head_count"), std::nullopt, &spec_.num_heads));
  return ReadUniform(Key("attention.head_count_kv"), spec_.num_heads, &spec_.num_kv_heads);
}

Status SpecReader::ReadHeadDim() {
  std::optional<int32_t> usual;
  if (spec_.num_heads > 0 && spec_.hidden_dim % spec_.num_heads == 0) {
    usual = spec_.hidden_dim / spec_.num_heads;
  }
  if (!usual && file_.FindEntry(Key("attention.key_length")) == nullptr) {
    return InvalidArgumentError("{} heads do not divide an embedding of {}, and '{}' is missing",
                                spec_.num_heads, spec_.hidden_dim, Key("attention.key_length"));
  }
  int32_t value_dim = 0;
  TANDEM_RETURN_IF_ERROR(ReadInt(Key("attention.key_length"), usual, &spec_.head_dim));
  const std::optional<int32_t> value_default = usual ? usual : spec_.head_dim;
  TANDEM_RETURN_IF_ERROR(ReadInt(Key("attention.value_length"), value_default, &value_dim));
  if (value_dim != spec_.head_dim) {
    return UnimplementedError("keys of {} and values of {} dimensions are not supported",
                              spec_.head_dim, value_dim);
  }
  if (spec_.head_dim > kMaxHeadDim) {
    return UnimplementedError("heads of {} dimensions are not supported: at most {}",
                              spec_.head_dim, kMaxHeadDim);
  }
  return OkStatus();
}

Status SpecReader::ReadRope() {
  spec_.rope.style = family_->gguf_rope_style;
  TANDEM_ASSIGN_OR_RETURN(spec_.rope.theta, file_.GetFloatOr(Key("rope.freq_base"), 10000.0));
  TANDEM_RETURN_IF_ERROR(ReadInt(Key("rope.dimension_count"), spec_.head_dim, &spec_.rope.dims));
  return family_->rope_divisors ? ReadRopeDivisors() : OkStatus();
}

// The one tensor that is part of the spec: Hugging Face folders give the same by numbers.
Status SpecReader::ReadRopeDivisors() {
  const GgufTensor* tensor = file_.FindTensor(kRopeDivisors);
  if (tensor == nullptr) return OkStatus();
  const int64_t pairs = spec_.rope.dims / 2;
  TANDEM_RETURN_IF_ERROR(CheckTensor(
      {std::string(kRopeDivisors), TensorKind::kVector, 1, pairs, TensorSplit::kWhole}));
  std::vector<std::byte> bytes(static_cast<size_t>(tensor->bytes));
  TANDEM_RETURN_IF_ERROR(file_.ReadTensor(*tensor, 0, bytes));
  spec_.rope.divisors.resize(static_cast<size_t>(pairs));
  DequantizeRow(*tensor->type->dtype, bytes.data(), pairs, spec_.rope.divisors.data());
  return OkStatus();
}

Status SpecReader::ReadVocabularySizes() {
  const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
  if (embedding == nullptr) return NotFoundError("tensor 'token_embd.weight' is missing");
  TANDEM_RETURN_IF_ERROR(FitsInt32("rows of token_embd.weight", embedding->dims[1]));
  TANDEM_RETURN_IF_ERROR(
      ReadInt(Key("vocab_size"), static_cast<int32_t>(embedding->dims[1]), &spec_.vocab_size));
  spec_.tokenizer_size = spec_.vocab_size;
  const GgufEntry* tokens = file_.FindEntry("tokenizer.ggml.tokens");
  if (tokens == nullptr) return OkStatus();
  if (tokens->count > static_cast<uint64_t>(spec_.vocab_size)) {
    return InvalidArgumentError("the tokenizer has {} tokens, the model {} rows for them",
                                tokens->count, spec_.vocab_size);
  }
  spec_.tokenizer_size = static_cast<int32_t>(tokens->count);
  // Converters fill the list up to the model's rows with tokens that are marked as unused.
  if (file_.FindEntry("tokenizer.ggml.token_type") == nullptr) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(std::vector<int64_t> types, file_.GetInts("tokenizer.ggml.token_type"));
  if (types.size() != tokens->count) return OkStatus();  // the tokenizer will say so
  while (!types.empty() && types.back() == kUnusedToken) types.pop_back();
  spec_.tokenizer_size = static_cast<int32_t>(types.size());
  return OkStatus();
}

Status SpecReader::CheckTensor(const TensorSpec& expected) const {
  const GgufTensor* tensor = file_.FindTensor(expected.name);
  if (tensor == nullptr) return NotFoundError("tensor '{}' is missing", expected.name);
  if (tensor->type == nullptr) {
    return UnimplementedError("tensor '{}' has type {}, which Tandem does not know", expected.name,
                              tensor->type_id);
  }
  if (!tensor->type->dtype) {
    return UnimplementedError("tensor '{}' is {}, which is not supported: Tandem runs {}",
                              expected.name, tensor->type->name, SupportedGgmlTypes());
  }
  const bool same = tensor->dims[0] == expected.cols && tensor->dims[1] == expected.rows &&
                    tensor->dims[2] == 1 && tensor->dims[3] == 1;
  if (same) return OkStatus();
  const std::string shape = expected.kind == TensorKind::kVector
                                ? fmt::format("[{}]", expected.cols)
                                : fmt::format("[{}, {}]", expected.cols, expected.rows);
  return InvalidArgumentError("tensor '{}' must have the shape {}; it has {}", expected.name, shape,
                              tensor->ShapeText());
}

Status SpecReader::CheckTensors() const {
  std::vector<TensorSpec> expected = TensorsOf(spec_);
  for (const TensorSpec& tensor : expected) TANDEM_RETURN_IF_ERROR(CheckTensor(tensor));
  std::sort(expected.begin(), expected.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.name == kRopeDivisors && family_->rope_divisors) continue;  // in the spec
    const auto it =
        std::lower_bound(expected.begin(), expected.end(), tensor.name,
                         [](const TensorSpec& t, std::string_view name) { return t.name < name; });
    if (it == expected.end() || it->name != tensor.name) {
      return UnimplementedError("tensor '{}' has no place in a {} model as Tandem computes it",
                                EscapeText(tensor.name, kNameBytes), spec_.architecture);
    }
  }
  return OkStatus();
}

Result<ModelSpec> SpecReader::Run() {
  TANDEM_RETURN_IF_ERROR(ReadArchitecture());
  TANDEM_RETURN_IF_ERROR(RefuseOtherMaths());
  TANDEM_RETURN_IF_ERROR(ReadDims());
  TANDEM_RETURN_IF_ERROR(ReadHeadDim());
  TANDEM_ASSIGN_OR_RETURN(spec_.rms_epsilon,
                          file_.GetFloat(Key("attention.layer_norm_rms_epsilon")));
  TANDEM_RETURN_IF_ERROR(ReadRope());
  spec_.tied_embeddings = file_.FindTensor("output.weight") == nullptr;
  TANDEM_RETURN_IF_ERROR(ReadVocabularySizes());
  TANDEM_RETURN_IF_ERROR(spec_.Validate());
  TANDEM_RETURN_IF_ERROR(CheckTensors());
  return spec_;
}

}  // namespace

Result<ModelSpec> SpecFromGguf(const GgufFile& file) {
  Result<ModelSpec> spec = SpecReader(file).Run();
  if (!spec.ok()) return spec.status().WithContext(file.path());
  return spec;
}

}  // namespace tandem
