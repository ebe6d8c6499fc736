#include "model/synth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "model/family.h"
#include "model/hf_config.h"
#include "model/hf_folder.h"
#include "model/tensor_layout.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

struct NamedShape {
  std::string_view name;
  std::string_view config;  // in the words of config.json
};

constexpr NamedShape kShapes[] = {
    {"smollm2-135m", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9,
      "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
      "max_position_embeddings": 8192, "rope_theta": 100000.0, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": true})"},
    {"qwen3-0.6b", R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
      "num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true})"},
    {"llama-3.2-1b", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rope_theta": 500000.0, "rms_norm_eps": 1e-5,
      "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": true})"},
};

constexpr size_t kMaxShapeBytes = size_t{1} << 20;  // of a config.json; real ones have some KB
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
constexpr uint32_t kVersionOfBlocks = 2;  // of the layouts that block_quant.h writes
// Values made at a time: a multiple of every block.
constexpr int64_t kPieceElements = int64_t{1} << 18;
constexpr float kNormSpread = 0.1f;
constexpr float kBiasSpread = 0.1f;
constexpr double kLogitDeviation = 2.0;  // of a row of logits: neither flat nor certain

struct Uniform {
  float center = 0;
  float half_width = 0;
};

double HalfWidthOf(double deviation) { return deviation * std::sqrt(3.0); }

// With inputs of mean square 1 a row of n weights of variance 1/n gives outputs of mean square 1.
// Each layer adds two such outputs to the residual stream: those are scaled down by their number.
Uniform DistributionOf(const ModelSpec& spec, const TensorSpec& tensor) {
  if (tensor.kind == TensorKind::kVector) {
    return tensor.name.ends_with(".bias") ? Uniform{0, kBiasSpread} : Uniform{1, kNormSpread};
  }
  double deviation = 1 / std::sqrt(static_cast<double>(tensor.cols));
  if (tensor.name == "token_embd.weight" || tensor.name == "output.weight") {
    deviation *= kLogitDeviation;
  } else if (tensor.split == TensorSplit::kColumns) {
    deviation /= std::sqrt(2.0 * spec.num_layers);
  }
  return {0, static_cast<float>(HalfWidthOf(deviation))};
}

uint64_t SeedOf(uint64_t seed, std::string_view name) {
  Hasher hasher;
  hasher.Update(seed);
  hasher.Update(name);
  return hasher.Digest().low;
}

void Fill(SplitMix64& rng, const Uniform& distribution, std::span<float> out) {
  const float scale = distribution.half_width * 0x1.0p-31f;
  for (size_t i = 0; i < out.size(); i += 2) {
    const uint64_t bits = rng.Next();
    const float offset = scale * static_cast<float>(static_cast<int32_t>(bits >> 32));
    out[i] = distribution.center + offset;
    if (i + 1 == out.size()) break;
    out[i + 1] =
        distribution.center + scale * static_cast<float>(static_cast<int32_t>(bits & 0xffffffffu));
  }
}

