#include "server/chat_message.h"

#include <array>

namespace tandem {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

struct Message {
  std::string role;
  std::optional<std::string> content;
  std::string name;
  std::string tool_call_id;
  std::string reasoning;
  Json tool_calls = Json::array();
};

MaybeError ParseRole(const Json& value, std::string_view param, const FieldType&, Message& out) {
  if (auto error = Store(ReadString(value, param), out.role)) return error;
  if (std::find(kRoles.begin(), kRoles.end(), out.role) == kRoles.end()) {
    return ValueError(
        param, fmt::format("'{}' is not one of {}", Shorten(out.role), fmt::join(kRoles, ", ")));
  }
  return std::nullopt;
}

// ---- Content

struct Part {
  std::string text;
};
constexpr Field<Part> kPartTable[] = {
    Honoured<Part>(
        "type", R"({"const": "text"})",
        [](const Json&, std::string_view, const FieldType&, Part&) { return MaybeError(); },
        /*required=*/true),
    StringField<&Part::text>("text", /*required=*/true),
};

MaybeError ParsePart(const Json& part, const std::string& param, std::string& text) {
  if (!part.is_object()) return TypeError(param, "an object", part);
  // The type first: what else a part has depends on it.
  const auto type = part.find("type");
  if (type == part.end() || type->is_null()) return MissingError(param + ".type");
  ApiResult<std::string> kind = ReadString(*type, param + ".type");
  if (!kind.ok()) return kind.error();
  if (kind.value() != "text") {
    return FieldError("unsupported_value", param + ".type",
                      fmt::format("Parts of type '{}' are not supported by this server: only text.",
                                  Shorten(kind.value())));
  }
  Part read;
  if (auto error = ApplyAll(part, param, read, std::span<const Field<Part>>(kPartTable))) {
    return error;
  }
  text = std::move(read.text);
  return std::nullopt;
}

MaybeError ParseContent(const Json& value, std::string_view param, const FieldType&, Message& out) {
  if (value.is_string()) return Store(ReadString(value, param), out.content);
  if (!value.is_array()) return TypeError(param, "a string or a list of parts", value);
  if (value.empty()) return ValueError(param, "the list of parts is empty");
  out.content.emplace();
  for (size_t i = 0; i < value.size(); ++i) {
    std::string text;
    if (auto error = ParsePart(value[i], fmt::format("{}[{}]", param, i), text)) return error;
    if (i > 0) *out.content += '\n';
    *out.content += text;
  }
  return std::nullopt;
}

// ---- Tool calls of earlier turns

struct CalledFunction {
  std::string name;
  std::string arguments;
};
constexpr Field<CalledFunction> kCalledFunctionTable[] = {
    StringField<&CalledFunction::name>("name", /*required=*/true),
    StringField<&CalledFunction::arguments>("arguments", /*required=*/true),
};

struct ToolCall {
  std::string id;
  CalledFunction function;
};

// Arguments that are JSON reach the template as an object; it must be one that is cheap to make.
MaybeError CheckArguments(const std::string& arguments, std::string_view param) {
  const size_t begin = arguments.find_first_not_of(" \t\r\n");
  const bool object = begin != std::string::npos && arguments[begin] == '{';
  if (!object || !Json::accept(arguments)) return std::nullopt;  // stays a text
  ApiResult<Json> parsed = ParseJsonObject(arguments);
  if (parsed.ok()) return std::nullopt;
  return ValueError(param, parsed.error().message);
}

constexpr Field<ToolCall> kToolCallTable[] = {
    StringField<&ToolCall::id>("id", /*required=*/true),
    Honoured<ToolCall>("type", R"({"const": "function"})",
                       [](const Json& value, std::string_view param, const FieldType&, ToolCall&) {
                         if (value == "function") return MaybeError();
                         return MaybeError(ValueError(param, "only 'function' is known"));
                       }),
    Honoured<ToolCall>(
        "function", R"({"$ref": "#/components/schemas/CalledFunction"})",
        [](const Json& value, std::string_view param, const FieldType&, ToolCall& out) {
          if (!value.is_object()) return MaybeError(TypeError(param, "an object", value));
          if (auto error = ApplyAll(value, param, out.function,
                                    std::span<const Field<CalledFunction>>(kCalledFunctionTable))) {
            return error;
          }
          return CheckArguments(out.function.arguments, fmt::format("{}.arguments", param));
        },
        /*required=*/true),
    Ignored<ToolCall>("index"),
};

MaybeError ParseToolCalls(const Json& value, std::string_view param, const FieldType&,
                          Message& out) {
  if (!value.is_array()) return TypeError(param, "a list of tool calls", value);
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!value[i].is_object()) return TypeError(name, "an object", value[i]);
    ToolCall call;
    if (auto error =
            ApplyAll(value[i], name, call, std::span<const Field<ToolCall>>(kToolCallTable))) {
      return error;
    }
    out.tool_calls.push_back({{"id", std::move(call.id)},
                              {"type", "function"},
                              {"function",
                               {{"name", std::move(call.function.name)},
                                {"arguments", std::move(call.function.arguments)}}}});
  }
  return std::nullopt;
}

