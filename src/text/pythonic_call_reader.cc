// Calls as a Python list of them: Llama with templates that ask for it, LFM2.
#include <array>
#include <set>

#include "text/call_scanning.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 1> kEndTag = {"<|tool_call_end|>"};

bool IsNameBegin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class PythonicCallReader final : public ToolCallReader {
 public:
  void Begin(std::string_view marker) override {
    Restart();
    bare_ = marker.empty();
    phase_ = Phase::kList;
    found_.clear();
    name_.clear();
    BeginArguments();
    tag_ = TagMatcher();
  }
  void End() override { Finish(phase_ == Phase::kClose); }

 private:
  enum class Phase : uint8_t {
    kList,
    kCall,
    kName,
    kKeyOrEnd,
    kKey,
    kEquals,
    kValue,
    kAfterCall,
    kClose
  };

  void BeginArguments() {
    keys_.clear();
    key_.clear();
    arguments_ = "{";
    value_.clear();
    brackets_.clear();
    quote_ = '\0';
    escaped_ = false;
  }

  bool Step(char c) override {
    if (phase_ == Phase::kValue) return StepValue(c);
    if (phase_ == Phase::kName) return StepName(c);
    if (phase_ == Phase::kKey) return StepKey(c);
    if (phase_ == Phase::kClose) return StepClose(c);
    if (IsCallSpace(c)) return true;
    switch (phase_) {
      case Phase::kList: phase_ = Phase::kCall; return c == '[';
      case Phase::kCall:
        // A comma may stand behind the last call too.
        if (c == ']' && !found_.empty()) return Complete();
        phase_ = Phase::kName;
        name_ = c;
        return IsNameBegin(c);
      case Phase::kKeyOrEnd:
        if (c == ')') return EndCall();
        phase_ = Phase::kKey;
        key_ = c;
        return IsNameBegin(c);
      case Phase::kEquals: phase_ = Phase::kValue; return c == '=' && BeginValue();
      default: break;  // kAfterCall
    }
    if (c == ']') return Complete();
    phase_ = Phase::kCall;
    return c == ',';
  }

  bool StepName(char c) {
    if (c == '(') {
      phase_ = Phase::kKeyOrEnd;
      BeginArguments();
      return true;
    }
    name_ += c;
    return IsCallNameChar(c) && name_.size() <= kMaxCallNameBytes;
  }

  bool StepKey(char c) {
    if (c == '=') {
      phase_ = Phase::kValue;
      return BeginValue();
    }
    if (IsCallSpace(c)) {
      phase_ = Phase::kEquals;
      return true;
    }
    key_ += c;
    return (IsNameBegin(c) || (c >= '0' && c <= '9')) && key_.size() <= kMaxCallNameBytes;
  }

  bool BeginValue() {
    value_.clear();
    return keys_.insert(key_).second;
  }

  bool StepValue(char c) {
    if (quote_ != '\0') {
      if (!escaped_ && c == quote_) quote_ = '\0';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"' || c == '\'') {
      quote_ = c;
      escaped_ = false;
    } else if (c == '[' || c == '(' || c == '{') {
      brackets_ += c == '[' ? ']' : c == '(' ? ')' : '}';
    } else if (brackets_.empty() && (c == ',' || c == ')')) {
      if (!EndValue()) return false;
      phase_ = Phase::kKeyOrEnd;
      return c == ',' || EndCall();
    } else if (c == ']' || c == ')' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) return false;
      brackets_.pop_back();
    }
    value_ += c;
    return true;
  }

  bool EndValue() {
    const std::optional<std::string> json = PythonToJson(value_);
    if (!json) return false;
    if (arguments_.size() > 1) arguments_ += ", ";
    arguments_ += JsonQuoted(key_) + ": " + *json;
    return true;
  }

  bool EndCall() {
    found_.push_back({name_, arguments_ + "}"});
    phase_ = Phase::kAfterCall;
    return true;
  }

  bool Complete() {
    for (ToolCall& call : found_) Add(std::move(call.name), std::move(call.arguments));
    found_.clear();
    phase_ = Phase::kClose;
    if (bare_) Finish(true);
    return true;
  }

  bool StepClose(char c) {
    const TagMatcher::State state = tag_.Step(c, kEndTag);
    if (state == TagMatcher::State::kMatched) Finish(true);
    return state != TagMatcher::State::kBroken;
  }

  bool bare_ = false;
  Phase phase_ = Phase::kList;
  std::vector<ToolCall> found_;  // of the list, which is not complete yet
  std::string name_;
  std::string key_;
  std::set<std::string> keys_;
  std::string arguments_;
  std::string value_;
  std::string brackets_;  // that close those which are open in the value
  char quote_ = '\0';
  bool escaped_ = false;
  TagMatcher tag_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakePythonicCallReader() {
  return std::make_unique<PythonicCallReader>();
}

}  // namespace tandem
