#include "server/chat_tools.h"

namespace tandem {
namespace {

constexpr size_t kNameBytesMax = 64;  // OpenAI's limit

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

struct ToolFunction {
  std::string name;
  std::string description;
  bool strict = false;
};

MaybeError ParseName(const Json& value, std::string_view param, const FieldType&,
                     ToolFunction& out) {
  if (auto error = Store(ReadString(value, param), out.name)) return error;
  if (!out.name.empty() && out.name.size() <= kNameBytesMax &&
      std::all_of(out.name.begin(), out.name.end(), IsNameChar)) {
    return std::nullopt;
  }
  return ValueError(param, fmt::format("'{}' is not 1 to {} letters, digits, '_' and '-'",
                                       Shorten(out.name), kNameBytesMax));
}

constexpr Field<ToolFunction> kFunctionTable[] = {
    Honoured<ToolFunction>("name", R"({"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"})",
                           ParseName, /*required=*/true),
    StringField<&ToolFunction::description>("description"),
    Honoured<ToolFunction>(
        "parameters", R"({"type": "object"})",
        [](const Json& value, std::string_view param, const FieldType&, ToolFunction&) {
          if (value.is_object()) return MaybeError();
          return MaybeError(TypeError(param, "an object", value));
        }),
    Refused<ToolFunction>("strict", "false"),
};

constexpr std::string_view kFunctionSchema = R"({"$ref": "#/components/schemas/ToolFunction"})";

MaybeError ParseType(const Json& value, std::string_view param, const FieldType&, ToolFunction&) {
  if (!value.is_string()) return TypeError(param, "a string", value);
  if (value == "function") return std::nullopt;
  return FieldError("unsupported_value", std::string(param),
                    fmt::format("Unsupported value for '{}': '{}'. Only functions are supported by "
                                "this server.",
                                param, Shorten(value.get_ref<const std::string&>())));
}

MaybeError ParseFunction(const Json& value, std::string_view param, const FieldType&,
                         ToolFunction& out) {
  if (!value.is_object()) return TypeError(param, "an object", value);
  return ApplyAll(value, param, out, std::span<const Field<ToolFunction>>(kFunctionTable));
}

constexpr Field<ToolFunction> kToolTable[] = {
    Honoured<ToolFunction>("type", R"({"const": "function"})", ParseType, /*required=*/true),
    Honoured<ToolFunction>("function", kFunctionSchema, ParseFunction, /*required=*/true),
};

struct NamedFunction {
  std::string name;
};
constexpr Field<NamedFunction> kNamedFunctionTable[] = {
    StringField<&NamedFunction::name>("name", /*required=*/true),
};

std::string_view NameOfTool(const Json& tool) {
  return tool.at("function").at("name").get_ref<const std::string&>();
}

MaybeError ParseNamedChoice(const Json& value, std::string_view param, ToolChoice& out) {
  out.kind = ToolChoice::Kind::kNamed;
  const auto type = value.find("type");
  if (type == value.end()) return MissingError(fmt::format("{}.type", param));
  ToolFunction unused;
  if (auto error = ParseType(*type, fmt::format("{}.type", param), {}, unused)) return error;
  const std::string name = fmt::format("{}.function", param);
  const auto function = value.find("function");
  if (function == value.end()) return MissingError(name);
  if (!function->is_object()) return TypeError(name, "an object", *function);
  for (const auto& [key, member] : value.items()) {
    constexpr std::string_view kKnown[] = {"type", "function"};
    if (key != kKnown[0] && key != kKnown[1]) {
      return UnknownError(fmt::format("{}.{}", param, Shorten(key)), key, kKnown);
    }
  }
  NamedFunction named;
  if (auto error = ApplyAll(*function, name, named,
                            std::span<const Field<NamedFunction>>(kNamedFunctionTable))) {
    return error;
  }
  out.name = std::move(named.name);
  return std::nullopt;
}

}  // namespace

const std::string_view kToolChoiceSchema =
    R"({"anyOf": [{"enum": ["none", "auto", "required"]},
                  {"type": "object", "required": ["type", "function"],
                   "additionalProperties": false,
                   "properties": {"type": {"const": "function"},
                                  "function": {"type": "object", "required": ["name"],
                                               "additionalProperties": false,
                                               "properties": {"name": {"type": "string"}}}}}]})";

MaybeError ParseTools(const Json& value, std::string_view param, Json& out) {
  if (!value.is_array()) return TypeError(param, "a list of tools", value);
  if (value.size() > kToolsMax) {
    return ValueError(param,
                      fmt::format("at most {} tools are allowed, got {}", kToolsMax, value.size()));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!value[i].is_object()) return TypeError(name, "an object", value[i]);
    ToolFunction function;
    if (auto error =
            ApplyAll(value[i], name, function, std::span<const Field<ToolFunction>>(kToolTable))) {
      return error;
    }
    for (const Json& earlier : out) {
      if (NameOfTool(earlier) == function.name) {
        return ValueError(name + ".function.name",
                          fmt::format("'{}' is the name of an earlier tool too", function.name));
      }
    }
    out.push_back(value[i]);
  }
  return std::nullopt;
}

MaybeError ParseToolChoice(const Json& value, std::string_view param, ToolChoice& out) {
  if (value.is_object()) return ParseNamedChoice(value, param, out);
  if (!value.is_string()) return TypeError(param, "a string or an object", value);
  if (value == "none") {
    out.kind = ToolChoice::Kind::kNone;
  } else if (value == "auto") {
    out.kind = ToolChoice::Kind::kAuto;
  } else if (value == "required") {
    out.kind = ToolChoice::Kind::kRequired;
  } else {
    return ValueError(param, fmt::format("'{}' is not none, auto, required or a function",
                                         Shorten(value.get_ref<const std::string&>())));
  }
  return std::nullopt;
}

MaybeError CheckToolChoice(const Json& tools, const ToolChoice& choice) {
  const bool named = choice.kind == ToolChoice::Kind::kNamed;
  if (!named && choice.kind != ToolChoice::Kind::kRequired) return std::nullopt;
  if (tools.empty()) return ValueError("tool_choice", "there are no tools to choose from");
  if (!named) return std::nullopt;
  const bool known = std::any_of(tools.begin(), tools.end(),
                                 [&](const Json& tool) { return NameOfTool(tool) == choice.name; });
  if (known) return std::nullopt;
  return ValueError("tool_choice.function.name",
                    fmt::format("no tool is called '{}'", Shorten(choice.name)));
}

std::vector<FieldInfo> ToolFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<ToolFunction>>(kToolTable), out);
  return out;
}

std::vector<FieldInfo> ToolFunctionFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<ToolFunction>>(kFunctionTable), out);
  return out;
}

}  // namespace tandem
