// What: the measurement of `eval kl`: a model's logits in one numerics against those in another, on
//   the same text.
// Not here: flags and output (eval.cc).
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "cli/eval_divergence.h"
#include "core/model_spec.h"
#include "model/weights.h"

namespace tandem {

// The text that is measured by default: our own, of several kinds (tests/golden/README.md).
std::string_view DefaultEvalText();

// The text is cut into pieces of this many tokens, each run by itself.
inline constexpr int32_t kEvalPieceTokens = 256;

struct EvalKlOptions {
  Numerics numerics = Numerics::kFast;
  Numerics against = Numerics::kExact;
  int32_t num_threads = 1;
  LoadProgress progress;  // in tokens; may be empty
};

// Requires ids below spec.tokenizer_size. INVALID_ARGUMENT without tokens; errors of the executor.
Result<Divergence> EvaluateKl(const ModelSpec& spec, const ModelWeights& weights,
                              std::span<const TokenId> tokens, const EvalKlOptions& options);

}  // namespace tandem
