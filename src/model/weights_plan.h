// What: the plan of a model's packed weights: which part of which tensor goes where, and
//   WriteWeights, which reads, splits and packs them in that order.
// Not here: where the bytes go (weights.h, weights_cache.h); the packed order
//   (kernels/packed_matrix.h).
// Threads: values; pure functions of an immutable file.
// Invariants: entries lie one after another at multiples of kWeightAlignment, in the order of
//   TensorsOf; the gaps are zeros. Equal models, layouts and shards give equal plans and equal
//   bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/model_spec.h"
#include "model/model_source.h"
#include "model/tensor_layout.h"
#include "tensor/state_group.h"

namespace tandem {

inline constexpr int64_t kWeightAlignment = 64;  // a cache line, an AVX-512 register

struct WeightEntry {
  std::string name;
  TensorKind kind = TensorKind::kMatrix;
  DType dtype = DType::kF32;  // of a matrix's codes; vectors are f32
  int32_t rows = 0;           // of this shard
  int32_t cols = 0;
  int64_t offset = 0;  // from the start of the weights
  int64_t bytes = 0;

  const SourceTensor* source = nullptr;  // of the whole tensor
  int64_t first_row = 0;                 // of this shard in the source
  int64_t first_col = 0;
};

struct WeightPlan {
  std::vector<WeightEntry> entries;
  int64_t total_bytes = 0;  // multiple of kWeightAlignment
};

// The plan points into `source`. INVALID_ARGUMENT when the shards do not divide a tensor (by whole
// blocks), UNIMPLEMENTED for a type without a packed layout.
Result<WeightPlan> PlanWeights(const ModelSource& source, Shard shard);

// Takes the weights' bytes from first to last.
using WeightSink = std::function<Status(std::span<const std::byte> bytes)>;

// Stops at the first failure of reading or of the sink and returns it. Holds a few MiB.
Status WriteWeights(const ModelSource& source, const WeightPlan& plan, const WeightSink& sink);

}  // namespace tandem
