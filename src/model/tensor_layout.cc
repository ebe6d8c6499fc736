#include "model/tensor_layout.h"

#include <fmt/format.h>

namespace tandem {

std::vector<TensorSpec> TensorsOf(const ModelSpec& spec) {
  const int64_t hidden = spec.hidden_dim;
  const int64_t heads_dim = int64_t{spec.num_heads} * spec.head_dim;
  const int64_t kv_dim = int64_t{spec.num_kv_heads} * spec.head_dim;
  const int64_t ffn = spec.ffn_dim;
  std::vector<TensorSpec> out;
  const auto matrix = [&](std::string name, int64_t rows, int64_t cols, TensorSplit split) {
    out.push_back({std::move(name), TensorKind::kMatrix, rows, cols, split});
  };
  const auto vector = [&](std::string name, int64_t length,
                          TensorSplit split = TensorSplit::kWhole) {
    out.push_back({std::move(name), TensorKind::kVector, 1, length, split});
  };
  matrix("token_embd.weight", spec.vocab_size, hidden, TensorSplit::kWhole);
  for (int32_t layer = 0; layer < spec.num_layers; ++layer) {
    const auto name = [layer](const char* part) {
      return fmt::format("blk.{}.{}.weight", layer, part);
    };
    vector(name("attn_norm"), hidden);
    matrix(name("attn_q"), heads_dim, hidden, TensorSplit::kRows);
    matrix(name("attn_k"), kv_dim, hidden, TensorSplit::kRows);
    matrix(name("attn_v"), kv_dim, hidden, TensorSplit::kRows);
    if (spec.qkv_bias) {
      const auto bias = [&](const char* part, int64_t length) {
        vector(fmt::format("blk.{}.{}.bias", layer, part), length, TensorSplit::kColumns);
      };
      bias("attn_q", heads_dim);
      bias("attn_k", kv_dim);
      bias("attn_v", kv_dim);
    }
    if (spec.qk_norm) {
      vector(name("attn_q_norm"), spec.head_dim);
      vector(name("attn_k_norm"), spec.head_dim);
    }
    matrix(name("attn_output"), hidden, heads_dim, TensorSplit::kColumns);
    vector(name("ffn_norm"), hidden);
    matrix(name("ffn_gate"), ffn, hidden, TensorSplit::kRows);
    matrix(name("ffn_up"), ffn, hidden, TensorSplit::kRows);
    matrix(name("ffn_down"), hidden, ffn, TensorSplit::kColumns);
  }
  vector("output_norm.weight", hidden);
  if (!spec.tied_embeddings) {
    matrix("output.weight", spec.vocab_size, hidden, TensorSplit::kWhole);
  }
  return out;
}

}  // namespace tandem
