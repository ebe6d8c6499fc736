#include "server/tokenize_request.h"

#include <limits>

#include "server/rendering_table.h"

namespace tandem {
namespace {

constexpr Field<TokenizeRequest> kTokenizeTable[] = {
    StringField<&TokenizeRequest::model>("model"),
    StringField<&TokenizeRequest::prompt>("prompt"),
    BoolField<&TokenizeRequest::add_special_tokens>("add_special_tokens"),
    BoolField<&TokenizeRequest::return_token_strs>("return_token_strs"),
};

constexpr Field<DetokenizeRequest> kDetokenizeTable[] = {
    StringField<&DetokenizeRequest::model>("model"),
    Honoured<DetokenizeRequest>(
        "tokens", R"({"type": "array", "items": {"type": "integer", "minimum": 0}})",
        [](const Json& value, std::string_view param, const FieldType&, DetokenizeRequest& out) {
          if (!value.is_array()) return MaybeError(TypeError(param, "a list of token ids", value));
          for (size_t i = 0; i < value.size(); ++i) {
            ApiResult<int64_t> id = ReadInteger(value[i], fmt::format("{}[{}]", param, i), 0,
                                                std::numeric_limits<int32_t>::max());
            if (!id.ok()) return MaybeError(id.error());
            out.tokens.emplace_back(static_cast<int32_t>(id.value()));
          }
          return MaybeError();
        },
        /*required=*/true),
};

// The same rows, none of them required: a prompt may stand for them.
std::vector<Field<RenderingFields>> OptionalRenderingTable() {
  std::vector<Field<RenderingFields>> table(RenderingTable().begin(), RenderingTable().end());
  for (auto& field : table) field.required = false;
  return table;
}

}  // namespace

ApiResult<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  ApiResult<Json> parsed = ParseJsonObject(body);
  if (!parsed.ok()) return parsed.error();
  const Json& object = parsed.value();
  TokenizeRequest request;
  const std::vector<Field<RenderingFields>> rendering = OptionalRenderingTable();
  if (auto error =
          ApplyAll(object, "", request, std::span<const Field<TokenizeRequest>>(kTokenizeTable),
                   std::span<const Field<RenderingFields>>(rendering))) {
    return *error;
  }
  const bool chat = !request.messages.empty();
  if (!request.prompt && !chat) return MissingError("prompt");
  if (request.prompt && chat) return ValueError("messages", "give it or prompt, not both");
  if (chat) {
    if (auto error = CheckRendering(object, request)) return *error;
  }
  size_t bytes = chat ? 0 : request.prompt->size();
  for (const Json& message : request.messages) {
    bytes += message.at("content").get_ref<const std::string&>().size();
  }
  if (bytes > kTokenizeBytesMax) {
    return ValueError(
        chat ? "messages" : "prompt",
        fmt::format("{} bytes of text: at most {} are allowed", bytes, kTokenizeBytesMax));
  }
  return request;
}

ApiResult<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body) {
  ApiResult<Json> parsed = ParseJsonObject(body);
  if (!parsed.ok()) return parsed.error();
  DetokenizeRequest request;
  if (auto error = ApplyAll(parsed.value(), "", request,
                            std::span<const Field<DetokenizeRequest>>(kDetokenizeTable))) {
    return *error;
  }
  return request;
}

std::vector<FieldInfo> TokenizeRequestFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<TokenizeRequest>>(kTokenizeTable), out);
  return out;
}

std::vector<FieldInfo> DetokenizeRequestFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<DetokenizeRequest>>(kDetokenizeTable), out);
  return out;
}

}  // namespace tandem