constexpr Field<Message> kMessageTable[] = {
    Honoured<Message>("role", R"({"enum": ["system", "developer", "user", "assistant", "tool"]})",
                      ParseRole, /*required=*/true),
    Honoured<Message>("content",
                      R"({"anyOf": [{"type": "string"},
                                    {"type": "array", "minItems": 1,
                                     "items": {"$ref": "#/components/schemas/ContentPart"}}]})",
                      ParseContent),
    StringField<&Message::name>("name"),
    Honoured<Message>("tool_calls",
                      R"({"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}})",
                      ParseToolCalls),
    StringField<&Message::tool_call_id>("tool_call_id"),
    StringField<&Message::reasoning>("reasoning_content"),
    StringField<&Message::reasoning>("reasoning"),
    Ignored<Message>("annotations"),
    Refused<Message>("refusal"),
    Refused<Message>("audio"),
    Refused<Message>("function_call"),
};

// What depends on the role.
MaybeError CheckMessage(const Json& value, const std::string& param, const Message& message) {
  const bool assistant = message.role == "assistant";
  if (!message.tool_calls.empty() && !assistant) {
    return ValueError(param + ".tool_calls", "only messages of the assistant have tool calls");
  }
  if (!message.reasoning.empty() && !assistant) {
    const char* name = value.contains("reasoning_content") ? "reasoning_content" : "reasoning";
    return ValueError(fmt::format("{}.{}", param, name),
                      "only messages of the assistant have reasoning");
  }
  if (message.role == "tool" && message.tool_call_id.empty()) {
    return MissingError(param + ".tool_call_id");
  }
  if (message.role != "tool" && !message.tool_call_id.empty()) {
    return ValueError(param + ".tool_call_id", "only messages of tools answer a call");
  }
  if (!message.content && message.tool_calls.empty()) return MissingError(param + ".content");
  return std::nullopt;
}

Json ForTemplate(Message message) {
  Json out = {{"role", message.role == "developer" ? std::string("system") : message.role},
              {"content", std::move(message.content).value_or("")}};
  if (!message.name.empty()) out["name"] = std::move(message.name);
  if (!message.reasoning.empty()) out["reasoning_content"] = std::move(message.reasoning);
  if (!message.tool_calls.empty()) out["tool_calls"] = std::move(message.tool_calls);
  if (!message.tool_call_id.empty()) out["tool_call_id"] = std::move(message.tool_call_id);
  return out;
}

}  // namespace

MaybeError ParseMessages(const Json& value, std::string_view param, Json& out) {
  if (!value.is_array()) return TypeError(param, "a list of messages", value);
  if (value.empty()) return ValueError(param, "the list is empty, at least one message is needed");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!value[i].is_object()) return TypeError(name, "an object", value[i]);
    Message message;
    if (auto error =
            ApplyAll(value[i], name, message, std::span<const Field<Message>>(kMessageTable))) {
      return error;
    }
    if (auto error = CheckMessage(value[i], name, message)) return error;
    out.push_back(ForTemplate(std::move(message)));
  }
  return std::nullopt;
}

std::vector<FieldInfo> ChatMessageFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<Message>>(kMessageTable), out);
  return out;
}

std::vector<FieldInfo> ToolCallFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<ToolCall>>(kToolCallTable), out);
  return out;
}

std::vector<FieldInfo> ToolCallFunctionFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<CalledFunction>>(kCalledFunctionTable), out);
  return out;
}

std::vector<FieldInfo> ContentPartFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<Part>>(kPartTable), out);
  return out;
}

}  // namespace tandem
