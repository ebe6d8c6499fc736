#include "cli/line_editor.h"

#include <histedit.h>

#include <cerrno>
#include <clocale>
#include <cstdio>

#include "cli/interrupt.h"

namespace tandem {
namespace {

constexpr int kHistoryEntries = 1000;

}  // namespace

struct LineEditor::State {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string prompt;
};

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "C.UTF-8");  // libedit edits characters, not bytes
  state_->edit = el_init("tandem", stdin, stdout, stderr);
  state_->history = history_init();
  if (state_->edit == nullptr || state_->history == nullptr) return;
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryEntries);
  el_set(state_->edit, EL_CLIENTDATA, state_.get());
  el_set(
      state_->edit, EL_PROMPT, +[](EditLine* edit) -> char* {
        void* data = nullptr;
        el_get(edit, EL_CLIENTDATA, &data);
        return static_cast<State*>(data)->prompt.data();
      });
  el_set(state_->edit, EL_EDITOR, "emacs");
  el_set(state_->edit, EL_HIST, ::history, state_->history);
  el_set(state_->edit, EL_SIGNAL, 0);
}

LineEditor::~LineEditor() {
  if (state_->edit != nullptr) el_end(state_->edit);
  if (state_->history != nullptr) history_end(state_->history);
}

LineEditor::Line LineEditor::Read(const std::string& prompt) {
  if (state_->edit == nullptr) return {End::kEndOfInput, ""};
  state_->prompt = prompt;
  InterruptCounter::Reset();
  int length = 0;
  const char* text = el_gets(state_->edit, &length);
  if (text == nullptr || length <= 0) {
    if (InterruptCounter::Count() > 0) {
      el_set(state_->edit, EL_REFRESH);
      return {End::kInterrupted, ""};
    }
    return {End::kEndOfInput, ""};
  }
  std::string line(text, static_cast<size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return {End::kLine, std::move(line)};
}

void LineEditor::Remember(const std::string& text) {
  if (state_->history == nullptr || text.empty()) return;
  HistEvent event;
  history(state_->history, &event, H_ENTER, text.c_str());
}

}  // namespace tandem
