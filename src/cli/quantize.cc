// The command `quantize`: from a model file to one with other types.
#include "model/quantize.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/type_mix_options.h"

namespace tandem {
namespace {

Result<QuantizeReport> Quantize(const QuantizeCommandOptions& command) {
  QuantizeOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.mix, TypeMixOf(command.types));
  const InterruptCounter interrupts;
  options.cancelled = [] { return InterruptCounter::Count() > 0; };
  ProgressBar bar("quantising");
  options.progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  return QuantizeGguf(RealFileSystem(), command.input, command.output, options);
}

}  // namespace

int RunQuantize(const Options& options) {
  const Result<QuantizeReport> report = Quantize(options.quantize);
  if (!report.ok()) return Fail(report.status());
  fmt::print("{}: {} bytes of tensors became a file of {}; {}", options.quantize.output,
             report->bytes_in, report->bytes_out, DescribeTypes(report->counts));
  if (report->requantised > 0) {
    fmt::print("{} tensors were quantised before: the errors of both add up\n",
               report->requantised);
  }
  return 0;
}

}  // namespace tandem
