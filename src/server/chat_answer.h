// What: ChatAnswer: the answer of /v1/chat/completions: content, reasoning, tool calls and log
//   probabilities of every choice.
// Not here: finding these in the text (text/answer_parser.h). Included by the server's .cc files
//   only.
// Threads: belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_body.h"
#include "text/answer_parser.h"
#include "text/tokenizer.h"

namespace tandem {

struct ChatAnswerOptions {
  AnswerIdentity identity;
  UsageMode usage_mode = UsageMode::kNone;
  bool stream = false;
  size_t choices = 1;
  AnswerParser::Options parser;
  bool include_reasoning = true;    // else it is dropped
  bool parallel_tool_calls = true;  // else calls after the first are dropped
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool return_token_ids = false;
  std::vector<TokenId> prompt;  // with return_token_ids
  std::string call_id_prefix;   // ids of tool calls: this and their number
};

class ChatAnswer final : public AnswerBody {
 public:
  ChatAnswer(std::shared_ptr<const Tokenizer> tokenizer, ChatAnswerOptions options);

  std::string Append(size_t choice, const TextOutput& output, const Usage& so_far) override;
  std::string UsageEvent(const FinalUsage& usage) const override {
    return frame_.UsageChunk(usage);
  }
  std::string Whole(const FinalUsage& usage) override;

 private:
  struct Choice {
    explicit Choice(const AnswerParser::Options& options) : parser(options) {}
    AnswerParser parser;
    bool begun = false;  // the role has been sent
    // Of a whole answer everything, of a stream what no chunk has carried yet.
    Json logprobs = Json::array();
    Json token_ids = Json::array();
    // Of a whole answer.
    std::string content;
    std::string reasoning;
    Json tool_calls = Json::array();
    std::string finish;
    StopReason stop_reason;
  };

  bool Wanted(const AnswerPiece& piece) const;
  std::string CallId(size_t choice, int32_t call) const;
  Json DeltaOf(size_t choice, const AnswerPiece& piece) const;
  void Fold(size_t index, const AnswerPiece& piece);
  std::string Chunk(size_t index, Json delta, bool last, const Usage& so_far);
  Json PromptIds() const;
  // Adds what is reported of the choice's tokens, and forgets it.
  void AddTokens(Choice& choice, Json& out) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ChatAnswerOptions options_;
  const AnswerFrame frame_;
  std::vector<Choice> choices_;
  bool prompt_sent_ = false;
};

}  // namespace tandem
