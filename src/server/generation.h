// What: TextGeneration: one engine request seen as text: tokens in, whole characters out, stop
//   strings cut exactly.
// Not here: HTTP and JSON (answer.h), prompts (the caller tokenises), sampling and
//   scheduling (the engine).
// Threads: Start and Cancel from any thread. Outputs are delivered where `post` runs them, in
//   order; nothing but the copying of tokens happens on the engine's thread.
// Invariants: the concatenated text and tokens, the usage and the finish do not depend on how the
//   engine groups tokens into outputs. Deltas are valid UTF-8. Nothing of a stop string (unless
//   asked for), and nothing after it, is delivered. Exactly one output has `finish` set, and it is
//   the last.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/engine_client.h"
#include "core/request.h"
#include "text/answer_parser.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace tandem {

// Characters of a valid UTF-8 text.
int64_t CountChars(std::string_view text);

// What a client is billed for.
struct Usage {
  int32_t prompt_tokens = 0;
  // Tokens the answer was made from: those that form a stop string count, those the engine made
  // after it and the end-of-turn token do not.
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;     // of the prompt's: found in the prefix cache
  int32_t reasoning_tokens = 0;  // of the answer's, with TextOptions::reasoning

  bool operator==(const Usage&) const = default;
};

// One token of the answer and what of the text is its own.
struct TextToken {
  TokenId token;
  bool at_start = false;  // the first with bytes: some vocabularies take a blank off it
  bool hidden = false;    // a control token, which has no text
  // Some of its bytes are in the text. Not those whose text a stop string cut away; of one that was
  // cut in its middle the text has a part.
  bool in_text = true;
  int64_t text_begin = 0;  // where its text begins, in characters; inside one: where that begins
  // Itself, then the likeliest tokens; empty when none were asked for.
  std::vector<TokenLogprob> logprobs;
};

// The stop string or the token of the request's own list that ended an answer; neither where
// something else did.
using StopReason = std::variant<std::monostate, std::string, TokenId>;

struct TextOutput {
  std::string delta;       // may be empty: a character or a possible stop string is still open
  int32_t new_tokens = 0;  // counted in usage by this output
  // With TextOptions::report_tokens: tokens in their order, each as soon as its text begins to be
  // delivered, the rest at the end.
  std::vector<TextToken> tokens;
  // As RequestOutput's.
  std::vector<TokenLogprob> prompt_logprobs;
  std::optional<FinishReason> finish;
  StopReason stop_reason;  // with kStop
  Status status;           // not ok only with kFailed
  Usage usage;             // so far
  RequestTimes times;
  int32_t recomputed_tokens = 0;  // so far
  std::optional<DeadlineRefusal> refusal;
};

// The tags around what a model thinks, as tokens.
struct ReasoningTokens {
  std::optional<TokenId> begin;
  TokenId end;
  bool begun = false;  // by the prompt
};

struct TextOptions {
  std::vector<std::string> stop;
  bool include_stop = false;  // the stop string that matched is the end of the text
  bool hide_special = true;   // control tokens are not text
  // These are text although they are control tokens.
  std::vector<TokenId> shown_special;
  // Of the request's stop tokens those that are named as the reason.
  std::vector<TokenId> named_stop_tokens;
  // The text of so many tokens is not searched for stop strings, and no call ends it.
  int32_t min_tokens = 0;
  // The answer ends with the token that completes its first tool call, as this parser finds it.
  std::optional<AnswerParser::Options> one_call;
  // Entries in RequestOutput::logprobs for each token; 0: none.
  int32_t logprobs_per_token = 0;
  bool report_tokens = false;
  // Reasoning is counted: from the tag that begins the answer, or ended the prompt, to the closing
  // one, tags included.
  std::optional<ReasoningTokens> reasoning;
};

// The joining itself, without engine or thread: the outputs of one request in order, to text.
// Threads: belongs to one thread.
class TextAssembler {
 public:
  // `tokenizer` must outlive this object. Errors: those of StopMatcher::Create.
  static Result<TextAssembler> Create(const Tokenizer& tokenizer, TextOptions options);

