// What: Linear: one projection of a model: its name and packed weights; and Project, which applies
//   up to three of them to the same rows.
// Not here: kernels (kernels/ops.h), loading (weights.h).
// Threads: values; Project as the stream.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/model_spec.h"
#include "kernels/ops.h"

namespace tandem {

struct Linear {
  std::string name;  // of the tensor, for messages
  PackedMatrix weight;

  int32_t in_dim() const { return weight.cols; }
  int32_t out_dim() const { return weight.rows; }
  // Under `numerics` this projection reads its input as 8-bit codes; otherwise as f32.
  bool ReadsQ8(Numerics numerics) const;
};

// An activation of `cols` columns carved from memory, in the forms that its readers need.
struct ActivationNeeds {
  bool f32 = false;
  bool q8 = false;
};
ActivationNeeds NeedsOf(Numerics numerics, std::initializer_list<const Linear*> readers);

// out = x * W^T for each projection; with `accumulate`, out += x * W^T. Output rows are dense
// ([rows, out_dim]).
struct Projection {
  const Linear* linear = nullptr;
  float* out = nullptr;
};
void Project(Stream& stream, const Activation& x, int32_t rows,
             std::initializer_list<Projection> projections, bool accumulate = false);

}  // namespace tandem
