#include "server/chat_request.h"

#include <array>
#include <limits>

#include "server/chat_message.h"
#include "server/generation_table.h"
#include "server/rendering_table.h"

namespace tandem {
namespace {

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();

constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                      "medium", "high",    "xhigh"};

constexpr Field<RenderingFields> kRenderingTable[] = {
    Honoured<RenderingFields>(
        "messages",
        R"({"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}})",
        [](const Json& value, std::string_view param, const FieldType&, RenderingFields& out) {
          return ParseMessages(value, param, out.messages);
        },
        /*required=*/true),
    Honoured<RenderingFields>(
        "tools",
        R"({"type": "array", "maxItems": 128, "items": {"$ref": "#/components/schemas/Tool"}})",
        [](const Json& value, std::string_view param, const FieldType&, RenderingFields& out) {
          return ParseTools(value, param, out.tools);
        }),
    Honoured<RenderingFields>(
        "chat_template_kwargs",
        R"({"type": "object",
            "propertyNames": {"not": {"enum": ["messages", "tools", "add_generation_prompt",
                                               "bos_token", "eos_token"]}}})",
        [](const Json& value, std::string_view param, const FieldType&, RenderingFields& out) {
          if (!value.is_object()) return MaybeError(TypeError(param, "an object", value));
          out.chat_template_kwargs = value;
          return MaybeError();
        }),
    BoolField<&RenderingFields::add_generation_prompt>("add_generation_prompt"),
    BoolField<&RenderingFields::continue_final_message>("continue_final_message"),
    Refused<RenderingFields>("chat_template"),
    Refused<RenderingFields>("mm_processor_kwargs", "{}"),
};

MaybeError ParseEffort(const Json& value, std::string_view param, const FieldType&,
                       ChatRequest& out) {
  if (auto error = Store(ReadString(value, param), out.reasoning_effort)) return error;
  if (std::find(kEfforts.begin(), kEfforts.end(), out.reasoning_effort) != kEfforts.end()) {
    return std::nullopt;
  }
  return ValueError(param, fmt::format("'{}' is not one of {}", Shorten(out.reasoning_effort),
                                       fmt::join(kEfforts, ", ")));
}

constexpr FieldType kLimitType = {FieldType::Kind::kInteger, 1, kInt32Max};

constexpr Field<ChatRequest> kChatTable[] = {
    {"max_completion_tokens", FieldUse::kHonoured, {}, kLimitType, ParseMaxTokens<ChatRequest>},
    {"max_tokens", FieldUse::kHonoured, {}, kLimitType, ParseMaxTokens<ChatRequest>},
    Honoured<ChatRequest>(
        "tool_choice", R"({"$ref": "#/components/schemas/ToolChoice"})",
        [](const Json& value, std::string_view param, const FieldType&, ChatRequest& out) {
          return ParseToolChoice(value, param, out.tool_choice);
        }),
    BoolField<&ChatRequest::parallel_tool_calls>("parallel_tool_calls"),
    BoolField<&ChatRequest::logprobs>("logprobs"),
    IntegerField<&ChatRequest::top_logprobs>("top_logprobs", 0, kMaxTopLogprobs),
    Honoured<ChatRequest>("reasoning_effort",
                          R"({"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]})",
                          ParseEffort),
    BoolField<&ChatRequest::include_reasoning>("include_reasoning"),
    Refused<ChatRequest>("functions", "[]"),
    Refused<ChatRequest>("function_call", R"("none")"),
    Refused<ChatRequest>("audio"),
    Refused<ChatRequest>("modalities", R"(["text"])"),
    Refused<ChatRequest>("moderation"),
    Refused<ChatRequest>("prediction"),
    Refused<ChatRequest>("verbosity", R"("medium")"),
    Refused<ChatRequest>("web_search_options"),
    Refused<ChatRequest>("documents", "[]"),
    Refused<ChatRequest>("echo", "false"),
    Refused<ChatRequest>("add_special_tokens", "false"),
    Refused<ChatRequest>("best_of", "1"),
    Refused<ChatRequest>("suffix"),
};

std::span<const Field<ChatRequest>> ChatTable() { return kChatTable; }

}  // namespace

std::span<const Field<RenderingFields>> RenderingTable() { return kRenderingTable; }

MaybeError CheckRendering(const Json& body, RenderingFields& fields) {
  if (!fields.continue_final_message) return std::nullopt;
  if (fields.messages.back().at("role") != "assistant") {
    return ValueError("continue_final_message", "the last message is not the assistant's");
  }
  const auto given = body.find("add_generation_prompt");
  if (given != body.end() && *given == true) {
    return ValueError("continue_final_message",
                      "it cannot go with \"add_generation_prompt\": true");
  }
  fields.add_generation_prompt = false;
  return std::nullopt;
}

ApiResult<ChatRequest> ParseChatRequest(std::string_view body) {
  ApiResult<Json> parsed = ParseJsonObject(body);
  if (!parsed.ok()) return parsed.error();
  const Json& object = parsed.value();
  ChatRequest request;
  if (auto error =
          ApplyAll(object, "", request, ChatTable(), RenderingTable(), GenerationTable())) {
    return *error;
  }
  if (auto error = CheckGeneration(object, request)) return *error;
  if (auto error = CheckRendering(object, request)) return *error;
  if (auto error = CheckToolChoice(request.tools, request.tool_choice)) return *error;
  if (request.top_logprobs > 0 && !request.logprobs) {
    return ValueError("top_logprobs", "it is allowed only with \"logprobs\": true");
  }
  return request;
}

std::vector<FieldInfo> RenderingFieldInfos() {
  std::vector<FieldInfo> out;
  AppendInfo(RenderingTable(), out);
  return out;
}

std::vector<FieldInfo> ChatRequestFields() {
  std::vector<FieldInfo> out;
  AppendInfo(ChatTable(), out);
  return out;
}

}  // namespace tandem
