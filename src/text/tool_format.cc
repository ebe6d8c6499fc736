#include "text/tool_format.h"

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

constexpr std::string_view kTags[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kQwenMarkers[] = {"<tool_call>", "<function="};
constexpr std::string_view kGlmWords[] = {"<tool_call>", "</tool_call>", "<arg_key>",
                                          "</arg_key>",  "<arg_value>",  "</arg_value>"};
constexpr std::string_view kLlamaWords[] = {"<|python_tag|>"};
constexpr std::string_view kMistralWords[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
constexpr std::string_view kPythonicWords[] = {"<|tool_call_start|>", "<|tool_call_end|>"};

std::string Quoted(std::string_view name) {
  using nlohmann::json;
  return json(name).dump(-1, ' ', false, json::error_handler_t::replace);
}

// `begin`, the name as a JSON string, and the key of the arguments.
std::string ForcedJson(std::string begin, std::string_view arguments_key,
                       std::optional<std::string_view> name) {
  begin += "{\"name\": ";
  if (!name) return begin + '"';
  begin += Quoted(*name);
  begin += ", \"";
  begin += arguments_key;
  return begin + "\":";
}

}  // namespace

ToolFormat ToolFormatOf(std::string_view template_source) {
  const auto has = [template_source](std::string_view word) {
    return template_source.find(word) != std::string_view::npos;
  };
  const bool tags = has("<tool_call>") && has("</tool_call>");
  const bool functions = has("<function=");
  const bool keys = has("<arg_key>");
  if (tags && functions && has("<parameter=")) return ToolFormat::kQwenXml;
  if (tags && keys && has("<arg_value>")) return ToolFormat::kGlm;
  if (tags && has("arguments\"") && !functions && !keys && !has("<tool_calls>")) {
    return ToolFormat::kHermes;
  }
  if (has("[TOOL_CALLS]")) {
    return has("[ARGS]") ? ToolFormat::kMistralArgs : ToolFormat::kMistralList;
  }
  if (has("<|tool_call_start|>") || has("<|tool_list_start|>")) return ToolFormat::kPythonicTags;
  if (has("func_name1(params_name1=")) return ToolFormat::kPythonic;
  const bool name = has("{\"name\":") || has("{\\\"name\\\":");
  if (has("<|start_header_id|>") && name && has("\"parameters\":")) return ToolFormat::kLlama3Json;
  return ToolFormat::kNone;
}

std::span<const std::string_view> CallMarkers(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kGlm: return std::span(kTags).first(1);
    case ToolFormat::kQwenXml: return kQwenMarkers;
    case ToolFormat::kLlama3Json: return kLlamaWords;
    case ToolFormat::kMistralList:
    case ToolFormat::kMistralArgs: return std::span(kMistralWords).first(1);
    case ToolFormat::kPythonicTags: return std::span(kPythonicWords).first(1);
    case ToolFormat::kPythonic:
    case ToolFormat::kNone: break;
  }
  return {};
}

std::span<const std::string_view> CallWords(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kQwenXml: return kTags;
    case ToolFormat::kGlm: return kGlmWords;
    case ToolFormat::kMistralList:
    case ToolFormat::kMistralArgs: return kMistralWords;
    case ToolFormat::kPythonicTags: return kPythonicWords;
    case ToolFormat::kLlama3Json:
    case ToolFormat::kPythonic:
    case ToolFormat::kNone: break;
  }
  return CallMarkers(format);
}

char BareCallBegin(ToolFormat format) {
  if (format == ToolFormat::kLlama3Json) return '{';
  return format == ToolFormat::kPythonic ? '[' : '\0';
}

std::string ForcedCallBegin(ToolFormat format, std::optional<std::string_view> name) {
  const std::string called(name.value_or(""));
  switch (format) {
    case ToolFormat::kHermes: return ForcedJson("<tool_call>\n", "arguments", name);
    case ToolFormat::kLlama3Json: return ForcedJson("", "parameters", name);
    case ToolFormat::kMistralList: return ForcedJson("[TOOL_CALLS][", "arguments", name);
    case ToolFormat::kQwenXml: return "<tool_call>\n<function=" + called + (name ? ">" : "");
    // The line feed ends the name, which the model could go on with.
    case ToolFormat::kGlm: return "<tool_call>" + called + (name ? "\n" : "");
    case ToolFormat::kMistralArgs: return "[TOOL_CALLS]" + called + (name ? "[ARGS]" : "");
    case ToolFormat::kPythonic: return "[" + called + (name ? "(" : "");
    case ToolFormat::kPythonicTags: return "<|tool_call_start|>[" + called + (name ? "(" : "");
    case ToolFormat::kNone: break;
  }
  return {};
}

}  // namespace tandem
