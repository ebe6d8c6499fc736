#include <csignal>

#include "cli/commands.h"

int main(int argc, char** argv) {
  // Libraries that libfabric brings catch these when they are loaded, and write files into the
  // current folder; a crash shall be a crash.
  for (const int signal : {SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV}) std::signal(signal, SIG_DFL);
  return tandem::RunCommandLine(argc, argv);
}
