// What: AnswerParser: splits what a model writes into content, reasoning and tool calls, while it
//   is being written. AnswerFormatOf: how the model of a chat template writes these.
// Not here: whether a called tool exists, ids of calls, the API's shapes (server/); holding a model
//   to the format (grammar/).
// Threads: a parser belongs to one thread; the functions are pure.
// Invariants: the joined text of each kind and the order of the kinds do not depend on how the
//   answer is cut. Whole characters in, whole characters out. Without reasoning and tools, and
//   for an answer that has none, the content is the answer, byte by byte.
// Cost: linear in the answer whatever it says. Content waits only while it may be the beginning of
//   a marker, white space also for what follows it (kMaxHeldSpace). A call waits for its end, at
//   most kMaxCallBytes.
//
// Reasoning is what stands between think_begin and think_end at the beginning of the answer, or up
// to think_end where the prompt ends with think_begin. The newlines at both its ends and behind
// think_end belong to neither part, as the templates of these models split it. Where think_end
// never comes, everything is reasoning. Calls in it are thoughts. With Options::reasoning off it is
// content, tags included, and its calls are no calls either.
//
// A call is an object with "name", a string that is not empty, and "arguments" (Llama 3:
// "parameters"; either word is understood, the format's own wins): an object; or a string that
// holds the text of one; missing, null or empty: "{}". Hermes ignores other members. A Llama 3
// answer without <|python_tag|> is plain JSON, so there a call has its parameters and no members
// but these, "type" and "id", or it is content. A member twice: no call. Everything that looks like
// a call and is none (broken JSON, another shape, too long or too deep, cut off) is content with
// its markers; Hermes calls may lack the closing marker at the end of the answer. White space
// between calls, and between a call and an end of the answer, is no content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_object_scanner.h"
#include "text/stop_strings.h"

namespace tandem {

enum class ToolFormat : uint8_t {
  kNone,
  // <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>, one or several, with or without
  // content around them: Qwen2.5, Qwen3, Hermes.
  kHermes,
  // {"name": "f", "parameters": {...}}, optionally behind <|python_tag|>, several separated by ";":
  // Llama 3.1 and later. Content may only come first where <|python_tag|> ends it.
  kLlama3Json,
};

struct AnswerFormat {
  ToolFormat tools = ToolFormat::kNone;
  // The model thinks between think_begin and think_end, neither of which is empty then.
  bool reasoning = false;
  std::string think_begin, think_end;
};

// What the template's source says about the answers of its model; calls in a format that is not
// understood here (tags for each argument, channels, ...) are kNone.
AnswerFormat AnswerFormatOf(std::string_view template_source);

// The prompt has begun the model's reasoning: it ends with think_begin and white space.
bool EndsInThought(std::string_view prompt_end, const AnswerFormat& format);

struct AnswerPiece {
  enum class Kind : uint8_t { kContent, kReasoning, kToolName, kToolArguments };
  Kind kind = Kind::kContent;
  // Never empty. The name comes in one piece, unescaped. The arguments are the JSON object as the
  // model wrote it, in pieces of at most AnswerParser::kMaxArgumentBytes.
  std::string text;
  // Which call of the answer, from 0; -1 for content and reasoning.
  int32_t call = -1;

  friend bool operator==(const AnswerPiece&, const AnswerPiece&) = default;
};

class AnswerParser {
 public:
  // Markers included. Far beyond what a model writes in one call.
  static constexpr size_t kMaxCallBytes = 1 << 20;
  // A longer run of white space is content, wherever it stands.
  static constexpr size_t kMaxHeldSpace = 64;
  static constexpr size_t kMaxArgumentBytes = 256;

  struct Options {
    AnswerFormat format;
    // The request has tools and tool_choice allows them.
    bool tools = false;
    // Separate reasoning from content.
    bool reasoning = false;
    // The last bytes of the rendered prompt (64 are plenty): where it ends with think_begin and
    // white space, the answer begins as reasoning.
    std::string prompt_end;
    // Text of the answer that was put into the prompt (ForcedCallBegin): parsed first, as if the
    // model had written it. The answer then does not begin as reasoning.
    std::string forced_begin;
  };

  // Requires format.reasoning => think_begin and think_end are not empty and UTF-8.
  explicit AnswerParser(Options options);

  // The pieces that are certain now.
  std::vector<AnswerPiece> Append(std::string_view text);
  // At the end of the answer: the rest. Requires that nothing is appended afterwards.
  std::vector<AnswerPiece> Flush();

  // Calls that came out complete.
  int32_t num_calls() const { return num_calls_; }

 private:
  enum class State : uint8_t { kBegin, kReasoning, kContent, kCall, kCallEnd };

  void Feed(std::string_view text);
  // Each takes a part of `text`, at least a byte or a change of state, and returns its size.
  size_t StepBegin(std::string_view text);
  size_t StepReasoning(std::string_view text);
  size_t StepContent(std::string_view text);
  size_t StepCall(std::string_view text);
  size_t StepCallEnd(std::string_view text);

  // The answer does not begin with think_begin, or ends in it.
  void EndBegin();
  void AddReasoning(std::string_view text);
  void AddContent(std::string_view text);
  void AddSpace(char c);
  // White space that turned out to stand before content.
  void ReleaseSpace();
  void BeginCall(std::string_view marker);
  // What is held is no call.
  void FailCall();
  void FinishCall();
  bool KeyMayBelongToCall(std::string_view key) const;
  // Of the complete object in held_; nothing for another shape.
  struct Call {
    std::string name;
    std::string arguments;
  };
  std::optional<Call> ReadCall() const;
  // The value of that member; empty: there is none. False when it occurs twice.
  bool FindMember(std::string_view key, std::string_view* value) const;
  void Emit(AnswerPiece::Kind kind, std::string_view text, int32_t call = -1);

  const Options options_;
  const bool tools_;
  // The prompt ended with think_begin.
  bool thinking_ = false;
  StopMatcher think_end_;
  StopMatcher call_marker_;

  State state_ = State::kContent;
  std::vector<AnswerPiece> out_;
  // kBegin: the answer so far. Calls: their text from the marker on.
  std::string held_;

  // Reasoning.
  bool reasoning_seen_ = false;
  size_t newlines_held_ = 0;

  // Content.
  bool skip_newlines_ = false;
  // Only white space since the beginning of the content or the last call.
  bool at_border_ = true;
  bool content_seen_ = false;
  bool call_since_content_ = false;
  std::string space_held_;

  // The call under way.
  bool marked_ = false;
  std::optional<size_t> object_begin_;  // in held_
  JsonObjectScanner object_;
  size_t closing_matched_ = 0;

  int32_t num_calls_ = 0;
};

// The beginning of an answer that calls `name` (or, with no name, any tool) in this format, up to
// where the model goes on with the arguments (or the name); empty when the format has none. It does
// not end with the blank before the arguments: models write that as one token with what follows.
std::string ForcedCallBegin(ToolFormat format, std::optional<std::string_view> name);

}  // namespace tandem