  // Requires !finished(). An output whose tokens complete a stop string, or the only call, is the
  // last: finish is kStop, whatever the engine said.
  TextOutput Append(const RequestOutput& output);
  bool finished() const { return finished_; }

 private:
  struct Waiting {
    TextToken token;
    int64_t begin_bytes = 0;
  };

  TextAssembler(const Tokenizer& tokenizer, TextOptions options, StopMatcher stop)
      : tokenizer_(&tokenizer),
        options_(std::move(options)),
        detokenizer_(tokenizer),
        stop_(std::move(stop)) {
    if (options_.reasoning) {
      thinking_ = options_.reasoning->begun ? Thinking::kInside : Thinking::kAtBegin;
    }
    if (options_.one_call) calls_ = std::make_unique<AnswerParser>(*options_.one_call);
  }
  // The text is over, whatever the engine still makes.
  bool cut() const { return stop_.stopped() || called_; }
  // The text that the token completes, as far as no stop string can need it.
  std::string AppendToken(TokenId token, std::span<const TokenLogprob> logprobs);
  void CountReasoning(TokenId token);
  // Looks for the end of the only call in what a token has added.
  void FindCall(std::string_view piece);
  StopReason ReasonOf(const RequestOutput& output) const;
  void Report(TokenId token, bool hidden, std::span<const TokenLogprob> logprobs);
  std::string AppendEnd();
  // Hands tokens over whose text has begun to come out; at the end all of them.
  void Release(TextOutput& text);

  const Tokenizer* tokenizer_;
  TextOptions options_;
  IncrementalDetokenizer detokenizer_;
  StopMatcher stop_;
  std::unique_ptr<AnswerParser> calls_;  // null: any number of calls
  bool called_ = false;
  Usage usage_;
  enum class Thinking : uint8_t { kAtBegin, kInside, kOver };
  Thinking thinking_ = Thinking::kOver;
  bool finished_ = false;
  bool at_start_ = true;
  // Of the text before it goes through the matcher, and of what came out.
  int64_t made_bytes_ = 0;
  int64_t made_chars_ = 0;
  int64_t delivered_bytes_ = 0;
  std::deque<Waiting> waiting_;
};

// Learns what the engine makes of requests. Called on the engine's thread, so it must not block.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  // A prompt has been processed: its first token, or its end, is there.
  virtual void OnPrompt(int32_t prompt_tokens, int32_t cached_tokens) = 0;
  // A request has ended. One that was ended because its text was complete, such as by a stop
  // string, counts as kStop.
  virtual void OnEnd(FinishReason reason) = 0;
};

class TextGeneration {
 public:
  // Runs a task soon, in the order of posting and never two at once, on a thread that is not the
  // engine's. A task may be dropped when nobody listens any more.
  using Post = std::function<void(std::function<void()>)>;
  using Deliver = std::function<void(TextOutput)>;

  struct Options {
    Request request;
    TextOptions text;
    std::shared_ptr<GenerationObserver> observer;  // may be null
  };

  // Submits `options.request`. `deliver` runs inside posted tasks, possibly before Start returns.
  // `engine` must outlive every posted task, `tokenizer` too. Errors: those of EngineClient::Submit
  // and StopMatcher::Create; nothing is delivered then.
  static Result<std::shared_ptr<TextGeneration>> Start(EngineClient& engine,
                                                       const Tokenizer& tokenizer, Options options,
                                                       Post post, Deliver deliver);

  // Ends the generation: a last output with kCancelled follows, unless another has been made
  // already.
  void Cancel();

  RequestId id() const { return id_; }

 private:
  struct Stream;
  class Sink;
  TextGeneration(EngineClient& engine, RequestId id) : engine_(engine), id_(id) {}

  EngineClient& engine_;
  const RequestId id_;
};

}  // namespace tandem
