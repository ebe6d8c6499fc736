#include "model/model.h"

#include "model/arch/dense.h"
#include "model/family.h"

namespace tandem {

Result<std::unique_ptr<Model>> MakeModel(const ModelSpec& spec, const ModelWeights& weights,
                                         Numerics numerics, Shard shard) {
  if (FindFamily(spec.architecture) == nullptr) {
    return UnimplementedError("architecture '{}' is not supported: Tandem runs {}",
                              spec.architecture, FamilyNames());
  }
  return DenseTransformer::Create(spec, weights, numerics, shard);
}

}  // namespace tandem
