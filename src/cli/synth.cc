// The command `synth`: a model file of a given shape with random weights.
#include "model/synth.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/synth_vocabulary.h"
#include "cli/type_mix_options.h"

namespace tandem {
namespace {

Result<SynthReport> Synthesize(const SynthCommandOptions& command) {
  FileSystem& fs = RealFileSystem();
  SynthOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.mix, TypeMixOf(command.types));
  TANDEM_ASSIGN_OR_RETURN(options.shape, ShapeFromName(fs, command.shape));
  TANDEM_ASSIGN_OR_RETURN(
      const Vocabulary vocabulary,
      MakeSynthVocabulary(options.shape.architecture, options.shape.vocab_size));
  options.add_tokenizer = [&](GgufHeader& header) { AddVocabularyTo(header, vocabulary); };
  options.seed = command.seed;
  const InterruptCounter interrupts;
  options.cancelled = [] { return InterruptCounter::Count() > 0; };
  ProgressBar bar("writing");
  options.progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  return SynthesizeGguf(fs, command.output, options);
}

}  // namespace

int RunSynth(const Options& options) {
  const Result<SynthReport> report = Synthesize(options.synth);
  if (!report.ok()) return Fail(report.status());
  fmt::print("{}: {} parameters, {} bytes; {}", options.synth.output, report->parameters,
             report->bytes, DescribeTypes(report->counts));
  return 0;
}

}  // namespace tandem
