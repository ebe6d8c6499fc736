// Calls with a tag for each argument: Qwen's functions and parameters, GLM's keys and values.
#include <array>
#include <set>

#include "text/call_scanning.h"

namespace tandem {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 1> kFunctionTag = {"<function="};
constexpr std::array<std::string_view, 2> kParameterOrEnd = {"<parameter=", "</function>"};
constexpr std::array<std::string_view, 2> kCloseOrFunction = {"</tool_call>", "<function="};
constexpr std::array<std::string_view, 2> kKeyOrEnd = {"<arg_key>", "</tool_call>"};
constexpr std::array<std::string_view, 1> kValueTags = {"<arg_value>"};

// Templates write a line feed at both ends of a value.
std::string_view WithoutLineFeeds(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

class TaggedCallReader final : public ToolCallReader {
 public:
  TaggedCallReader(bool qwen, std::shared_ptr<const ToolParameters> parameters)
      : qwen_(qwen), parameters_(std::move(parameters)) {
    if (!parameters_) parameters_ = std::make_shared<const ToolParameters>();
  }

  void Begin(std::string_view marker) override {
    Restart();
    BeginCall();
    if (qwen_ && marker != kFunctionTag[0]) phase_ = Phase::kFunction;
  }
  // A call counts with its end, and what closes it adds nothing.
  void End() override { Finish(phase_ == Phase::kClose); }

 private:
  enum class Phase : uint8_t { kFunction, kName, kNext, kKey, kValueTag, kValue, kClose };

  void BeginCall() {
    phase_ = Phase::kName;
    tag_ = TagMatcher();
    field_ = FieldReader();
    name_.clear();
    keys_.clear();
    arguments_ = "{";
  }

  bool Step(char c) override {
    switch (phase_) {
      case Phase::kFunction: return StepTag(c, kFunctionTag);
      case Phase::kName: return qwen_ ? StepQwenName(c) : StepGlmName(c);
      case Phase::kNext: return StepTag(c, qwen_ ? Words(kParameterOrEnd) : Words(kKeyOrEnd));
      case Phase::kKey: return StepKey(c);
      case Phase::kValueTag: return StepTag(c, kValueTags);
      case Phase::kValue:
        if (field_.Step(c, qwen_ ? "</parameter>" : "</arg_value>")) AddArgument(field_.Take());
        return true;
      case Phase::kClose: break;
    }
    return StepTag(c, kCloseOrFunction);
  }

  bool StepTag(char c, Words words) {
    const TagMatcher::State state = tag_.Step(c, words);
    if (state == TagMatcher::State::kMatched) OnTag(tag_.Take());
    return state != TagMatcher::State::kBroken;
  }

  void OnTag(const std::string& tag) {
    if (tag == kFunctionTag[0]) {
      BeginCall();
    } else if (tag == kParameterOrEnd[0] || tag == kKeyOrEnd[0]) {
      phase_ = Phase::kKey;
    } else if (tag == kValueTags[0]) {
      phase_ = Phase::kValue;
    } else if (tag == kParameterOrEnd[1]) {
      Add(name_, arguments_ + "}");
      phase_ = Phase::kClose;
    } else {  // </tool_call>
      if (!qwen_) Add(name_, arguments_ + "}");
      Finish(true);
    }
  }

  bool StepQwenName(char c) {
    if (c != '>') {
      name_ += c;
      return IsCallNameChar(c) && name_.size() <= kMaxCallNameBytes;
    }
    phase_ = Phase::kNext;
    return !name_.empty();
  }

  bool StepGlmName(char c) {
    if (IsCallSpace(c) && name_.empty()) return true;
    if (IsCallNameChar(c)) {
      name_ += c;
      return name_.size() <= kMaxCallNameBytes;
    }
    if (name_.empty()) return false;
    phase_ = Phase::kNext;
    return StepTag(c, kKeyOrEnd);
  }

  bool StepKey(char c) {
    if (field_.size() > kMaxCallNameBytes || c == '\n') return false;
    if (!field_.Step(c, qwen_ ? ">" : "</arg_key>")) return true;
    key_ = field_.Take();
    phase_ = qwen_ ? Phase::kValue : Phase::kValueTag;
    return !key_.empty() && keys_.insert(key_).second;
  }

  void AddArgument(const std::string& text) {
    if (arguments_.size() > 1) arguments_ += ", ";
    arguments_ += JsonQuoted(key_) + ": ";
    arguments_ += parameters_->ValueOf(name_, key_, qwen_ ? WithoutLineFeeds(text) : text);
    phase_ = Phase::kNext;
  }

  const bool qwen_;
  std::shared_ptr<const ToolParameters> parameters_;
  Phase phase_ = Phase::kName;
  TagMatcher tag_;
  FieldReader field_;
  std::string name_;
  std::string key_;
  std::set<std::string> keys_;
  std::string arguments_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakeTaggedCallReader(
    ToolFormat format, std::shared_ptr<const ToolParameters> parameters) {
  return std::make_unique<TaggedCallReader>(format == ToolFormat::kQwenXml, std::move(parameters));
}

}  // namespace tandem
