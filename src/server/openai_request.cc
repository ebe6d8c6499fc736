#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/json_body.h"
#include "text/stop_strings.h"

namespace tandem {
namespace {

using MaybeError = std::optional<ApiError>;

// A row of a table of fields. `parse` is set exactly for honoured ones.
template <typename Target>
struct Field {
  std::string_view name;
  FieldUse use;
  std::string_view neutral;
  MaybeError (*parse)(const Json& value, std::string_view param, Target& out);
};

template <typename Target>
constexpr Field<Target> Honoured(std::string_view name,
                                 MaybeError (*parse)(const Json&, std::string_view, Target&)) {
  return {name, FieldUse::kHonoured, {}, parse};
}
template <typename Target>
constexpr Field<Target> Ignored(std::string_view name) {
  return {name, FieldUse::kIgnored, {}, nullptr};
}
template <typename Target>
constexpr Field<Target> Refused(std::string_view name, std::string_view neutral = {}) {
  return {name, FieldUse::kRefused, neutral, nullptr};
}

// Reads a value into `out`, or hands the error back.
template <typename Out, typename Value>
MaybeError Store(ApiResult<Value> read, Out& out) {
  if (!read.ok()) return read.error();
  out = static_cast<std::remove_reference_t<Out>>(std::move(read.value()));
  return std::nullopt;
}

MaybeError Unknown(std::string_view param, std::string_view name,
                   std::span<const std::string_view> known) {
  std::string message = fmt::format("Unknown parameter: '{}'.", param);
  if (const auto nearest = NearestName(name, known)) {
    message += fmt::format(" Did you mean '{}'?", *nearest);
  }
  return FieldError("unknown_parameter", std::string(param), std::move(message));
}

template <typename Target>
std::vector<std::string_view> Names(std::span<const Field<Target>> fields) {
  std::vector<std::string_view> names;
  for (const auto& field : fields) names.push_back(field.name);
  return names;
}

template <typename Target>
const Field<Target>* Find(std::span<const Field<Target>> fields, std::string_view name) {
  const auto it = std::find_if(fields.begin(), fields.end(),
                               [&](const Field<Target>& field) { return field.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

template <typename Target>
MaybeError Apply(const Field<Target>& field, const Json& value, std::string_view param,
                 Target& out) {
  if (value.is_null()) return std::nullopt;
  switch (field.use) {
    case FieldUse::kHonoured: return field.parse(value, param, out);
    case FieldUse::kIgnored: return std::nullopt;
    case FieldUse::kRefused: break;
  }
  if (!field.neutral.empty() && value == Json::parse(field.neutral)) return std::nullopt;
  std::string message = fmt::format("'{}' is not supported by this server", param);
  if (!field.neutral.empty()) message += fmt::format(" (except as {})", field.neutral);
  return FieldError("unsupported_parameter", std::string(param), message + ".");
}

// Applies every member of `object`, whose own name is `prefix` ("messages[0]"), by the table.
template <typename Target>
MaybeError ApplyAll(std::span<const Field<Target>> fields, const Json& object,
                    std::string_view prefix, Target& out) {
  for (const auto& [name, value] : object.items()) {
    const std::string param = fmt::format("{}.{}", prefix, Shorten(name));
    const Field<Target>* field = Find(fields, name);
    MaybeError error =
        field ? Apply(*field, value, param, out) : Unknown(param, name, Names(fields));
    if (error) return error;
  }
  return std::nullopt;
}

// ---- stream_options

struct StreamOptions {
  bool include_usage = false;
};

constexpr Field<StreamOptions> kStreamOptionsFields[] = {
    Honoured<StreamOptions>("include_usage",
                            [](const Json& value, std::string_view param, StreamOptions& out) {
                              return Store(ReadBool(value, param), out.include_usage);
                            }),
    Ignored<StreamOptions>("include_obfuscation"),
    Refused<StreamOptions>("continuous_usage_stats", "false"),
};

MaybeError ParseStreamOptions(const Json& value, std::string_view param, GenerationFields& out) {
  if (!value.is_object()) return TypeError(param, "an object", value);
  StreamOptions options;
  if (auto error = ApplyAll(std::span<const Field<StreamOptions>>(kStreamOptionsFields), value,
                            param, options)) {
    return error;
  }
  out.include_usage = options.include_usage;
  return std::nullopt;
}

// ---- Fields of every request that generates

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

MaybeError ParseStop(const Json& value, std::string_view param, GenerationFields& out) {
  if (!value.is_string() && !value.is_array()) {
    return TypeError(param, "a string or a list of strings", value);
  }
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > kStopStringsMax) {
    return ValueError(
        param, fmt::format("at most {} strings are allowed, got {}", kStopStringsMax, list.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name =
        value.is_array() ? fmt::format("{}[{}]", param, i) : std::string(param);
    ApiResult<std::string> text = ReadString(list[i], name);
    if (!text.ok()) return text.error();
    if (text.value().empty()) return ValueError(name, "a stop string must not be empty");
    if (text.value().size() > StopMatcher::kMaxStringBytes) {
      return ValueError(name, fmt::format("a stop string may have {} bytes, got {}",
                                          StopMatcher::kMaxStringBytes, text.value().size()));
    }
    out.stop.push_back(std::move(text.value()));
  }
  return std::nullopt;
}

MaybeError ParseMaxTokens(const Json& value, std::string_view param, GenerationFields& out) {
  int32_t limit = 0;
  if (auto error = Store(ReadInteger(value, param, 1, kInt32Max), limit)) return error;
  if (out.max_tokens && *out.max_tokens != limit) {
    return ValueError(param, "max_tokens and max_completion_tokens differ: give one");
  }
  out.max_tokens = limit;
  return std::nullopt;
}

MaybeError ParseTopP(const Json& value, std::string_view param, GenerationFields& out) {
  if (auto error = Store(ReadNumber(value, param, 0.0, 1.0), out.top_p)) return error;
  if (*out.top_p == 0.0) return ValueError(param, "0 would leave no token: use temperature 0");
  return std::nullopt;
}

MaybeError ParseTopK(const Json& value, std::string_view param, GenerationFields& out) {
  if (auto error = Store(ReadInteger(value, param, -1, kInt32Max), out.top_k)) return error;
  if (*out.top_k == -1) out.top_k = 0;
  return std::nullopt;
}

MaybeError ParseN(const Json& value, std::string_view param, GenerationFields&) {
  int64_t n = 0;
  if (auto error = Store(ReadInteger(value, param, 1, kInt32Max), n)) return error;
  if (n == 1) return std::nullopt;
  return FieldError("unsupported_value", std::string(param),
                    fmt::format("Unsupported value for '{}': only 1 is supported.", param));
}

constexpr Field<GenerationFields> kGenerationFields[] = {
    Honoured<GenerationFields>(
        "model", [](const Json& value, std::string_view param,
                    GenerationFields& out) { return Store(ReadString(value, param), out.model); }),
    Honoured<GenerationFields>("max_completion_tokens", ParseMaxTokens),
    Honoured<GenerationFields>("max_tokens", ParseMaxTokens),
    Honoured<GenerationFields>(
        "temperature",
        [](const Json& value, std::string_view param, GenerationFields& out) {
          return Store(ReadNumber(value, param, 0.0, 2.0), out.temperature);
        }),
    Honoured<GenerationFields>("top_p", ParseTopP),
    Honoured<GenerationFields>("top_k", ParseTopK),
    Honoured<GenerationFields>(
        "seed", [](const Json& value, std::string_view param,
                   GenerationFields& out) { return Store(ReadInteger(value, param), out.seed); }),
    Honoured<GenerationFields>("stop", ParseStop),
    Honoured<GenerationFields>(
        "stream", [](const Json& value, std::string_view param,
                     GenerationFields& out) { return Store(ReadBool(value, param), out.stream); }),
    Honoured<GenerationFields>("stream_options", ParseStreamOptions),
    Honoured<GenerationFields>("n", ParseN),
    Ignored<GenerationFields>("user"),
    Ignored<GenerationFields>("metadata"),
    Ignored<GenerationFields>("store"),
    Ignored<GenerationFields>("service_tier"),
    Ignored<GenerationFields>("safety_identifier"),
    Ignored<GenerationFields>("prompt_cache_key"),
    Ignored<GenerationFields>("prompt_cache_options"),
    Ignored<GenerationFields>("prompt_cache_retention"),
    Refused<GenerationFields>("frequency_penalty", "0"),
    Refused<GenerationFields>("presence_penalty", "0"),
    Refused<GenerationFields>("repetition_penalty", "1"),
    Refused<GenerationFields>("min_p", "0"),
    Refused<GenerationFields>("logit_bias", "{}"),
    Refused<GenerationFields>("best_of", "1"),
    Refused<GenerationFields>("use_beam_search", "false"),
    Refused<GenerationFields>("ignore_eos", "false"),
    Refused<GenerationFields>("min_tokens", "0"),
    Refused<GenerationFields>("stop_token_ids", "[]"),
    Refused<GenerationFields>("include_stop_str_in_output", "false"),
    Refused<GenerationFields>("skip_special_tokens", "true"),
    Refused<GenerationFields>("return_token_ids", "false"),
    Refused<GenerationFields>("truncate_prompt_tokens"),
    Refused<GenerationFields>("structured_outputs"),
    Refused<GenerationFields>("guided_json"),
    Refused<GenerationFields>("guided_regex"),
    Refused<GenerationFields>("guided_choice"),
    Refused<GenerationFields>("guided_grammar"),
    Refused<GenerationFields>("cache_salt"),
    Refused<GenerationFields>("priority", "0"),
    Refused<GenerationFields>("kv_transfer_params"),
};

// ---- Messages

MaybeError ParseRole(const Json& value, std::string_view param, ChatMessage& out) {
  if (auto error = Store(ReadString(value, param), out.role)) return error;
  if (out.role == "developer") out.role = "system";
  if (out.role == "system" || out.role == "user" || out.role == "assistant") return std::nullopt;
  if (out.role == "tool" || out.role == "function") {
    return FieldError("unsupported_value", std::string(param),
                      fmt::format("Unsupported value for '{}': tools are not supported by this "
                                  "server.",
                                  param));
  }
  return ValueError(param, fmt::format("'{}' is not one of system, developer, user, assistant",
                                       Shorten(out.role)));
}

MaybeError ParsePart(const Json& part, const std::string& param, std::string& text) {
  if (!part.is_object()) return TypeError(param, "an object", part);
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) {
    return FieldError("missing_required_parameter", param + ".type",
                      fmt::format("'{}.type' must name the kind of part.", param));
  }
  if (*type != "text") {
    return FieldError("unsupported_value", param + ".type",
                      fmt::format("Parts of type '{}' are not supported by this server: only text.",
                                  Shorten(type->get_ref<const std::string&>())));
  }
  for (const auto& [name, value] : part.items()) {
    if (name == "type" || name == "text" || value.is_null()) continue;
    constexpr std::string_view kKnown[] = {"type", "text"};
    return Unknown(fmt::format("{}.{}", param, Shorten(name)), name, kKnown);
  }
  const auto content = part.find("text");
  if (content == part.end()) {
    return FieldError("missing_required_parameter", param + ".text",
                      fmt::format("'{}.text' is missing.", param));
  }
  return Store(ReadString(*content, param + ".text"), text);
}

MaybeError ParseContent(const Json& value, std::string_view param, ChatMessage& out) {
  if (value.is_string()) return Store(ReadString(value, param), out.content);
  if (!value.is_array()) return TypeError(param, "a string or a list of parts", value);
  if (value.empty()) return ValueError(param, "the list of parts is empty");
  for (size_t i = 0; i < value.size(); ++i) {
    std::string text;
    if (auto error = ParsePart(value[i], fmt::format("{}[{}]", param, i), text)) return error;
    if (i > 0) out.content += '\n';
    out.content += text;
  }
  return std::nullopt;
}

constexpr Field<ChatMessage> kMessageFields[] = {
    Honoured<ChatMessage>("role", ParseRole),
    Honoured<ChatMessage>("content", ParseContent),
    Ignored<ChatMessage>("name"),
    Refused<ChatMessage>("refusal"),
    Refused<ChatMessage>("annotations", "[]"),
    Refused<ChatMessage>("audio"),
    Refused<ChatMessage>("function_call"),
    Refused<ChatMessage>("tool_calls", "[]"),
    Refused<ChatMessage>("tool_call_id"),
    Refused<ChatMessage>("reasoning_content", "\"\""),
};

MaybeError RequireMember(const Json& object, std::string_view name, const std::string& param) {
  const auto it = object.find(name);
  if (it != object.end() && !it->is_null()) return std::nullopt;
  return FieldError("missing_required_parameter", param,
                    fmt::format("Missing required parameter: '{}'.", param));
}

MaybeError ParseMessages(const Json& value, std::string_view param, ChatRequest& out) {
  if (!value.is_array()) return TypeError(param, "a list of messages", value);
  if (value.empty()) return ValueError(param, "the list is empty, at least one message is needed");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!value[i].is_object()) return TypeError(name, "an object", value[i]);
    for (const std::string_view member : {"role", "content"}) {
      if (auto error = RequireMember(value[i], member, fmt::format("{}.{}", name, member))) {
        return error;
      }
    }
    ChatMessage message;
    if (auto error = ApplyAll(std::span<const Field<ChatMessage>>(kMessageFields), value[i], name,
                              message)) {
      return error;
    }
    out.messages.push_back(std::move(message));
  }
  return std::nullopt;
}

constexpr Field<ChatRequest> kChatFields[] = {
    Honoured<ChatRequest>("messages", ParseMessages),
    Ignored<ChatRequest>("parallel_tool_calls"),
    Refused<ChatRequest>("logprobs", "false"),
    Refused<ChatRequest>("top_logprobs", "0"),
    Refused<ChatRequest>("response_format", R"({"type": "text"})"),
    Refused<ChatRequest>("tools", "[]"),
    Refused<ChatRequest>("tool_choice", R"("none")"),
    Refused<ChatRequest>("functions", "[]"),
    Refused<ChatRequest>("function_call", R"("none")"),
    Refused<ChatRequest>("audio"),
    Refused<ChatRequest>("modalities", R"(["text"])"),
    Refused<ChatRequest>("moderation"),
    Refused<ChatRequest>("prediction"),
    Refused<ChatRequest>("reasoning_effort"),
    Refused<ChatRequest>("verbosity"),
    Refused<ChatRequest>("web_search_options"),
    Refused<ChatRequest>("chat_template"),
    Refused<ChatRequest>("chat_template_kwargs", "{}"),
    Refused<ChatRequest>("add_generation_prompt", "true"),
    Refused<ChatRequest>("continue_final_message", "false"),
    Refused<ChatRequest>("documents", "[]"),
    Refused<ChatRequest>("echo", "false"),
    Refused<ChatRequest>("include_reasoning"),
};

std::span<const Field<ChatRequest>> ChatFields() { return kChatFields; }
std::span<const Field<GenerationFields>> CommonFields() { return kGenerationFields; }

MaybeError ApplyMember(const std::string& name, const Json& value, ChatRequest& out) {
  if (const auto* field = Find(ChatFields(), name)) return Apply(*field, value, name, out);
  if (const auto* field = Find(CommonFields(), name)) {
    return Apply<GenerationFields>(*field, value, name, out);
  }
  std::vector<std::string_view> known = Names(ChatFields());
  for (const std::string_view common : Names(CommonFields())) known.push_back(common);
  return Unknown(Shorten(name), name, known);
}

template <typename Target>
void AppendInfo(std::span<const Field<Target>> fields, std::vector<FieldInfo>& out) {
  for (const auto& field : fields) out.push_back({field.name, field.use, field.neutral});
}

}  // namespace

std::string_view NameOf(FieldUse use) {
  switch (use) {
    case FieldUse::kHonoured: return "honoured";
    case FieldUse::kIgnored: return "ignored";
    case FieldUse::kRefused: return "refused";
  }
  return "unknown";
}

ApiResult<ChatRequest> ParseChatRequest(std::string_view body) {
  ApiResult<Json> parsed = ParseJsonObject(body, kJsonDepthMax);
  if (!parsed.ok()) return parsed.error();
  const Json& object = parsed.value();
  for (const std::string_view name : {"model", "messages"}) {
    if (auto error = RequireMember(object, name, std::string(name))) return *error;
  }
  ChatRequest request;
  for (const auto& [name, value] : object.items()) {
    if (auto error = ApplyMember(name, value, request)) return *error;
  }
  const auto options = object.find("stream_options");
  if (!request.stream && options != object.end() && !options->is_null()) {
    return ValueError("stream_options", "it is allowed only with \"stream\": true");
  }
  return request;
}

std::vector<FieldInfo> ChatRequestFields() {
  std::vector<FieldInfo> out;
  AppendInfo(ChatFields(), out);
  AppendInfo(CommonFields(), out);
  return out;
}

std::vector<FieldInfo> ChatMessageFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<ChatMessage>>(kMessageFields), out);
  return out;
}

std::vector<FieldInfo> StreamOptionsFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<StreamOptions>>(kStreamOptionsFields), out);
  return out;
}

}  // namespace tandem
