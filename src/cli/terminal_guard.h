// What: TerminalGuard: gives the terminal back as it was, however the process ends or pauses.
// Not here: the modes that it has meanwhile (line_editor.h); Ctrl-C's meaning (interrupt.h).
// Threads: one constructs, uses and destroys it; signals arrive on any.
#pragma once

namespace tandem {

class TerminalGuard {
 public:
  // Remembers the modes of the terminal at standard input; without one, nothing below happens.
  // Until destroyed, the signals that end a process (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT)
  // restore the modes first, and Ctrl-Z restores them while the process is stopped. A later handler
  // for one of them takes its place. At most one at a time.
  TerminalGuard();
  ~TerminalGuard();
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;

  // Whether the terminal marks pasted text ("bracketed paste"), so that it can be told from typed.
  // Off at the end, as above. Nothing on a terminal that is not known to understand it.
  void MarkPastes(bool on);
};

}  // namespace tandem
