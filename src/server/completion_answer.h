// What: CompletionAnswer: the answer of /v1/completions: the text of every choice as the model has
//   written it, and its log probabilities side by side; with echo the prompt before it.
// Not here: any meaning of the text. Included by the server's .cc files only.
// Threads: belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_body.h"
#include "server/token_json.h"
#include "text/tokenizer.h"

namespace tandem {

// A prompt as its echo shows it.
struct CompletionPrompt {
  std::vector<TokenId> tokens;
  std::string text;                    // with echo
  std::vector<TextToken> text_tokens;  // with echo and logprobs; their numbers come with the answer
};

struct CompletionAnswerOptions {
  AnswerIdentity identity;
  UsageMode usage_mode = UsageMode::kNone;
  bool stream = false;
  size_t samples = 1;  // of each prompt: choice i is of prompt i / samples
  std::vector<CompletionPrompt> prompts;
  bool echo = false;
  bool discard_output = false;  // max_tokens 0: the one token made is not part of the answer
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool return_token_ids = false;
};

class CompletionAnswer final : public AnswerBody {
 public:
  CompletionAnswer(std::shared_ptr<const Tokenizer> tokenizer, CompletionAnswerOptions options);

  std::string Append(size_t choice, const TextOutput& output, const Usage& so_far) override;
  std::string UsageEvent(const FinalUsage& usage) const override {
    return frame_.UsageChunk(usage);
  }
  std::string Whole(const FinalUsage& usage) override;

 private:
  struct Choice {
    bool begun = false;  // tokens have come: what is known of the prompt is complete
    std::vector<TokenLogprob> prompt_logprobs;
    int64_t echo_chars = 0;
    // Of a whole answer everything, of a stream what no chunk has carried yet.
    std::string text;
    CompletionLogprobs logprobs;
    Json token_ids = Json::array();
    bool prompt_ids_sent = false;
    std::string finish;
    StopReason stop_reason;
  };

  void AppendEcho(Choice& choice, const CompletionPrompt& prompt);
  // Takes what the choice holds.
  Json ChoiceJson(size_t index);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const CompletionAnswerOptions options_;
  const AnswerFrame frame_;
  std::vector<Choice> choices_;
};

}  // namespace tandem
