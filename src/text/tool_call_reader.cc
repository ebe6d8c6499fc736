#include "text/tool_call_reader.h"

namespace tandem {

size_t ToolCallReader::Consume(std::string_view text) {
  size_t taken = 0;
  const size_t before = calls_.size();
  while (taken < text.size() && state_ == State::kOpen && calls_.size() == before) {
    if (!Step(text[taken])) {
      state_ = State::kBroken;
      break;
    }
    ++taken;
  }
  return taken;
}

std::unique_ptr<ToolCallReader> MakeToolCallReader(
    ToolFormat format, std::shared_ptr<const ToolParameters> parameters) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kLlama3Json: return MakeJsonCallReader(format);
    case ToolFormat::kQwenXml:
    case ToolFormat::kGlm: return MakeTaggedCallReader(format, std::move(parameters));
    case ToolFormat::kMistralList:
    case ToolFormat::kMistralArgs: return MakeMistralCallReader();
    case ToolFormat::kPythonic:
    case ToolFormat::kPythonicTags: return MakePythonicCallReader();
    case ToolFormat::kNone: break;
  }
  return nullptr;
}

}  // namespace tandem
