// What: the commands of the binary.
// Not here: their flags (options.h).
// Threads: one; a command starts and joins its own.
#pragma once

#include "cli/options.h"

namespace tandem {

// Parses the command line and runs what it says; the value is the process's exit status: 0, 1
// (failed), 2 (wrong usage) or kExitInterrupted.
int RunCommandLine(int argc, const char* const* argv);

// Each prints its own errors to stderr as "tandem: MESSAGE".
int RunTerminal(const Options& options);
int RunServe(const Options& options);
int RunInspect(const Options& options);
int RunBench(const Options& options);
int RunSynth(const Options& options);
int RunQuantize(const Options& options);
int RunEval(const Options& options);
int RunCache(const Options& options);
int RunSimulate(const Options& options);

inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells report it

// Prints an error as above; returns 1, or kExitInterrupted for CANCELLED.
int Fail(const Status& status);

}  // namespace tandem
