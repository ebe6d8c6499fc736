// Calls that are JSON: Hermes, Llama 3, Mistral.
#include <algorithm>
#include <array>
#include <iterator>

#include "text/call_scanning.h"

namespace tandem {
namespace {

class JsonCallReader final : public ToolCallReader {
 public:
  explicit JsonCallReader(ToolFormat format) : hermes_(format == ToolFormat::kHermes) {}

  void Begin(std::string_view marker) override {
    Restart();
    bare_ = marker.empty();
    object_.reset();
    end_ = TagMatcher();
  }
  void End() override {
    if (hermes_ && object_ && object_->done()) return Complete();
    Finish(false);
  }

 private:
  bool Step(char c) override {
    if (!object_) {
      if (IsCallSpace(c) && !bare_) return true;
      if (hermes_) {
        object_.emplace("arguments", "parameters");
      } else {
        object_.emplace("parameters", "arguments");
      }
    }
    if (object_->done()) return StepEnd(c);
    if (!object_->Step(c)) return false;
    if (object_->done()) {
      if (!hermes_) Complete();
      return true;
    }
    const auto key = object_->NewKey();
    return !bare_ || !key || MayBelongToBareCall(*key);
  }

  bool StepEnd(char c) {
    constexpr std::array<std::string_view, 1> kEnd = {"</tool_call>"};
    const TagMatcher::State state = end_.Step(c, kEnd);
    if (state == TagMatcher::State::kMatched) Complete();
    return state != TagMatcher::State::kBroken;
  }

  static bool MayBelongToBareCall(std::string_view key) {
    static constexpr std::string_view kKeys[] = {"name", "parameters", "arguments", "type", "id"};
    return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
  }

  void Complete() {
    std::optional<ToolCall> call = object_->Read(bare_);
    if (call) Add(std::move(call->name), std::move(call->arguments));
    Finish(true);
  }

  const bool hermes_;
  bool bare_ = false;
  std::optional<CallObject> object_;
  TagMatcher end_;
};

// A JSON object of any size; unlike JsonObjectScanner, which it is made of, without a limit on its
// own members.
class ArgumentsObject {
 public:
  bool Step(char c) {
    if (text_.empty()) {
      if (c != '{') return false;
      scanner_.Consume("{\"\"");
      scanner_.Consume(":");
    }
    if (scanner_.Consume(std::string_view(&c, 1)) == 0) return false;
    text_ += c;
    return true;
  }
  bool begun() const { return !text_.empty(); }
  bool done() const {
    return !scanner_.members().empty() && scanner_.members().back().value_end != 0;
  }
  std::string Take() { return std::move(text_); }

 private:
  JsonObjectScanner scanner_;
  std::string text_;
};

class MistralCallReader final : public ToolCallReader {
 public:
  void Begin(std::string_view) override {
    Restart();
    phase_ = Phase::kStart;
    name_.clear();
    tag_ = TagMatcher();
    object_.reset();
    arguments_ = ArgumentsObject();
    any_ = false;
  }
  void End() override {
    Finish(any_ && (phase_ == Phase::kAfterItem || (phase_ == Phase::kItem && !object_)));
  }

 private:
  enum class Phase : uint8_t { kStart, kItem, kAfterItem, kName, kTag, kId, kArguments };

  bool Step(char c) override {
    switch (phase_) {
      case Phase::kStart: return StepStart(c);
      case Phase::kItem: return StepItem(c);
      case Phase::kAfterItem:
        if (c == ',') phase_ = Phase::kItem;
        if (c == ']') Finish(true);
        return IsCallSpace(c) || c == ',' || c == ']';
      case Phase::kName: return StepName(c);
      case Phase::kTag: return StepTag(c);
      case Phase::kId:
        // Ids are ours to make.
        if (c != '[') return IsCallNameChar(c);
        phase_ = Phase::kTag;
        return StepTag(c);
      case Phase::kArguments: break;
    }
    return StepArguments(c);
  }

  bool StepStart(char c) {
    if (IsCallSpace(c)) return true;
    if (c == '[') {
      phase_ = Phase::kItem;
      return true;
    }
    phase_ = Phase::kName;
    return StepName(c);
  }

  bool StepItem(char c) {
    if (!object_) {
      if (IsCallSpace(c)) return true;
      object_.emplace("arguments", "parameters");
    }
    if (!object_->Step(c)) return false;
    if (!object_->done()) return true;
    std::optional<ToolCall> call = object_->Read(/*bare=*/false);
    object_.reset();
    if (!call) return false;
    Add(std::move(call->name), std::move(call->arguments));
    any_ = true;
    phase_ = Phase::kAfterItem;
    return true;
  }

  bool StepName(char c) {
    if (IsCallNameChar(c)) {
      name_ += c;
      return name_.size() <= kMaxCallNameBytes;
    }
    if (name_.empty()) return false;
    if (c == '[') {
      phase_ = Phase::kTag;
      return StepTag(c);
    }
    phase_ = Phase::kArguments;
    return StepArguments(c);
  }

  bool StepTag(char c) {
    constexpr std::array<std::string_view, 2> kTags = {"[ARGS]", "[CALL_ID]"};
    const TagMatcher::State state = tag_.Step(c, kTags);
    if (state == TagMatcher::State::kMatched) {
      phase_ = tag_.Take() == kTags[0] ? Phase::kArguments : Phase::kId;
    }
    return state != TagMatcher::State::kBroken;
  }

  bool StepArguments(char c) {
    if (IsCallSpace(c) && !arguments_.begun()) return true;
    if (!arguments_.Step(c)) return false;
    if (arguments_.done()) {
      Add(std::move(name_), arguments_.Take());
      Finish(true);
    }
    return true;
  }

  Phase phase_ = Phase::kStart;
  bool any_ = false;  // a call of the list was complete
  std::string name_;
  TagMatcher tag_;
  std::optional<CallObject> object_;
  ArgumentsObject arguments_;
};

}  // namespace

std::unique_ptr<ToolCallReader> MakeJsonCallReader(ToolFormat format) {
  return std::make_unique<JsonCallReader>(format);
}

std::unique_ptr<ToolCallReader> MakeMistralCallReader() {
  return std::make_unique<MistralCallReader>();
}

}  // namespace tandem
