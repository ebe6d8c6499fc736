#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "text/unicode.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 5> kOwnVariables = {
    "messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};

Status CheckMessages(const jinja::Json& messages) {
  if (!messages.is_array()) return InvalidArgumentError("messages must be an array");
  for (size_t i = 0; i < messages.size(); ++i) {
    const jinja::Json& message = messages[i];
    if (!message.is_object()) return InvalidArgumentError("messages[{}] must be an object", i);
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return InvalidArgumentError("messages[{}].role must be a string", i);
    }
  }
  return OkStatus();
}

Status AddVariable(std::string_view name, const jinja::Json& json,
                   jinja::Template::Variables& variables) {
  Result<jinja::Value> value = jinja::FromJson(json);
  if (!value.ok()) return value.status().WithContext(name);
  variables.emplace_back(name, std::move(*value));
  return OkStatus();
}

// Roles that templates themselves name. Any other text in their place is data.
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

// Nesting of arguments that are parsed; a value may not be deeper (jinja::kMaxValueDepth).
constexpr int kMaxArgumentDepth = jinja::kMaxValueDepth;

// The object whose text `text` is; none for any other text.
std::optional<jinja::Json> ParseObject(const std::string& text) {
  int depth = 0;
  const auto bounded = [&depth](int at, jinja::Json::parse_event_t, jinja::Json&) {
    depth = std::max(depth, at);
    return depth <= kMaxArgumentDepth;  // discards what is deeper, which then fails below
  };
  jinja::Json parsed = jinja::Json::parse(text, bounded, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || !parsed.is_object() || depth > kMaxArgumentDepth) {
    return std::nullopt;
  }
  return parsed;
}

// `message` with the arguments of its tool calls as objects.
jinja::Json WithParsedArguments(const jinja::Json& message) {
  jinja::Json copy = message;
  const auto calls = copy.find("tool_calls");
  if (calls == copy.end() || !calls->is_array()) return copy;
  for (jinja::Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    jinja::Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    std::optional<jinja::Json> parsed = ParseObject(arguments->get_ref<const std::string&>());
    if (parsed) *arguments = std::move(*parsed);
  }
  return copy;
}

// The messages as a value, with the roles that count as the template's own words.
Result<jinja::Value> MessagesValue(const jinja::Json& messages) {
  auto list = std::make_shared<jinja::List>();
  for (const jinja::Json& message : messages) {
    TANDEM_ASSIGN_OR_RETURN(jinja::Value value, jinja::FromJson(WithParsedArguments(message)));
    const std::string& role = message["role"].get_ref<const std::string&>();
    if (std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end()) {
      auto entries = value.as_dict().items;
      for (auto& [key, item] : entries) {
        if (key == "role") item = jinja::Value::MakeString(role);
      }
      value =
          jinja::Value(std::make_shared<const jinja::Dict>(std::move(entries), /*data_keys=*/true));
    }
    list->depth = std::max(list->depth, value.Depth() + 1);
    list->has_data = true;
    list->items.push_back(std::move(value));
  }
  if (list->depth > jinja::kMaxValueDepth) {
    return OutOfRangeError("JSON nests deeper than {} levels", jinja::kMaxValueDepth);
  }
  return jinja::Value(std::shared_ptr<const jinja::List>(std::move(list)));
}

std::tm LocalTime() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return now;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Create(std::string_view source, std::string bos_token,
                                          std::string eos_token) {
  if (!IsValidUtf8(bos_token) || !IsValidUtf8(eos_token)) {
    return InvalidArgumentError("chat template: bos or eos token is not valid UTF-8");
  }
  Result<jinja::Template> compiled = jinja::Template::Create(source);
  if (!compiled.ok()) return compiled.status().WithContext("chat template");
  return ChatTemplate(std::move(*compiled), std::move(bos_token), std::move(eos_token));
}

Result<MarkedText> ChatTemplate::RenderMarked(const jinja::Json& messages,
                                              const RenderOptions& options) const {
  if (Status s = CheckMessages(messages); !s.ok()) return s;
  jinja::Template::Variables variables;
  Result<jinja::Value> list = MessagesValue(messages);
  if (!list.ok()) return list.status().WithContext("messages");
  variables.emplace_back("messages", std::move(*list));
  if (Status s = AddVariable("tools", options.tools, variables); !s.ok()) return s;
  variables.emplace_back("add_generation_prompt", jinja::Value(options.add_generation_prompt));
  variables.emplace_back("bos_token", jinja::Value::MakeString(bos_token_));
  variables.emplace_back("eos_token", jinja::Value::MakeString(eos_token_));
  if (!options.extra.is_null() && !options.extra.is_object()) {
    return InvalidArgumentError("extra template variables must be an object");
  }
  for (const auto& [name, json] : options.extra.items()) {
    if (std::find(kOwnVariables.begin(), kOwnVariables.end(), name) != kOwnVariables.end()) {
      return InvalidArgumentError("'{}' cannot be set as an extra template variable", name);
    }
    if (Status s = AddVariable(name, json, variables); !s.ok()) return s;
  }
  Result<MarkedText> text = template_.RenderMarked(std::move(variables), options.limits,
                                                   options.now.value_or(LocalTime()));
  if (!text.ok()) return text.status().WithContext("chat template");
  return text;
}

Result<std::string> ChatTemplate::Render(const jinja::Json& messages,
                                         const RenderOptions& options) const {
  Result<MarkedText> text = RenderMarked(messages, options);
  if (!text.ok()) return text.status();
  return std::move(*text).TakeText();
}

}  // namespace tandem
