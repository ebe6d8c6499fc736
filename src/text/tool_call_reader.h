// What: ToolCallReader: follows the tool calls of one format from behind their marker, while they
//   are being written, and says at once when they cannot be ones any more.
// Not here: finding the marker, and what becomes of text that is no call (answer_parser.h).
// Threads: belongs to one thread.
// Invariants: the result does not depend on how the text is cut.
// Cost: linear in the text.
//
// What is a call, beside what ToolFormat shows. White space may stand between all parts.
//
// JSON: an object with "name", a string that is not empty, and "arguments" (Llama 3: "parameters";
// either word is understood, the format's own wins): an object; or a string that holds the text of
// one; missing, null or empty: "{}". Other members are ignored, but a Llama 3 answer without
// <|python_tag|> is plain JSON, so there a call has its parameters and no members but these, "type"
// and "id". A member twice: no call. Hermes calls may lack the closing marker at the end of the
// answer. Both of Mistral's forms are understood, whichever the template shows; a list's calls
// count one by one, as they are complete.
//
// Tags: a name of letters, digits, "_", "-" and ".", then arguments, each once. Bare text becomes
// JSON by the tool's declared types (tool_parameters.h); of Qwen's values one line feed at either
// end is not part. A Qwen call is complete with </function>; models leave out <tool_call> and
// </tool_call>.
//
// Python: a list of calls with literals for their named arguments, each once; complete with the
// closing bracket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tool_format.h"
#include "text/tool_parameters.h"

namespace tandem {

struct ToolCall {
  std::string name;       // not empty
  std::string arguments;  // the text of a JSON object
};

class ToolCallReader {
 public:
  enum class State : uint8_t { kOpen, kDone, kBroken };

  virtual ~ToolCallReader() = default;

  // Begins anew behind `marker`, one of CallMarkers(format), or where there is none (empty).
  virtual void Begin(std::string_view marker) = 0;
  // Takes text while it continues the calls and returns how many bytes that were; the byte behind
  // them is the one that broke it. Pauses behind each call that is complete. Takes nothing when not
  // open.
  size_t Consume(std::string_view text);
  // The answer ends here: done or broken.
  virtual void End() = 0;

  // Done without a call means: well-formed, but none.
  State state() const { return state_; }
  bool has_calls() const { return !calls_.empty(); }
  // Those that have become complete since the last time.
  std::vector<ToolCall> TakeCalls() { return std::exchange(calls_, {}); }

 protected:
  // Whether `c` continues the calls.
  virtual bool Step(char c) = 0;
  void Restart() {
    state_ = State::kOpen;
    calls_.clear();
  }
  void Finish(bool complete) { state_ = complete ? State::kDone : State::kBroken; }
  void Add(std::string name, std::string arguments) {
    calls_.push_back({std::move(name), std::move(arguments)});
  }

 private:
  State state_ = State::kOpen;
  std::vector<ToolCall> calls_;
};

// Null for kNone. `parameters` may be null: nothing is declared.
std::unique_ptr<ToolCallReader> MakeToolCallReader(
    ToolFormat format, std::shared_ptr<const ToolParameters> parameters);

// The readers of each family; MakeToolCallReader chooses.
std::unique_ptr<ToolCallReader> MakeJsonCallReader(ToolFormat format);
std::unique_ptr<ToolCallReader> MakeMistralCallReader();
std::unique_ptr<ToolCallReader> MakeTaggedCallReader(
    ToolFormat format, std::shared_ptr<const ToolParameters> parameters);
std::unique_ptr<ToolCallReader> MakePythonicCallReader();

}  // namespace tandem
