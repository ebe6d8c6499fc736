#include "cli/commands.h"

#include <cstdio>

#include "base/log.h"

namespace tandem {

int Fail(const Status& status) {
  std::fprintf(stderr, "tandem: %s\n", status.message().c_str());
  return status.code() == StatusCode::kCancelled ? kExitInterrupted : 1;
}

int RunCommandLine(int argc, const char* const* argv) {
  const ParsedCommandLine parsed = ParseCommandLine(argc, argv);
  if (parsed.exit_code.has_value()) return *parsed.exit_code;
  const Options& options = parsed.options;
  if (const Status status = SetLogLevel(options.log_level); !status.ok()) return Fail(status);
  if (options.command == "serve") return RunServe(options);
  if (options.command == "inspect") return RunInspect(options);
  if (options.command == "bench") return RunBench(options);
  if (options.command == "synth") return RunSynth(options);
  if (options.command == "quantize") return RunQuantize(options);
  if (options.command == "eval") return RunEval(options);
  if (options.command == "cache") return RunCache(options);
  if (options.command == "simulate") return RunSimulate(options);
  return RunTerminal(options);
}

}  // namespace tandem
