#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/edit_distance.h"
#include "cli/chat_history.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace tandem {
namespace {

constexpr std::string_view kHelp =
    "/help            this list\n"
    "/system TEXT     set the system message and start over; without TEXT: show it\n"
    "/reset           forget the conversation\n"
    "/stats           figures after each answer: on or off\n"
    "/exit, Ctrl-D    leave\n"
    "\n"
    "Ctrl-C stops an answer, or drops the line being typed. Up and Down go through what was typed\n"
    "before, Ctrl-R searches it.\n"
    "A message of several lines: end a line in \\, or begin it with \"\"\" and end the last with "
    "\"\"\",\n"
    "or press Alt-Enter within. Pasted lines stay one message. A space in front of / makes it "
    "text.\n";

constexpr std::string_view kCommandNames[] = {"/help",  "/system", "/reset",
                                              "/stats", "/exit",   "/quit"};
constexpr std::string_view kBlockMark = "\"\"\"";

// What is not an answer never mixes with answers in a pipe.
FILE* Screen() { return isatty(STDOUT_FILENO) != 0 ? stdout : stderr; }

void Say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), Screen());
  std::fflush(Screen());
}

// Colours where they are wanted (no-color.org) and understood.
bool WithColours() {
  const char* const off = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  return (off == nullptr || *off == '\0') && kind != nullptr && std::string_view(kind) != "dumb";
}

class ChatSession {
 public:
  ChatSession(Runtime& runtime, LineEditor& editor, const TerminalOptions& options)
      : runtime_(runtime),
        editor_(editor),
        conversation_(&runtime, options),
        stats_(!options.no_stats) {
    if (!options.no_history) OpenHistory();
  }

  void Run();

 private:
  void OpenHistory();
  void Remember(const std::string& text);
  LineEditor::Line ReadMessage();
  // False when `text` is no command.
  bool RunCommand(const std::string& text);
  void SetSystem(std::string_view text);
  void Answer(const std::string& text);

  Runtime& runtime_;
  LineEditor& editor_;
  Conversation conversation_;
  std::optional<ChatHistory> history_;  // absent when it is not kept
  bool stats_;
  bool leave_ = false;
};

void ChatSession::OpenHistory() {
  const Result<std::string> path = ChatHistory::UserPath();
  if (!path.ok()) return;  // no home: nothing to keep it in
  history_.emplace(RealFileSystem(), *path);
  const auto entries = history_->Load();
  if (!entries.ok()) {
    Say(fmt::format("What you type is not kept: {}\n", entries.status().message()));
    history_.reset();
    return;
  }
  for (const std::string& entry : *entries) editor_.Remember(entry);
}

void ChatSession::Remember(const std::string& text) {
  editor_.Remember(text);
  if (!history_.has_value()) return;
  if (const Status status = history_->Append(text); !status.ok()) {
    Say(fmt::format("What you type is not kept: {}\n", status.message()));
    history_.reset();
  }
}

LineEditor::Line ChatSession::ReadMessage() {
  LineEditor::Line message = editor_.Read("> ");
  while (message.end == LineEditor::End::kLine && !IsWholeMessage(message.text)) {
    LineEditor::Line next = editor_.Read(". ");
    message.text += "\n" + next.text;
    message.end = next.end;
  }
  if (message.end == LineEditor::End::kLine) message.text = MessageFrom(message.text);
  return message;
}

void ChatSession::SetSystem(std::string_view text) {
  if (text.empty()) {
    const std::string& system = conversation_.system();
    Say(system.empty() ? "There is no system message.\n" : system + "\n");
    return;
  }
  conversation_.SetSystem(std::string(text));
  Say("The conversation starts over with this system message.\n");
}

bool ChatSession::RunCommand(const std::string& text) {
  if (!text.starts_with('/')) return false;
  const std::string_view all = text;
  const std::string_view name = all.substr(0, all.find_first_of(" \n"));
  std::string_view argument = all.substr(name.size());
  argument.remove_prefix(std::min(argument.find_first_not_of(" \n"), argument.size()));
  if (name == "/exit" || name == "/quit") {
    leave_ = true;
  } else if (name == "/help") {
    Say(kHelp);
  } else if (name == "/reset") {
    conversation_.Reset();
    Say("The conversation is forgotten.\n");
  } else if (name == "/stats") {
    stats_ = !stats_;
    Say(stats_ ? "Figures after each answer: on.\n" : "Figures after each answer: off.\n");
  } else if (name == "/system") {
    SetSystem(argument);
  } else {
    const auto nearest = NearestWord(name, kCommandNames);
    Say(fmt::format("unknown command {}{}; /help lists them\n", name,
                    nearest ? fmt::format(", did you mean {}?", *nearest) : ""));
  }
  return true;
}

void ChatSession::Answer(const std::string& text) {
  InterruptCounter::Reset();
  const auto answer = conversation_.Ask(text);
  std::fputs("\n", stdout);
  std::fflush(stdout);
  if (!answer.ok()) {
    Fail(answer.status());
    if (conversation_.context_tokens() > 0) Say("/reset makes room in the context.\n");
    return;
  }
  if (!stats_ || isatty(STDOUT_FILENO) == 0) return;
  const bool colours = WithColours();
  Say(fmt::format("{}[{} prompt + {} answer tokens, {:.0f} tokens/s, context {} of {}]{}\n",
                  colours ? "\x1b[2m" : "", answer->usage.prompt_tokens,
                  answer->usage.completion_tokens, answer->tokens_per_second,
                  conversation_.context_tokens(), runtime_.engine().max_context_tokens(),
                  colours ? "\x1b[0m" : ""));
}

void ChatSession::Run() {
  while (!leave_) {
    const LineEditor::Line message = ReadMessage();
    if (message.end == LineEditor::End::kEndOfInput) break;
    if (message.end == LineEditor::End::kInterrupted) {
      Say("\nCtrl-D or /exit leaves.\n");
      continue;
    }
    if (message.text.find_first_not_of(" \t\n") == std::string::npos) continue;
    Remember(message.text);
    if (!RunCommand(message.text)) Answer(message.text);
  }
  if (!leave_) Say("\n");
}

}  // namespace

bool IsWholeMessage(const std::string& text) {
  if (text.starts_with(kBlockMark)) {
    return text.size() >= 2 * kBlockMark.size() && text.ends_with(kBlockMark);
  }
  return !text.ends_with('\\');
}

std::string MessageFrom(const std::string& text) {
  std::string_view rest = text;
  if (rest.starts_with(kBlockMark)) {
    rest = rest.substr(kBlockMark.size(), rest.size() - 2 * kBlockMark.size());
    if (rest.starts_with('\n')) rest.remove_prefix(1);
    if (rest.ends_with('\n')) rest.remove_suffix(1);
    return std::string(rest);
  }
  std::string message;
  for (const char c : rest) {
    if (c == '\n' && message.ends_with('\\')) message.pop_back();
    message.push_back(c);
  }
  return message;
}

int RunChat(Runtime& runtime, LineEditor& editor, const TerminalOptions& options) {
  if (!options.raw && runtime.chat_template() == nullptr) {
    return Fail(FailedPreconditionError(
        "the model has no chat template: give one with --chat-template FILE, or complete texts "
        "with --raw"));
  }
  Say(fmt::format("{}: /help lists commands, Ctrl-D leaves.\n", runtime.model_name()));
  ChatSession(runtime, editor, options).Run();
  return 0;
}

}  // namespace tandem
