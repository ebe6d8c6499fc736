#include "text/answer_parser.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

using Kind = AnswerPiece::Kind;

constexpr std::string_view kSpaces = " \n\r\t";

struct ThinkMarkers {
  std::string_view begin;
  std::string_view end;
};
constexpr ThinkMarkers kThinkMarkers[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

bool IsSpace(char c) { return kSpaces.find(c) != std::string_view::npos; }

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

StopMatcher MatcherOf(std::span<const std::string_view> markers) {
  return StopMatcher::Create({markers.begin(), markers.end()}).value();
}

StopMatcher MatcherOf(std::string_view marker) {
  return MatcherOf(std::span(&marker, marker.empty() ? 0 : 1));
}

// Feeds `text` up to the marker of `matcher` and behind it; what passed goes to `out`.
size_t FeedMatcher(StopMatcher& matcher, std::string_view text, std::string* out) {
  const size_t held = matcher.held_bytes();
  *out = matcher.Append(text);
  if (!matcher.stopped()) return text.size();
  return out->size() + matcher.matched().size() - held;
}

}  // namespace

AnswerFormat AnswerFormatOf(std::string_view template_source) {
  const auto has = [template_source](std::string_view word) {
    return template_source.find(word) != std::string_view::npos;
  };
  AnswerFormat format;
  // Where the template only takes the reasoning of earlier answers away, the end is all it names.
  for (const ThinkMarkers& markers : kThinkMarkers) {
    if (format.reasoning || !has(markers.end)) continue;
    format.reasoning = true;
    format.think_begin = markers.begin;
    format.think_end = markers.end;
  }
  format.tools = ToolFormatOf(template_source);
  return format;
}

bool EndsInThought(std::string_view prompt_end, const AnswerFormat& format) {
  return format.reasoning && TrimRight(prompt_end).ends_with(format.think_begin);
}

AnswerParser::AnswerParser(Options options)
    : options_(std::move(options)),
      tools_(options_.tools && options_.format.tools != ToolFormat::kNone),
      think_end_(MatcherOf(options_.format.think_end)),
      call_marker_(MatcherOf(CallMarkers(options_.format.tools))) {
  if (tools_) reader_ = MakeToolCallReader(options_.format.tools, options_.parameters);
  const AnswerFormat& format = options_.format;
  if (format.reasoning) {
    TANDEM_CHECK(!format.think_begin.empty() && !format.think_end.empty());
    if (options_.forced_begin.empty()) {
      thinking_ = EndsInThought(options_.prompt_end, format);
      state_ = State::kBegin;
    }
  }
  Feed(options_.forced_begin);
}

std::vector<AnswerPiece> AnswerParser::Append(std::string_view text) {
  Feed(text);
  return std::exchange(out_, {});
}

std::vector<AnswerPiece> AnswerParser::Flush() {
  if (state_ == State::kBegin) EndBegin();
  if (state_ == State::kReasoning) AddReasoning(think_end_.Flush());
  while (state_ == State::kCall) {
    reader_->End();
    if (reader_->state() == ToolCallReader::State::kDone) {
      EndCall();
    } else {
      FailCall();
    }
  }
  AddContent(call_marker_.Flush());
  if (!call_since_content_) ReleaseSpace();
  return std::exchange(out_, {});
}

void AnswerParser::Feed(std::string_view text) {
  while (!text.empty()) {
    size_t taken = 0;
    switch (state_) {
      case State::kBegin: taken = StepBegin(text); break;
      case State::kReasoning: taken = StepReasoning(text); break;
      case State::kContent: taken = StepContent(text); break;
      case State::kCall: taken = StepCall(text); break;
    }
    text.remove_prefix(taken);
  }
}

size_t AnswerParser::StepBegin(std::string_view text) {
  const std::string& marker = options_.format.think_begin;
  const char c = text.front();
  const size_t matched = held_.size() - std::min(held_.find_first_not_of(kSpaces), held_.size());
  if (matched == 0 && IsSpace(c) && held_.size() < kMaxHeldSpace) {
    held_ += c;
    return 1;
  }
  if (c != marker[matched]) {
    EndBegin();
    return 0;
  }
  held_ += c;
  if (matched + 1 == marker.size()) {
    // The marker again where the prompt had it already adds nothing.
    if (!options_.reasoning) AddReasoning(held_);
    held_.clear();
    state_ = State::kReasoning;
  }
  return 1;
}

void AnswerParser::EndBegin() {
  state_ = thinking_ ? State::kReasoning : State::kContent;
  Feed(std::exchange(held_, {}));
}

size_t AnswerParser::StepReasoning(std::string_view text) {
  std::string passed;
  const size_t taken = FeedMatcher(think_end_, text, &passed);
  AddReasoning(passed);
  if (think_end_.stopped()) {
    if (options_.reasoning) {
      skip_newlines_ = true;
    } else {
      AddReasoning(options_.format.think_end);
    }
    state_ = State::kContent;
  }
  return taken;
}

void AnswerParser::AddReasoning(std::string_view text) {
  if (!options_.reasoning) {
    if (!text.empty()) content_seen_ = true;
    Emit(Kind::kContent, text);
    return;
  }
  const size_t begin = text.find_first_not_of('\n');
  if (begin == std::string_view::npos) {
    if (reasoning_seen_) newlines_held_ += text.size();
    return;
  }
  const size_t end = text.find_last_not_of('\n') + 1;
  if (reasoning_seen_) {
    Emit(Kind::kReasoning, std::string(newlines_held_, '\n'));
    Emit(Kind::kReasoning, text.substr(0, begin));
  }
  Emit(Kind::kReasoning, text.substr(begin, end - begin));
  reasoning_seen_ = true;
  newlines_held_ = text.size() - end;
}

