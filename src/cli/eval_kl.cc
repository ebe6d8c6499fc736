#include "cli/eval_kl.h"

#include <algorithm>
#include <memory>

#include "cli/eval_model.h"

namespace tandem {
namespace {

// Positions whose logits exist at a time: with 150 thousand tokens they take 19 MB.
constexpr size_t kChunk = 32;

}  // namespace

Result<Divergence> EvaluateKl(const ModelSpec& spec, const ModelWeights& weights,
                              std::span<const TokenId> tokens, const EvalKlOptions& options) {
  if (tokens.empty()) return InvalidArgumentError("the text has no tokens");
  const int32_t piece_tokens = std::min(kEvalPieceTokens, spec.context_length);
  const auto create = [&](Numerics numerics) {
    return EvalModel::Create(spec, weights, numerics, options.num_threads, piece_tokens);
  };
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<EvalModel> reference, create(options.against));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<EvalModel> subject, create(options.numerics));
  const auto stride = static_cast<size_t>(spec.vocab_size);
  const auto columns = static_cast<size_t>(spec.tokenizer_size);  // the others are never sampled
  Divergence divergence;
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t in_piece = begin % static_cast<size_t>(piece_tokens);
    if (in_piece == 0) {
      reference->Restart();
      subject->Restart();
    }
    const size_t n =
        std::min({kChunk, tokens.size() - begin, static_cast<size_t>(piece_tokens) - in_piece});
    TANDEM_ASSIGN_OR_RETURN(const auto expected, reference->Append(tokens.subspan(begin, n)));
    TANDEM_ASSIGN_OR_RETURN(const auto found, subject->Append(tokens.subspan(begin, n)));
    for (size_t i = 0; i < n; ++i) {
      divergence.Add(expected.subspan(i * stride, columns), found.subspan(i * stride, columns));
    }
    begin += n;
    if (options.progress) {
      options.progress(static_cast<int64_t>(begin), static_cast<int64_t>(tokens.size()));
    }
  }
  return divergence;
}

}  // namespace tandem
