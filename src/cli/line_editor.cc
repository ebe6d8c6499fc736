#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>

#include "cli/chat_history.h"
#include "cli/interrupt.h"
#include "cli/terminal_guard.h"

namespace tandem {
namespace {

constexpr size_t kPasteCharsMax = size_t{1} << 20;
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

// The terminal has another size, or other programs have written to it while this one was stopped.
std::atomic<bool> g_redraw{false};

void OnRedraw(int) { g_redraw.store(true); }

}  // namespace

struct LineEditor::State {
  TerminalGuard guard;
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string prompt;
  sigset_t while_waiting;  // the signals that are blocked while Read waits for a key
  struct sigaction old_resize;
  struct sigaction old_continue;

  // The next byte typed: 1; at the end of input 0; -1 with errno EINTR after Ctrl-C.
  int ReadByte(char* byte) const;
  static State* Of(EditLine* edit);
  static int ReadCharacter(EditLine* edit, wchar_t* character);
  static unsigned char Paste(EditLine* edit, int key);
  static unsigned char BreakLine(EditLine* edit, int key);
  static char* Prompt(EditLine* edit) { return Of(edit)->prompt.data(); }
  void SetUp(FILE* out);
  Line ReadPlain() const;
};

LineEditor::State* LineEditor::State::Of(EditLine* edit) {
  void* data = nullptr;
  el_get(edit, EL_CLIENTDATA, &data);
  return static_cast<State*>(data);
}

int LineEditor::State::ReadByte(char* byte) const {
  for (;;) {
    if (edit != nullptr && g_redraw.exchange(false)) {
      el_resize(edit);
      el_set(edit, EL_REFRESH);
    }
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (ppoll(&input, 1, nullptr, &while_waiting) < 0) {
      if (errno != EINTR || InterruptCounter::Count() > 0) return -1;
      continue;
    }
    const ssize_t got = read(STDIN_FILENO, byte, 1);
    if (got >= 0 || errno != EINTR) return static_cast<int>(got);
  }
}

int LineEditor::State::ReadCharacter(EditLine* edit, wchar_t* character) {
  std::mbstate_t partial = {};
  for (;;) {
    char byte = 0;
    const int got = Of(edit)->ReadByte(&byte);
    if (got <= 0) return got;
    const size_t used = std::mbrtowc(character, &byte, 1, &partial);
    if (used <= 1) return 1;                            // 0: a NUL
    if (used == static_cast<size_t>(-1)) partial = {};  // no UTF-8: dropped
  }
}

// Inserts text up to the terminal's mark of its end; a line break in it is text, not Enter.
unsigned char LineEditor::State::Paste(EditLine* edit, int /*key*/) {
  std::wstring text;
  wchar_t last = 0;
  for (;;) {
    wchar_t next = 0;
    if (ReadCharacter(edit, &next) <= 0) return CC_EOF;
    const bool line_break = next == L'\r' || next == L'\n';
    const bool second_half = line_break && last != next && (last == L'\r' || last == L'\n');
    last = second_half ? 0 : next;
    if (second_half) continue;
    text.push_back(line_break ? L'\n' : next);
    if (text.ends_with(kPasteEnd)) break;
    // Of more, only what may be the mark is kept.
    if (text.size() > kPasteCharsMax + kPasteEnd.size()) text.erase(kPasteCharsMax, 1);
  }
  text.resize(text.size() - kPasteEnd.size());
  while (text.ends_with(L'\n')) text.pop_back();  // Enter is still to be pressed
  std::erase_if(text,
                [](wchar_t c) { return (c < L' ' && c != L'\n' && c != L'\t') || c == 0x7f; });
  if (!text.empty() && el_winsertstr(edit, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

unsigned char LineEditor::State::BreakLine(EditLine* edit, int /*key*/) {
  return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

void LineEditor::State::SetUp(FILE* out) {
  edit = el_init("tandem", stdin, out, stderr);
  history = history_init();
  if (edit == nullptr || history == nullptr) return;
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kChatHistoryEntries);
  el_set(edit, EL_CLIENTDATA, this);
  el_set(edit, EL_GETCFN, &State::ReadCharacter);
  el_set(edit, EL_PROMPT, &State::Prompt);
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_HIST, ::history, history);
  el_set(edit, EL_SIGNAL, 0);
  // -x: the modes while no line is read. Only then does a Ctrl-D typed meanwhile stay one, and the
  // end of a pasted line, which may be CR LF, stay what the terminal sent.
  el_set(edit, EL_SETTY, "-x", "-icanon", "-echo", "-iexten", "-icrnl", nullptr);
  // What a Ctrl-D became that was typed before. libedit would quote the next key, as if NUL were a
  // key of the terminal's.
  el_set(edit, EL_BIND, "^@", "ed-ignore", nullptr);
  el_set(edit, EL_ADDFN, "tandem-paste", "Inserts pasted text", &State::Paste);
  el_set(edit, EL_BIND, "\\e[200~", "tandem-paste", nullptr);
  el_set(edit, EL_ADDFN, "tandem-break-line", "Begins a new line", &State::BreakLine);
  el_set(edit, EL_BIND, "\\e\\r", "tandem-break-line", nullptr);
  el_set(edit, EL_BIND, "\\e\\n", "tandem-break-line", nullptr);
}

LineEditor::Line LineEditor::State::ReadPlain() const {
  std::string text;
  for (;;) {
    char byte = 0;
    const int got = ReadByte(&byte);
    if (got < 0 && InterruptCounter::Count() > 0) return {End::kInterrupted, ""};
    if (got <= 0 && text.empty()) return {End::kEndOfInput, ""};
    if (got <= 0 || byte == '\n') return {End::kLine, std::move(text)};
    text.push_back(byte);
  }
}

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "C.UTF-8");  // libedit edits characters, not bytes
  FILE* const out = isatty(STDOUT_FILENO) != 0   ? stdout
                    : isatty(STDERR_FILENO) != 0 ? stderr
                                                 : nullptr;
  if (out != nullptr && isatty(STDIN_FILENO) != 0) state_->SetUp(out);
  struct sigaction redraw = {};
  redraw.sa_handler = &OnRedraw;
  redraw.sa_flags = SA_RESTART;
  sigemptyset(&redraw.sa_mask);
  sigaction(SIGWINCH, &redraw, &state_->old_resize);
  sigaction(SIGCONT, &redraw, &state_->old_continue);
}

LineEditor::~LineEditor() {
  sigaction(SIGWINCH, &state_->old_resize, nullptr);
  sigaction(SIGCONT, &state_->old_continue, nullptr);
  if (state_->edit != nullptr) el_end(state_->edit);
  if (state_->history != nullptr) history_end(state_->history);
}

LineEditor::Line LineEditor::Read(const std::string& prompt) {
  // A Ctrl-C is delivered while ReadByte waits, and nowhere else: none is missed.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &state_->while_waiting);
  InterruptCounter::Reset();
  Line line;
  if (state_->edit == nullptr) {
    line = state_->ReadPlain();
  } else {
    state_->prompt = prompt;
    state_->guard.MarkPastes(true);
    int length = 0;
    const char* const text = el_gets(state_->edit, &length);
    state_->guard.MarkPastes(false);
    if (InterruptCounter::Count() > 0) {
      line.end = End::kInterrupted;
    } else if (text == nullptr || length <= 0) {
      line.end = End::kEndOfInput;
    } else {
      line.text.assign(text, static_cast<size_t>(length));
    }
  }
  pthread_sigmask(SIG_SETMASK, &state_->while_waiting, nullptr);
  if (line.text.ends_with('\n')) line.text.pop_back();
  if (line.text.ends_with('\r')) line.text.pop_back();
  return line;
}

void LineEditor::Remember(const std::string& text) {
  if (state_->history == nullptr || text.empty()) return;
  HistEvent event;
  history(state_->history, &event, H_ENTER, text.c_str());
}

}  // namespace tandem
