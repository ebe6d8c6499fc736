// What: Conversation: messages with a model in the terminal; an answer streams to stdout while it
//   is made.
// Not here: the HTTP API; flags (options.h).
// Threads: one; answers come from the engine through a queue.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "cli/options.h"
#include "cli/runtime.h"
#include "server/generation.h"

namespace tandem {

class Conversation {
 public:
  Conversation(Runtime* runtime, const TerminalOptions& options);

  // Asks `text` and prints the answer as it comes. An answer that Ctrl-C stopped stays in the
  // conversation as far as it came. On an error the conversation is as before.
  struct Answer {
    std::string text;
    bool interrupted = false;
    Usage usage;
    double tokens_per_second = 0;  // after the first token; 0 with fewer than two
  };
  Result<Answer> Ask(const std::string& text);

  void SetSystem(const std::string& system);
  void Reset();
  const std::string& system() const { return system_; }
  int32_t context_tokens() const { return context_tokens_; }

 private:
  Result<std::vector<TokenId>> PromptTokens(const std::string& text,
                                            nlohmann::ordered_json* messages) const;
  Result<Answer> Generate(std::vector<TokenId> prompt);

  Runtime* const runtime_;
  const TerminalOptions options_;
  const uint64_t seed_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::string system_;
  int32_t context_tokens_ = 0;
};

}  // namespace tandem
