#include "text/answer_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

using Kind = AnswerPiece::Kind;

constexpr std::string_view kHermesBegin = "<tool_call>";
constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kLlamaBegin = "<|python_tag|>";
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

std::string_view Trim(std::string_view text) {
  text = TrimRight(text);
  return text.substr(std::min(text.find_first_not_of(kSpaces), text.size()));
}

StopMatcher MatcherOf(std::string_view marker) {
  std::vector<std::string> strings;
  if (!marker.empty()) strings.emplace_back(marker);
  return StopMatcher::Create(std::move(strings)).value();
}

std::string_view MarkerOf(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes: return kHermesBegin;
    case ToolFormat::kLlama3Json: return kLlamaBegin;
    case ToolFormat::kNone: break;
  }
  return {};
}

std::string_view ArgumentsKeyOf(ToolFormat format) {
  return format == ToolFormat::kHermes ? "arguments" : "parameters";
}

// Feeds `text` up to the marker of `matcher` and behind it; what passed goes to `out`.
size_t FeedMatcher(StopMatcher& matcher, std::string_view text, std::string* out) {
  const size_t held = matcher.held_bytes();
  *out = matcher.Append(text);
  if (!matcher.stopped()) return text.size();
  return out->size() + matcher.matched().size() - held;
}

// The text of the JSON string `quoted`; nothing when it has escapes that mean no character.
std::optional<std::string> Unquote(std::string_view quoted) {
  if (quoted.empty() || quoted.front() != '"') return std::nullopt;
  const auto value = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

bool IsJsonObject(std::string_view text) {
  JsonObjectScanner scanner;
  size_t consumed = 0;
  while (scanner.state() == JsonObjectScanner::State::kOpen && consumed < text.size()) {
    consumed += scanner.Consume(text.substr(consumed));
  }
  return scanner.state() == JsonObjectScanner::State::kDone && consumed == text.size();
}

// The arguments as the text of an object, from a member's value (empty: no such member).
std::optional<std::string> ArgumentsOf(std::string_view value) {
  if (value.empty() || value == "null") return "{}";
  if (value.front() == '{') return std::string(value);
  const std::optional<std::string> text = Unquote(value);
  if (!text) return std::nullopt;
  const std::string_view inner = Trim(*text);
  if (inner.empty()) return "{}";
  if (!IsJsonObject(inner)) return std::nullopt;
  return std::string(inner);
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
  const bool name = has("{\"name\":") || has("{\\\"name\\\":");
  const bool other = has("<function=") || has("<arg_key>") || has("<tool_calls>");
  if (has(kHermesBegin) && has(kHermesEnd) && has("arguments\"") && !other) {
    format.tools = ToolFormat::kHermes;
  } else if (has("<|start_header_id|>") && name && has("\"parameters\":")) {
    format.tools = ToolFormat::kLlama3Json;
  }
  return format;
}

bool EndsInThought(std::string_view prompt_end, const AnswerFormat& format) {
  return format.reasoning && TrimRight(prompt_end).ends_with(format.think_begin);
}

AnswerParser::AnswerParser(Options options)
    : options_(std::move(options)),
      tools_(options_.tools && options_.format.tools != ToolFormat::kNone),
      think_end_(MatcherOf(options_.format.think_end)),
      call_marker_(MatcherOf(MarkerOf(options_.format.tools))) {
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
  while (state_ == State::kCall || state_ == State::kCallEnd) {
    if (state_ == State::kCall) {
      FailCall();
    } else {
      FinishCall();
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
      case State::kCallEnd: taken = StepCallEnd(text); break;
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
    if (llama && text.front() == '{') {
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
  marked_ = !marker.empty();
  object_begin_.reset();
  object_ = JsonObjectScanner();
  closing_matched_ = 0;
}

size_t AnswerParser::StepCall(std::string_view text) {
  if (held_.size() >= kMaxCallBytes) {
    FailCall();
    return 0;
  }
  if (!object_begin_) {
    if (IsSpace(text.front())) {
      held_ += text.front();
      return 1;
    }
    object_begin_ = held_.size();
  }
  const size_t taken = object_.Consume(text.substr(0, kMaxCallBytes - held_.size()));
  held_ += text.substr(0, taken);
  switch (object_.state()) {
    case JsonObjectScanner::State::kBroken: FailCall(); break;
    case JsonObjectScanner::State::kDone:
      state_ = State::kCallEnd;
      if (options_.format.tools == ToolFormat::kLlama3Json) FinishCall();
      break;
    case JsonObjectScanner::State::kOpen:
      if (!object_.members().empty()) {
        const JsonObjectScanner::Member& last = object_.members().back();
        if (last.key_end == 0 || last.value_begin != 0) break;
        const auto key = std::string_view(held_).substr(*object_begin_ + last.key_begin,
                                                        last.key_end - last.key_begin);
        if (!KeyMayBelongToCall(key)) FailCall();
      }
      break;
  }
  return taken;
}

bool AnswerParser::KeyMayBelongToCall(std::string_view key) const {
  if (marked_) return true;
  static constexpr std::string_view kKeys[] = {"name", "parameters", "arguments", "type", "id"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

size_t AnswerParser::StepCallEnd(std::string_view text) {
  const char c = text.front();
  const bool space = closing_matched_ == 0 && IsSpace(c);
  if (held_.size() >= kMaxCallBytes || (!space && c != kHermesEnd[closing_matched_])) {
    FailCall();
    return 0;
  }
  held_ += c;
  if (!space && ++closing_matched_ == kHermesEnd.size()) FinishCall();
  return 1;
}

void AnswerParser::FailCall() {
  const std::string held = std::exchange(held_, {});
  // Text that was taken for a string of this call may have been the next one. Only the last such
  // place is tried, so that no byte is read more than twice.
  const std::string_view marker = MarkerOf(options_.format.tools);
  size_t again = held.rfind(marker);
  // The end of what is held may be the beginning of a marker still.
  if (again == std::string::npos || again == 0) {
    again = held.size() < marker.size() ? 0 : held.size() - marker.size() + 1;
  }
  state_ = State::kContent;
  AddContent(std::string_view(held).substr(0, again));
  Feed(std::string_view(held).substr(again));
}

void AnswerParser::FinishCall() {
  const std::optional<Call> call = ReadCall();
  const std::string held = std::exchange(held_, {});
  state_ = State::kContent;
  if (!call) {
    AddContent(held);
    return;
  }
  Emit(Kind::kToolName, call->name, num_calls_);
  std::string_view rest = call->arguments;
  while (!rest.empty()) {
    size_t size = std::min(rest.size(), kMaxArgumentBytes);
    while (size < rest.size() && size > 1 && (rest[size] & 0xC0) == 0x80) --size;
    out_.push_back({Kind::kToolArguments, std::string(rest.substr(0, size)), num_calls_});
    rest.remove_prefix(size);
  }
  ++num_calls_;
  at_border_ = true;
  call_since_content_ = true;
}

bool AnswerParser::FindMember(std::string_view key, std::string_view* value) const {
  const std::string_view object = std::string_view(held_).substr(*object_begin_);
  *value = {};
  for (const JsonObjectScanner::Member& m : object_.members()) {
    if (object.substr(m.key_begin, m.key_end - m.key_begin) != key) continue;
    if (!value->empty()) return false;
    *value = object.substr(m.value_begin, m.value_end - m.value_begin);
  }
  return true;
}

std::optional<AnswerParser::Call> AnswerParser::ReadCall() const {
  const ToolFormat format = options_.format.tools;
  std::string_view name;
  std::string_view own;
  std::string_view other;
  const bool llama = format == ToolFormat::kLlama3Json;
  if (!FindMember("name", &name) || !FindMember(ArgumentsKeyOf(format), &own) ||
      !FindMember(llama ? "arguments" : "parameters", &other)) {
    return std::nullopt;
  }
  if (own.empty()) own = other;
  if (!marked_ && own.empty()) return std::nullopt;
  std::optional<std::string> called = Unquote(name);
  if (!called || called->empty()) return std::nullopt;
  std::optional<std::string> arguments = ArgumentsOf(own);
  if (!arguments) return std::nullopt;
  return Call{std::move(*called), std::move(*arguments)};
}

void AnswerParser::Emit(Kind kind, std::string_view text, int32_t call) {
  if (text.empty()) return;
  if (!out_.empty() && out_.back().kind == kind && out_.back().call == call) {
    out_.back().text += text;
  } else {
    out_.push_back({kind, std::string(text), call});
  }
}

std::string ForcedCallBegin(ToolFormat format, std::optional<std::string_view> name) {
  if (format == ToolFormat::kNone) return {};
  std::string begin = format == ToolFormat::kHermes ? "<tool_call>\n{\"name\": " : "{\"name\": ";
  if (!name) return begin + '"';
  using nlohmann::json;
  begin += json(*name).dump(-1, ' ', false, json::error_handler_t::replace);
  begin += ", \"" + std::string(ArgumentsKeyOf(format)) + "\":";
  return begin;
}

}  // namespace tandem
