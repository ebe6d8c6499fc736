// What: ToolFormat: how the models of a family write tool calls; which one a chat template stands
//   for; the words that begin a call.
// Not here: reading calls (tool_call_reader.h), content and reasoning around them
//   (answer_parser.h).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

enum class ToolFormat : uint8_t {
  kNone,
  // <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>: Qwen2.5, Qwen3, Hermes.
  kHermes,
  // {"name": "f", "parameters": {...}}, optionally behind <|python_tag|>, several separated by ";":
  // Llama 3.1 and later.
  kLlama3Json,
  // <tool_call>\n<function=f>\n<parameter=a>\nbare text\n</parameter>\n</function>\n</tool_call>:
  // Qwen3-Coder, Qwen3.5, Nemotron 3.
  kQwenXml,
  // <tool_call>f\n<arg_key>a</arg_key>\n<arg_value>bare text</arg_value>\n</tool_call>: GLM 4.5 and
  // later.
  kGlm,
  // [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]: Mistral 7B v0.3 to Nemo.
  kMistralList,
  // [TOOL_CALLS]f[ARGS]{...}, the marker before each: Mistral Small 3.2, Devstral, Ministral 3.
  kMistralArgs,
  // [f(a="x"), g()], the whole answer: Llama 3.2 and 4 with templates that ask for it.
  kPythonic,
  // <|tool_call_start|>[f(a="x")]<|tool_call_end|>: LFM2.
  kPythonicTags,
};
inline constexpr int kNumToolFormats = 9;

// kNone where the template has no calls, or calls in a format that is not understood here.
ToolFormat ToolFormatOf(std::string_view template_source);

// The words that begin a call wherever they stand in an answer.
std::span<const std::string_view> CallMarkers(ToolFormat format);
// Those and the other words of calls that a vocabulary may have as control tokens.
std::span<const std::string_view> CallWords(ToolFormat format);
// The character with which a call begins at the beginning of an answer, without a marker; 0: none.
char BareCallBegin(ToolFormat format);

// The beginning of an answer that calls `name` (or, with no name, any tool) in this format, up to
// where the model goes on with the arguments (or the name); empty for kNone. It does not end with
// the blank before the arguments: models write that as one token with what follows.
std::string ForcedCallBegin(ToolFormat format, std::optional<std::string_view> name);

}  // namespace tandem
