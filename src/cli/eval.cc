// The command `eval`: what a way of computing costs in accuracy.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/eval_kl.h"
#include "cli/progress_bar.h"
#include "cli/runtime.h"
#include "kernels/ops.h"
#include "os/cpu.h"

namespace tandem {
namespace {

constexpr size_t kMaxTextBytes = size_t{16} << 20;

Result<std::string> TextOf(const EvalOptions& options) {
  if (options.text_path.empty()) return std::string(DefaultEvalText());
  return ReadSmallFile(RealFileSystem(), options.text_path, kMaxTextBytes);
}

Result<std::unique_ptr<ModelWeights>> LoadWeights(ModelSource& source,
                                                  const ModelOptions& options) {
  ProgressBar bar("packing weights");
  WeightsOptions weights;
  weights.use_cache = !options.no_cache;
  weights.cache_dir = options.cache_dir;
  weights.progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  if (weights.use_cache) {
    if (weights.cache_dir.empty()) {
      TANDEM_ASSIGN_OR_RETURN(weights.cache_dir, UserCacheDir());
    }
    TANDEM_RETURN_IF_ERROR(source.Identify(weights.cache_dir, weights.progress));
  }
  return ModelWeights::Open(RealFileSystem(), source, weights);
}

Result<EvalKlOptions> KlOptionsOf(const Options& options) {
  EvalKlOptions eval;
  TANDEM_ASSIGN_OR_RETURN(eval.numerics,
                          NumericsFromName(options.model.numerics, options.model.kv_type));
  TANDEM_ASSIGN_OR_RETURN(eval.against, NumericsFromName(options.eval.against));
  eval.num_threads = options.model.threads > 0 ? options.model.threads : NumUsableProcessors();
  return eval;
}

Result<Divergence> Measure(const Options& options, EvalKlOptions eval) {
  TANDEM_RETURN_IF_ERROR(CheckCpuIsa());
  TANDEM_ASSIGN_OR_RETURN(const std::string text, TextOf(options.eval));
  TANDEM_ASSIGN_OR_RETURN(const std::string path, ModelPath(options.model));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source,
                          ModelSource::Open(RealFileSystem(), path));
  TANDEM_ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyOf(*source));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          Tokenizer::Create(std::move(vocabulary)));
  if (tokenizer->vocab_size() > static_cast<size_t>(source->spec().vocab_size)) {
    return InvalidArgumentError("{}: the tokenizer has {} tokens, the model's output {}", path,
                                tokenizer->vocab_size(), source->spec().vocab_size);
  }
  const std::vector<TokenId> tokens = tokenizer->Encode(text, {});
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                          LoadWeights(*source, options.model));
  ModelSpec spec = source->spec();
  if (source->folder() != nullptr) {  // whose configuration does not know it
    spec.tokenizer_size = static_cast<int32_t>(tokenizer->vocab_size());
  }
  ProgressBar bar("evaluating");
  eval.progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  return EvaluateKl(spec, *weights, tokens, eval);
}

}  // namespace

int RunEval(const Options& options) {
  const Result<EvalKlOptions> eval = KlOptionsOf(options);
  if (!eval.ok()) return Fail(eval.status());
  const Result<Divergence> divergence = Measure(options, *eval);
  if (!divergence.ok()) return Fail(divergence.status());
  if (options.eval.json) {
    const nlohmann::ordered_json report = {
        {"numerics", NameOf(eval->numerics)},   {"against", NameOf(eval->against)},
        {"positions", divergence->positions()}, {"mean_kl", divergence->MeanKl()},
        {"p99_kl", divergence->P99Kl()},        {"top1_agreement", divergence->Top1()},
    };
    fmt::print("{}\n", report.dump());
    return 0;
  }
  fmt::print("{} against {}, {} positions: mean KL {:.6f}, p99 {:.6f}, same top token {:.2f} %\n",
             NameOf(eval->numerics), NameOf(eval->against), divergence->positions(),
             divergence->MeanKl(), divergence->P99Kl(), 100 * divergence->Top1());
  return 0;
}

}  // namespace tandem
