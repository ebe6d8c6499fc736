#include "cli/terminal_guard.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace tandem {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGTSTP};
constexpr std::string_view kMarkPastesOn = "\x1b[?2004h";
constexpr std::string_view kMarkPastesOff = "\x1b[?2004l";

// A signal handler can reach nothing else.
bool g_terminal = false;  // set before the handlers are
termios g_original;
std::atomic<bool> g_marks_pastes{false};
struct sigaction g_old[std::size(kSignals)];

void WriteToTerminal(std::string_view text) {
  // A terminal that is gone needs no restoring.
  [[maybe_unused]] const ssize_t written = write(STDIN_FILENO, text.data(), text.size());
}

void Restore() {
  if (g_marks_pastes.load()) WriteToTerminal(kMarkPastesOff);
  tcsetattr(STDIN_FILENO, TCSANOW, &g_original);
}

void SetAction(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_NODEFER;  // the handler raises its own signal
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void Handler(int signal) {
  const int saved_errno = errno;
  termios modes;
  const bool known = tcgetattr(STDIN_FILENO, &modes) == 0;
  Restore();
  SetAction(signal, SIG_DFL);
  raise(signal);  // ends the process, or stops it until it is told to go on
  SetAction(signal, &Handler);
  if (known) tcsetattr(STDIN_FILENO, TCSANOW, &modes);
  if (g_marks_pastes.load()) WriteToTerminal(kMarkPastesOn);
  errno = saved_errno;
}

}  // namespace

TerminalGuard::TerminalGuard() {
  g_terminal = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &g_original) == 0;
  if (!g_terminal) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &g_old[i]);
    // A signal that was ignored at the start (nohup) stays so.
    if (g_old[i].sa_handler != SIG_IGN) SetAction(kSignals[i], &Handler);
  }
}

TerminalGuard::~TerminalGuard() {
  if (!g_terminal) return;
  MarkPastes(false);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &g_original);
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &g_old[i], nullptr);
  g_terminal = false;
}

void TerminalGuard::MarkPastes(bool on) {
  const char* const kind = std::getenv("TERM");
  const bool knows = kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
  if (!g_terminal || !knows || on == g_marks_pastes.load()) return;
  g_marks_pastes.store(on);
  WriteToTerminal(on ? kMarkPastesOn : kMarkPastesOff);
}

}  // namespace tandem