std::string SizeLabel(int64_t parameters) {
  if (parameters >= 1'000'000'000) {
    return fmt::format("{:.1f}B", static_cast<double>(parameters) * 1e-9);
  }
  if (parameters >= 1'000'000) return fmt::format("{}M", (parameters + 500'000) / 1'000'000);
  return fmt::format("{}K", (parameters + 500) / 1000);
}

class Synthesizer {
 public:
  Synthesizer(FileSystem& fs, const SynthOptions& options)
      : fs_(fs), options_(options), spec_(options.shape) {}
  Result<SynthReport> Run(const std::string& out);

 private:
  struct Step {
    TensorSpec tensor;
    DType type;
  };
  void Plan();
  void AddKeys(GgufHeader& header) const;
  void AddTensors(GgufHeader& header) const;
  Status WriteTensor(const Step& step, GgufWriter& writer);
  Status WriteRopeDivisors(GgufWriter& writer) const;

  FileSystem& fs_;
  const SynthOptions& options_;
  const ModelSpec& spec_;
  SynthReport report_;
  std::vector<Step> steps_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

void Synthesizer::Plan() {
  for (TensorSpec& tensor : TensorsOf(spec_)) {
    const ChosenType chosen = ChooseType(options_.mix, spec_, tensor);
    report_.counts.Add(tensor, chosen);
    report_.parameters += tensor.rows * tensor.cols;
    steps_.push_back({std::move(tensor), chosen.type});
  }
}

void Synthesizer::AddKeys(GgufHeader& header) const {
  const auto key = [&](const char* suffix) {
    return fmt::format("{}.{}", spec_.architecture, suffix);
  };
  const auto count = [&](const char* suffix, int32_t value) {
    header.AddU32(key(suffix), static_cast<uint32_t>(value));
  };
  header.AddString("general.architecture", spec_.architecture);
  header.AddString("general.type", "model");
  header.AddString("general.name", spec_.name);
  header.AddString("general.size_label", SizeLabel(report_.parameters));
  header.AddU32("general.file_type", FileTypeOf(options_.mix.type));
  header.AddU32("general.quantization_version", kVersionOfBlocks);
  count("vocab_size", spec_.vocab_size);
  count("context_length", spec_.context_length);
  count("embedding_length", spec_.hidden_dim);
  count("block_count", spec_.num_layers);
  count("feed_forward_length", spec_.ffn_dim);
  count("attention.head_count", spec_.num_heads);
  count("attention.head_count_kv", spec_.num_kv_heads);
  count("attention.key_length", spec_.head_dim);
  count("attention.value_length", spec_.head_dim);
  header.AddF32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(spec_.rms_epsilon));
  count("rope.dimension_count", spec_.rope.dims);
  header.AddF32(key("rope.freq_base"), static_cast<float>(spec_.rope.theta));
  if (options_.add_tokenizer) options_.add_tokenizer(header);
}

void Synthesizer::AddTensors(GgufHeader& header) const {
  if (!spec_.rope.divisors.empty()) {
    const int64_t dims[] = {static_cast<int64_t>(spec_.rope.divisors.size())};
    header.AddTensor(kRopeDivisors, dims, GgmlInfoOf(DType::kF32));
  }
  for (const Step& step : steps_) {
    const std::array<int64_t, 2> dims = {step.tensor.cols, step.tensor.rows};
    const size_t num_dims = step.tensor.kind == TensorKind::kVector ? 1 : 2;
    header.AddTensor(step.tensor.name, std::span(dims).first(num_dims), GgmlInfoOf(step.type));
  }
}

Status Synthesizer::WriteRopeDivisors(GgufWriter& writer) const {
  if (spec_.rope.divisors.empty()) return OkStatus();
  return writer.Write(std::as_bytes(std::span(spec_.rope.divisors)));
}

Status Synthesizer::WriteTensor(const Step& step, GgufWriter& writer) {
  SplitMix64 rng(SeedOf(options_.seed, step.tensor.name));
  const Uniform distribution = DistributionOf(spec_, step.tensor);
  const int64_t total = step.tensor.rows * step.tensor.cols;
  for (int64_t begin = 0; begin < total; begin += kPieceElements) {
    if (options_.cancelled && options_.cancelled()) return CancelledError("interrupted");
    const int64_t n = std::min(kPieceElements, total - begin);
    values_.resize(static_cast<size_t>(n));
    Fill(rng, distribution, values_);
    bytes_.resize(static_cast<size_t>(BytesOf(step.type, n)));
    QuantizeRow(step.type, values_.data(), n, bytes_.data());
    TANDEM_RETURN_IF_ERROR(writer.Write(bytes_));
    if (options_.progress) options_.progress(writer.bytes_written(), report_.bytes);
  }
  return OkStatus();
}

Result<SynthReport> Synthesizer::Run(const std::string& out) {
  TANDEM_RETURN_IF_ERROR(spec_.Validate());
  const Family* family = FindFamily(spec_.architecture);
  if (family == nullptr || (!spec_.rope.divisors.empty() && !family->rope_divisors)) {
    return UnimplementedError("a GGUF file of architecture '{}'{} is not supported",
                              spec_.architecture,
                              family == nullptr ? "" : " with scaled rope frequencies");
  }
  if (IsDirectory(fs_, out)) return InvalidArgumentError("{} is a folder: name a file", out);
  Plan();
  GgufHeader header;
  AddKeys(header);
  AddTensors(header);
  report_.bytes = header.file_bytes();
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<GgufWriter> writer,
                          GgufWriter::Create(fs_, out, header));
  TANDEM_RETURN_IF_ERROR(WriteRopeDivisors(*writer));
  for (const Step& step : steps_) TANDEM_RETURN_IF_ERROR(WriteTensor(step, *writer));
  TANDEM_RETURN_IF_ERROR(writer->Commit());
  return report_;
}

std::string ShapeNames() {
  std::string names;
  for (const NamedShape& shape : kShapes) {
    if (!names.empty()) names += ", ";
    names += shape.name;
  }
  return names;
}

}  // namespace

Result<ModelSpec> ShapeFromName(FileSystem& fs, const std::string& name) {
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) return SpecFromHfConfig(shape.config, shape.name);
  }
  const Result<std::string> config = ReadSmallFile(fs, name, kMaxShapeBytes);
  if (!config.ok() && config.status().code() == StatusCode::kNotFound) {
    return NotFoundError("{} is neither a config.json nor one of the known shapes: {}", name,
                         ShapeNames());
  }
  if (!config.ok()) return config.status();
  Result<ModelSpec> spec = SpecFromHfConfig(*config, "random weights");
  if (!spec.ok()) return spec.status().WithContext(name);
  return spec;
}

Result<SynthReport> SynthesizeGguf(FileSystem& fs, const std::string& out,
                                   const SynthOptions& options) {
  return Synthesizer(fs, options).Run(out);
}

}  // namespace tandem
