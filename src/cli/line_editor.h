// What: LineEditor: reads lines from a person with editing and history (libedit), or from a pipe as
//   they are.
// Not here: what the lines mean.
// Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace tandem {

class LineEditor {
 public:
  enum class End { kLine, kEndOfInput, kInterrupted };
  struct Line {
    End end = End::kLine;
    std::string text;  // without the line break
  };

  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line Read(const std::string& prompt);
  void Remember(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
