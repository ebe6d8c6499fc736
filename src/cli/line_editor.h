// What: LineEditor: reads lines from a person at a terminal, with editing, history and pasting
//   (libedit).
// Not here: what the lines mean; where history is kept (chat_history.h).
// Threads: one: the InterruptCounter's.
// Invariants: from construction to destruction the terminal hands over single bytes and echoes
//   nothing, also between two Reads: keys typed meanwhile wait for the next Read as they were
//   pressed. (A terminal in line mode would keep a Ctrl-D as a mark that reads as NUL later on.)
//   Ctrl-C stays a signal.
#pragma once

#include <memory>
#include <string>

namespace tandem {

class LineEditor {
 public:
  enum class End { kLine, kEndOfInput, kInterrupted };
  struct Line {
    End end = End::kLine;
    std::string text;  // without the line break at its end; pasted text has breaks within
  };

  // Takes the terminal at standard input. Shows what is typed on stdout, or on stderr when stdout
  // is no terminal; when neither is, reads lines as they come, without prompts.
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Ctrl-C (kInterrupted) drops what was typed. Clears the InterruptCounter first.
  Line Read(const std::string& prompt);
  // Offers `text` to the keys that go back in history.
  void Remember(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