size_t AnswerParser::StepContent(std::string_view text) {
  if (skip_newlines_) {
    if (text.front() == '\n') return 1;
    skip_newlines_ = false;
  }
  const bool llama = options_.format.tools == ToolFormat::kLlama3Json;
  if (tools_ && at_border_) {
    if (IsSpace(text.front()) || (llama && num_calls_ > 0 && text.front() == ';')) {
      AddSpace(text.front());
      return 1;
    }
    at_border_ = false;
    const char bare = BareCallBegin(options_.format.tools);
    if (bare != '\0' && text.front() == bare) {
      BeginCall({});
      return 0;
    }
  }
  if (!tools_) {
    AddContent(text);
    return text.size();
  }
  std::string passed;
  const size_t taken = FeedMatcher(call_marker_, text, &passed);
  AddContent(passed);
  if (call_marker_.stopped()) {
    const std::string marker = call_marker_.matched();
    call_marker_.Flush();
    BeginCall(marker);
  }
  return taken;
}

void AnswerParser::AddContent(std::string_view text) {
  if (text.empty()) return;
  if (!tools_) {
    Emit(Kind::kContent, text);
    return;
  }
  const std::string_view solid = TrimRight(text);
  const std::string_view inner =
      solid.substr(std::min(solid.find_first_not_of(kSpaces), solid.size()));
  for (const char c : solid.substr(0, solid.size() - inner.size())) AddSpace(c);
  if (!inner.empty()) {
    ReleaseSpace();
    Emit(Kind::kContent, inner);
    content_seen_ = true;
    call_since_content_ = false;
  }
  for (const char c : text.substr(solid.size())) AddSpace(c);
}

void AnswerParser::AddSpace(char c) {
  space_held_ += c;
  if (space_held_.size() >= kMaxHeldSpace) ReleaseSpace();
}

void AnswerParser::ReleaseSpace() {
  const std::string space = std::exchange(space_held_, {});
  if (space.empty() || (num_calls_ > 0 && !content_seen_)) return;
  Emit(Kind::kContent, space);
  content_seen_ = true;
}

void AnswerParser::BeginCall(std::string_view marker) {
  state_ = State::kCall;
  held_ = marker;
  marker_size_ = marker.size();
  handed_out_ = false;
  reader_->Begin(marker);
}

size_t AnswerParser::StepCall(std::string_view text) {
  if (held_.size() >= kMaxCallBytes) {
    FailCall();
    return 0;
  }
  const size_t taken = reader_->Consume(text.substr(0, kMaxCallBytes - held_.size()));
  held_ += text.substr(0, taken);
  if (reader_->state() == ToolCallReader::State::kBroken) {
    FailCall();
  } else if (reader_->state() == ToolCallReader::State::kDone) {
    EndCall();
  } else if (reader_->has_calls()) {
    EmitCalls();
  }
  return taken;
}

void AnswerParser::FailCall() {
  const std::string held = std::exchange(held_, {});
  // Text that was taken for a part of this call may have been the next one. Only the last such
  // place is tried, so that no byte is read more than twice.
  size_t again = 0;
  size_t longest = 0;
  for (const std::string_view marker : CallMarkers(options_.format.tools)) {
    const size_t at = held.rfind(marker);
    if (at != std::string::npos) again = std::max(again, at);
    longest = std::max(longest, marker.size());
  }
  // The end of what is held may be the beginning of a marker still, but not its own.
  if (again == 0 && held.size() >= longest) again = held.size() - longest + 1;
  again = std::min(std::max(again, marker_size_), held.size());
  state_ = State::kContent;
  at_border_ = false;
  AddContent(std::string_view(held).substr(0, again));
  Feed(std::string_view(held).substr(again));
}

void AnswerParser::EmitCalls() {
  held_.clear();
  marker_size_ = 0;
  handed_out_ = true;
  for (const ToolCall& call : reader_->TakeCalls()) {
    Emit(Kind::kToolName, call.name, num_calls_);
    std::string_view rest = call.arguments;
    while (!rest.empty()) {
      size_t size = std::min(rest.size(), kMaxArgumentBytes);
      while (size < rest.size() && size > 1 && (rest[size] & 0xC0) == 0x80) --size;
      out_.push_back({Kind::kToolArguments, std::string(rest.substr(0, size)), num_calls_});
      rest.remove_prefix(size);
    }
    ++num_calls_;
  }
  at_border_ = true;
  call_since_content_ = true;
}

void AnswerParser::EndCall() {
  if (reader_->has_calls()) EmitCalls();
  state_ = State::kContent;
  // What closes calls that have been handed out is theirs.
  const std::string held = std::exchange(held_, {});
  if (!handed_out_) AddContent(held);
}

void AnswerParser::Emit(Kind kind, std::string_view text, int32_t call) {
  if (text.empty()) return;
  if (!out_.empty() && out_.back().kind == kind && out_.back().call == call) {
    out_.back().text += text;
  } else {
    out_.push_back({kind, std::string(text), call});
  }
}

}  // namespace tandem
