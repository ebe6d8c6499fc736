// What: TextGeneration: one engine request seen as text: tokens in, whole characters out, stop
//   strings cut exactly.
// Not here: HTTP and JSON (chat_completion.h), prompts (the caller tokenises), sampling and
//   scheduling (the engine).
// Threads: Start and Cancel from any thread. Outputs are delivered where `post` runs them, in
//   order; nothing but the copying of tokens happens on the engine's thread.
// Invariants: the concatenated text, the usage and the finish do not depend on how the engine
//   groups tokens into outputs. Deltas are valid UTF-8. Nothing of a stop string, and nothing after
//   it, is delivered. Exactly one output has `finish` set, and it is the last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/engine_client.h"
#include "core/request.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace tandem {

// What a client is billed for.
struct Usage {
  int32_t prompt_tokens = 0;
  // Tokens the answer was made from: those that form a stop string count, those the engine made
  // after it and the end-of-turn token do not.
  int32_t completion_tokens = 0;

  bool operator==(const Usage&) const = default;
};

struct TextOutput {
  std::string delta;       // may be empty: a character or a possible stop string is still open
  int32_t new_tokens = 0;  // counted in usage by this output
  std::optional<FinishReason> finish;
  Status status;  // not ok only with kFailed
  Usage usage;    // so far
  RequestTimes times;
};

// The joining itself, without engine or thread: the outputs of one request in order, to text.
// Threads: belongs to one thread.
class TextAssembler {
 public:
  // `tokenizer` must outlive this object.
  TextAssembler(const Tokenizer& tokenizer, StopMatcher stop)
      : detokenizer_(tokenizer), stop_(std::move(stop)) {}

  // Requires !finished(). An output whose tokens complete a stop string is the last: finish is
  // kStop, whatever the engine said.
  TextOutput Append(const RequestOutput& output);
  bool finished() const { return finished_; }

 private:
  IncrementalDetokenizer detokenizer_;
  StopMatcher stop_;
  Usage usage_;
  bool finished_ = false;
};

class TextGeneration {
 public:
  // Runs a task soon, in the order of posting and never two at once, on a thread that is not the
  // engine's. A task may be dropped when nobody listens any more.
  using Post = std::function<void(std::function<void()>)>;
  using Deliver = std::function<void(TextOutput)>;

  struct Options {
    Request request;
    std::vector<std::string> stop;
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
