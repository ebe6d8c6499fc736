// What: the chat in the terminal: reads messages and commands, prints answers and their figures.
// Not here: keys and lines (line_editor.h), talking to the model (terminal.h).
// Threads: the one that the InterruptCounter belongs to.
#pragma once

#include <string>

#include "cli/line_editor.h"
#include "cli/options.h"
#include "cli/runtime.h"

namespace tandem {

// Until the person leaves; the value is the process's exit status. Requires an InterruptCounter.
int RunChat(Runtime& runtime, LineEditor& editor, const TerminalOptions& options);

// Below: parts of the above that tests use.

// Whether `text`, lines joined by breaks, is a whole message: not when its last line ends in a
// backslash, nor when it begins with """ and those three are not at its end as well.
bool IsWholeMessage(const std::string& text);
// What is sent: without the marks and with the breaks that they stand for. Requires a whole one.
std::string MessageFrom(const std::string& text);

}  // namespace tandem
