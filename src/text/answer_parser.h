// What: AnswerParser: splits what a model writes into content, reasoning and tool calls, while it
//   is being written. AnswerFormatOf: how the model of a chat template writes these.
// Not here: the formats of calls (tool_format.h, tool_call_reader.h); whether a called tool exists,
//   ids of calls, the API's shapes (server/); holding a model to the format (grammar/).
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
// Everything that looks like a call and is none (another shape, too long or too deep, cut off) is
// content with its markers. Where a call needs no marker it begins at the beginning of the content
// or behind another call. White space between calls, and between a call and an end of the answer,
// is no content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/stop_strings.h"
#include "text/tool_call_reader.h"
#include "text/tool_format.h"

namespace tandem {

struct AnswerFormat {
  ToolFormat tools = ToolFormat::kNone;
  // The model thinks between think_begin and think_end, neither of which is empty then.
  bool reasoning = false;
  std::string think_begin, think_end;
};

// What the template's source says about the answers of its model.
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
    // The request's tools, for formats whose arguments are bare text. Null: nothing is declared.
    std::shared_ptr<const ToolParameters> parameters = {};
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
  enum class State : uint8_t { kBegin, kReasoning, kContent, kCall };

  void Feed(std::string_view text);
  // Each takes a part of `text`, at least a byte or a change of state, and returns its size.
  size_t StepBegin(std::string_view text);
  size_t StepReasoning(std::string_view text);
  size_t StepContent(std::string_view text);
  size_t StepCall(std::string_view text);

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
  // Hands out the calls that are complete; what is held is theirs.
  void EmitCalls();
  // The reader is done.
  void EndCall();
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

  // The calls under way.
  std::unique_ptr<ToolCallReader> reader_;  // null without tools
  size_t marker_size_ = 0;                  // of the marker with which held_ begins
  bool handed_out_ = false;                 // some of them

  int32_t num_calls_ = 0;
};

}  // namespace tandem
