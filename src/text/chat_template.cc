#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
constexpr size_t kMaxArgumentDepth = jinja::kMaxValueDepth;

// Builds a value from a parser's events in linear time: where the library's own parser searches an
// object for every key that it adds, this one appends. Keys that occur twice are left to
// jinja::Dict. Stops at what nests too deep.
class LinearBuilder final : public nlohmann::json_sax<jinja::Json> {
 public:
  jinja::Json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t) override { return Open(jinja::Json::object()); }
  bool start_array(std::size_t) override { return Open(jinja::Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool Add(jinja::Json value) {
    Place(std::move(value));
    return true;
  }
  jinja::Json& Place(jinja::Json value) {
    if (open_.empty()) return root_ = std::move(value);
    jinja::Json& parent = *open_.back();
    if (parent.is_array()) return parent.emplace_back(std::move(value));
    auto& members = parent.get_ref<jinja::Json::object_t&>();
    return members.jinja::Json::object_t::Container::emplace_back(std::move(key_), std::move(value))
        .second;
  }
  bool Open(jinja::Json container) {
    if (open_.size() >= kMaxArgumentDepth) return false;
    open_.push_back(&Place(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  jinja::Json root_;
  // A container is not added to while one inside it is open, so these stay where they are.
  std::vector<jinja::Json*> open_;
  std::string key_;
};

// The object whose text `text` is; none for any other text.
std::optional<jinja::Json> ParseObject(const std::string& text) {
  LinearBuilder builder;
  if (!jinja::Json::sax_parse(text, &builder)) return std::nullopt;
  jinja::Json parsed = builder.Take();
  if (!parsed.is_object()) return std::nullopt;
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
