// What: for tests: builds safetensors files in memory, right or wrong, and Hugging Face folders
//   that hold the model of a GGUF file as its authors would have published it.
// Not here: writing models for users.
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/gguf.h"
#include "model/hf_config.h"
#include "model/spec_from_gguf.h"
#include "model/tensor_layout.h"
#include "os/test_dir.h"
#include "tensor/block_quant.h"

namespace tandem {

// A file of the header's text and the data, as they are.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + data;
}

class SafetensorsTestWriter {
 public:
  void Add(const std::string& name, const std::string& type, const std::vector<int64_t>& shape,
           const std::string& raw) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                           header_.empty() ? "" : ",", name, type, fmt::join(shape, ","),
                           data_.size(), data_.size() + raw.size());
    data_ += raw;
  }
  std::string Build() const {
    std::string header = fmt::format(R"({{"__metadata__":{{"format":"pt"}}{}{}}})",
                                     header_.empty() ? "" : ",", header_);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return SafetensorsBytes(header, data_);
  }

 private:
  std::string header_;
  std::string data_;
};

struct HfTestOptions {
  bool new_spelling = true;  // of transformers 5; else of 4
  std::string rope_scaling;  // fields of it, without braces: "\"rope_type\":\"llama3\",..."
  int shards = 1;            // with more than one, an index
};

// config.json of `spec`.
inline std::string HfConfigText(const ModelSpec& spec, const HfTestOptions& options) {
  const auto upper = [](std::string text) {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  };
  std::string text = fmt::format(
      R"({{"model_type":"{}","architectures":["{}ForCausalLM"],"num_hidden_layers":{},)"
      R"("hidden_size":{},"intermediate_size":{},"num_attention_heads":{},)"
      R"("num_key_value_heads":{},"head_dim":{},"vocab_size":{},"max_position_embeddings":{},)"
      R"("rms_norm_eps":{},"tie_word_embeddings":{},"hidden_act":"silu","eos_token_id":2,)",
      spec.architecture, upper(spec.architecture), spec.num_layers, spec.hidden_dim, spec.ffn_dim,
      spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.vocab_size, spec.context_length,
      spec.rms_epsilon, spec.tied_embeddings);
  const std::string& scaling = options.rope_scaling;
  if (options.new_spelling) {
    return text + fmt::format(R"("dtype":"float32","rope_parameters":{{"rope_theta":{},{}}}}})",
                              spec.rope.theta,
                              scaling.empty() ? R"("rope_type":"default")" : scaling);
  }
  return text + fmt::format(R"("torch_dtype":"float32","rope_theta":{},"rope_scaling":{}}})",
                            spec.rope.theta, scaling.empty() ? "null" : "{" + scaling + "}");
}

// Rows as they were trained: the first halves of all pairs of a head, then the second halves.
inline std::string UnpermuteRows(const std::string& raw, int64_t heads, int64_t head_dim) {
  const auto row_bytes = raw.size() / static_cast<size_t>(heads * head_dim);
  std::string out(raw.size(), '\0');
  for (int64_t row = 0; row < heads * head_dim; ++row) {
    const int64_t pair = row % head_dim / 2;
    const int64_t trained = row - row % head_dim + row % 2 * (head_dim / 2) + pair;
    std::memcpy(out.data() + static_cast<size_t>(trained) * row_bytes,
                raw.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
  }
  return out;
}

// Writes config.json and the weights of `file` into the directory NAME of `dir`; returns its path.
// Quantised weights are written as f32, others as they are.
inline std::string WriteHfFolder(const TestDir& dir, const std::string& name, const GgufFile& file,
                                 const HfTestOptions& options = {}) {
  const Result<ModelSpec> spec = SpecFromGguf(file);
  TANDEM_CHECK(spec.ok());
  dir.Write(name + "/config.json", HfConfigText(*spec, options));
  std::vector<SafetensorsTestWriter> shards(static_cast<size_t>(options.shards));
  std::string weight_map;
  const auto shard_name = [&](size_t shard) {
    return options.shards == 1
               ? "model.safetensors"
               : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, options.shards);
  };
  size_t count = 0;
  for (const TensorSpec& tensor : TensorsOf(*spec)) {
    const GgufTensor& source = *file.FindTensor(tensor.name);
    std::string raw(static_cast<size_t>(source.bytes), '\0');
    TANDEM_CHECK(file.ReadTensor(source, 0, std::as_writable_bytes(std::span(raw))).ok());
    std::string type(source.type->name);
    if (source.type->quantised()) {
      std::string values(static_cast<size_t>(source.num_elements()) * sizeof(float), '\0');
      DequantizeRow(*source.type->dtype, reinterpret_cast<const std::byte*>(raw.data()),
                    source.num_elements(), reinterpret_cast<float*>(values.data()));
      raw = values;
      type = "F32";
    }
    const bool permuted = spec->rope.style == RopeStyle::kInterleaved;
    if (permuted && tensor.name.ends_with("attn_q.weight")) {
      raw = UnpermuteRows(raw, spec->num_heads, spec->head_dim);
    } else if (permuted && tensor.name.ends_with("attn_k.weight")) {
      raw = UnpermuteRows(raw, spec->num_kv_heads, spec->head_dim);
    }
    std::vector<int64_t> shape = {tensor.rows, tensor.cols};
    if (tensor.kind == TensorKind::kVector) shape = {tensor.cols};
    const size_t shard = count++ % shards.size();
    shards[shard].Add(HfTensorName(tensor.name), type, shape, raw);
    weight_map += fmt::format(R"({}"{}":"{}")", weight_map.empty() ? "" : ",",
                              HfTensorName(tensor.name), shard_name(shard));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    dir.Write(name + "/" + shard_name(i), shards[i].Build());
  }
  if (options.shards > 1) {
    dir.Write(name + "/model.safetensors.index.json",
              fmt::format(R"({{"metadata":{{"total_size":1}},"weight_map":{{{}}}}})", weight_map));
  }
  return dir.path() + "/" + name;
}

}  // namespace tandem
