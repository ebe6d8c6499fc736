// What: the tensors that a model of a given spec consists of: names, shapes, and how each is split
//   over tensor-parallel ranks.
// Not here: files; types of the values.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model_spec.h"

namespace tandem {

enum class TensorKind : uint8_t { kMatrix, kVector };

// What one rank holds. Projections into heads or feed-forward units are split by outputs, those out
// of them by inputs, so that a layer needs two sums over ranks (after attn_output and ffn_down). A
// bias, a vector of outputs, is split as its columns; norms are whole.
enum class TensorSplit : uint8_t { kWhole, kRows, kColumns };

struct TensorSpec {
  std::string name;  // as in GGUF files: "blk.0.attn_q.weight"
  TensorKind kind = TensorKind::kMatrix;
  int64_t rows = 0;  // outputs; 1 for a vector
  int64_t cols = 0;  // inputs; the length of a vector
  TensorSplit split = TensorSplit::kWhole;
};

// Requires a spec that is valid, of an architecture that MakeModel knows. Tied embeddings: no
// "output.weight".
std::vector<TensorSpec> TensorsOf(const ModelSpec& spec);

}  // namespace tandem
