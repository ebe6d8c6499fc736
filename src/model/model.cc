#include "model/model.h"

#include "model/arch/llama.h"

namespace tandem {

Result<std::unique_ptr<Model>> MakeModel(const ModelSpec& spec, const ModelWeights& weights,
                                         Numerics numerics, Shard shard) {
  if (spec.architecture == "llama") return Llama::Create(spec, weights, numerics, shard);
  return UnimplementedError("architecture '{}' is not supported: Tandem runs llama",
                            spec.architecture);
}

}  // namespace tandem
