#include "text/chat_template.h"

#include <algorithm>
#include <array>
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

Result<std::string> ChatTemplate::Render(const jinja::Json& messages,
                                         const RenderOptions& options) const {
  if (Status s = CheckMessages(messages); !s.ok()) return s;
  jinja::Template::Variables variables;
  if (Status s = AddVariable("messages", messages, variables); !s.ok()) return s;
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
  Result<std::string> text = template_.Render(std::move(variables), options.limits);
  if (!text.ok()) return text.status().WithContext("chat template");
  return text;
}

}  // namespace tandem
