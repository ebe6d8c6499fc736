#include "cli/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <deque>
#include <iostream>
#include <iterator>
#include <optional>
#include <random>
#include <string_view>

#include "base/thread_annotations.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/progress_bar.h"

namespace tandem {
namespace {

// How often a loop that waits for tokens looks for Ctrl-C.
constexpr TimeNs kInterruptPollInterval = 20 * kNsPerMs;

// Runs tasks posted by other threads on the thread that waits. Shared with the posted closures,
// which may outlive the waiting call.
class TaskQueue {
 public:
  void Post(std::function<void()> task) TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.NotifyOne();
  }
  // Runs what has been posted; waits at most `timeout` for the first task.
  void RunFor(TimeNs timeout) TANDEM_EXCLUDES(mutex_) {
    std::deque<std::function<void()>> tasks;
    {
      MutexLock lock(mutex_);
      if (tasks_.empty()) wake_.WaitFor(mutex_, timeout);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

 private:
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ TANDEM_GUARDED_BY(mutex_);
};

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Without the control characters that could make a terminal do things: a model's text is foreign.
// A character is never divided between two calls.
std::string Harmless(std::string_view text) {
  std::string harmless;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // U+0080 to U+009F
    if (c1 || byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t')) {
      harmless += "\xef\xbf\xbd";  // U+FFFD
      if (c1) ++i;
    } else {
      harmless.push_back(text[i]);
    }
  }
  return harmless;
}

void PrintAnswer(const std::string& text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  Print(terminal ? Harmless(text) : text);
}

}  // namespace

Conversation::Conversation(Runtime* runtime, const TerminalOptions& options)
    : runtime_(runtime),
      options_(options),
      seed_(options.seed.has_value() ? *options.seed : std::random_device{}()),
      system_(options.system) {
  Reset();
}

void Conversation::SetSystem(const std::string& system) {
  system_ = system;
  Reset();
}

void Conversation::Reset() {
  messages_ = nlohmann::ordered_json::array();
  if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  context_tokens_ = 0;
}

Result<std::vector<TokenId>> Conversation::PromptTokens(const std::string& text,
                                                        nlohmann::ordered_json* messages) const {
  const Tokenizer& tokenizer = *runtime_->tokenizer();
  if (options_.raw) return tokenizer.Encode(text, {.add_special = true});
  if (runtime_->chat_template() == nullptr) {
    return FailedPreconditionError(
        "the model has no chat template: give one with --chat-template FILE, or complete a text "
        "with "
        "--raw");
  }
  messages->push_back({{"role", "user"}, {"content", text}});
  TANDEM_ASSIGN_OR_RETURN(
      const MarkedText rendered,
      runtime_->chat_template()->RenderMarked(*messages, {.add_generation_prompt = true}));
  return tokenizer.Encode(rendered, {.parse_special = true});
}

Result<Conversation::Answer> Conversation::Ask(const std::string& text) {
  nlohmann::ordered_json messages = messages_;
  TANDEM_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, PromptTokens(text, &messages));
  TANDEM_ASSIGN_OR_RETURN(Answer answer, Generate(std::move(prompt)));
  if (!options_.raw) {
    messages.push_back({{"role", "assistant"}, {"content", answer.text}});
    messages_ = std::move(messages);
  }
  context_tokens_ = answer.usage.prompt_tokens + answer.usage.completion_tokens;
  return answer;
}

Result<Conversation::Answer> Conversation::Generate(std::vector<TokenId> prompt) {
  TextGeneration::Options generation;
  Request& request = generation.request;
  request.prompt = std::move(prompt);
  request.max_output_tokens = options_.max_tokens;
  request.stop_tokens = runtime_->StopTokens();
  const GenerationDefaults& model = runtime_->generation_defaults();
  const auto choose = [](const auto& flag, const auto& recommended, auto fallback) {
    return flag.value_or(recommended.value_or(fallback));
  };
  request.sampling = {
      .temperature = choose(options_.temperature, model.temperature, kTerminalSampling.temperature),
      .top_k = choose(options_.top_k, model.top_k, kTerminalSampling.top_k),
      .top_p = choose(options_.top_p, model.top_p, kTerminalSampling.top_p),
      .seed = seed_};

  Answer answer;
  TimeNs first = 0;
  TimeNs last = 0;
  Status status;
  bool finished = false;
  const auto tasks = std::make_shared<TaskQueue>();
  TANDEM_ASSIGN_OR_RETURN(const std::shared_ptr<TextGeneration> running,
                          TextGeneration::Start(
                              runtime_->engine(), *runtime_->tokenizer(), std::move(generation),
                              [tasks](std::function<void()> task) { tasks->Post(std::move(task)); },
                              [&](const TextOutput& output) {
                                PrintAnswer(output.delta);
                                answer.text += output.delta;
                                answer.usage = output.usage;
                                if (output.new_tokens > 0) {
                                  last = runtime_->clock().Now();
                                  if (first == 0) first = last;
                                }
                                finished = output.finish.has_value();
                                status = output.status;
                              }));
  while (!finished) {
    tasks->RunFor(kInterruptPollInterval);
    if (InterruptCounter::Count() > 0 && !answer.interrupted) {
      answer.interrupted = true;
      running->Cancel();
    }
  }
  TANDEM_RETURN_IF_ERROR(status);
  if (answer.usage.completion_tokens > 1 && last > first) {
    answer.tokens_per_second = (answer.usage.completion_tokens - 1) /
                               (static_cast<double>(last - first) / static_cast<double>(kNsPerS));
  }
  return answer;
}

namespace {

int AnswerOnce(Runtime& runtime, const TerminalOptions& options, const std::string& prompt) {
  Conversation conversation(&runtime, options);
  const auto answer = conversation.Ask(prompt);
  if (!answer.ok()) return Fail(answer.status());
  Print("\n");
  return answer->interrupted ? kExitInterrupted : 0;
}

}  // namespace

int RunTerminal(const Options& options) {
  std::string prompt = options.terminal.prompt;
  const bool chat = prompt.empty() && isatty(STDIN_FILENO) != 0;
  if (prompt.empty() && !chat) {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
    if (prompt.find_first_not_of(" \t\r\n") == std::string::npos) {
      return Fail(InvalidArgumentError("no prompt: give one as argument or on standard input"));
    }
  }
  // Before the model loads: what is typed meanwhile is kept for the first prompt.
  std::optional<LineEditor> editor;
  if (chat) editor.emplace();
  std::unique_ptr<Runtime> runtime;
  {
    ProgressBar bar("packing weights");
    auto created = Runtime::Create(
        options.model, [&bar](int64_t done, int64_t total) { bar.Update(done, total); });
    if (!created.ok()) return Fail(created.status());
    runtime = std::move(*created);
  }
  // From here on: Ctrl-C while loading ends the process.
  const InterruptCounter interrupts(InterruptCounter::Signals::kInterrupt);
  if (isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "{}\n", runtime->memory().ToText());
  }
  if (!chat) return AnswerOnce(*runtime, options.terminal, prompt);
  const int exit_status = RunChat(*runtime, *editor, options.terminal);
  editor.reset();  // the terminal is the shell's again while the model is put away
  return exit_status;
}

}  // namespace tandem
