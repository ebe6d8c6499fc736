#include "server/completion_request.h"

#include <limits>

#include "server/generation_table.h"

namespace tandem {
namespace {

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();

ApiResult<std::vector<TokenId>> ReadTokens(const Json& list, const std::string& param) {
  if (list.empty()) return ValueError(param, "the list of tokens is empty");
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    ApiResult<int64_t> id = ReadInteger(list[i], fmt::format("{}[{}]", param, i), 0,
                                        std::numeric_limits<int32_t>::max());
    if (!id.ok()) return id.error();
    tokens.emplace_back(static_cast<int32_t>(id.value()));
  }
  return tokens;
}

// A text, or a list of token ids.
MaybeError AddPrompt(const Json& value, const std::string& param, CompletionRequest& out) {
  if (value.is_string()) {
    out.prompts.emplace_back(value.get<std::string>());
    return std::nullopt;
  }
  if (!value.is_array()) return TypeError(param, "a string or a list of token ids", value);
  ApiResult<std::vector<TokenId>> tokens = ReadTokens(value, param);
  if (!tokens.ok()) return tokens.error();
  out.prompts.emplace_back(std::move(tokens.value()));
  return std::nullopt;
}

MaybeError ParsePrompt(const Json& value, std::string_view param, const FieldType&,
                       CompletionRequest& out) {
  const std::string name(param);
  if (!value.is_array() || (!value.empty() && value[0].is_number())) {
    if (!value.is_array() && !value.is_string()) {
      return TypeError(param, "a string, a list of strings, or token ids", value);
    }
    return AddPrompt(value, name, out);
  }
  if (value.empty()) return ValueError(param, "the list is empty, at least one prompt is needed");
  if (value.size() > static_cast<size_t>(kChoicesMax)) {
    return ValueError(
        param, fmt::format("at most {} prompts are allowed, got {}", kChoicesMax, value.size()));
  }
  out.prompt_is_list = true;
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i].type() != value[0].type()) {
      return TypeError(fmt::format("{}[{}]", param, i),
                       fmt::format("{}, as the prompts before it", JsonTypeName(value[0])),
                       value[i]);
    }
    if (auto error = AddPrompt(value[i], fmt::format("{}[{}]", param, i), out)) return error;
  }
  return std::nullopt;
}

MaybeError CheckBestOf(const CompletionRequest& request) {
  if (!request.best_of || *request.best_of == request.n) return std::nullopt;
  if (*request.best_of < request.n) {
    return ValueError("best_of", fmt::format("{} is below n, {}", *request.best_of, request.n));
  }
  return FieldError("unsupported_parameter", "best_of",
                    fmt::format("'best_of' above n is not supported by this server: {} of {}.",
                                request.n, *request.best_of));
}

constexpr Field<CompletionRequest> kTable[] = {
    Honoured<CompletionRequest>("prompt",
                                R"({"anyOf": [{"type": "string"},
                      {"type": "array", "minItems": 1, "maxItems": 256,
                       "items": {"type": "string"}},
                      {"$ref": "#/components/schemas/Tokens"},
                      {"type": "array", "minItems": 1, "maxItems": 256,
                       "items": {"$ref": "#/components/schemas/Tokens"}}]})",
                                ParsePrompt, /*required=*/true),
    {"max_tokens",
     FieldUse::kHonoured,
     {},
     {FieldType::Kind::kInteger, 0, kInt32Max},
     ParseMaxTokens<CompletionRequest>},
    BoolField<&CompletionRequest::echo>("echo"),
    IntegerField<&CompletionRequest::logprobs>("logprobs", 0, kMaxTopLogprobs),
    BoolField<&CompletionRequest::add_special_tokens>("add_special_tokens"),
    IntegerField<&CompletionRequest::best_of>("best_of", 1, kSamplesMax),
    Refused<CompletionRequest>("suffix", R"("")"),
    Refused<CompletionRequest>("prompt_embeds"),
};

std::span<const Field<CompletionRequest>> Table() { return kTable; }

}  // namespace

ApiResult<CompletionRequest> ParseCompletionRequest(std::string_view body) {
  ApiResult<Json> parsed = ParseJsonObject(body);
  if (!parsed.ok()) return parsed.error();
  const Json& object = parsed.value();
  CompletionRequest request;
  if (auto error = ApplyAll(object, "", request, Table(), GenerationTable())) return *error;
  if (auto error = CheckGeneration(object, request)) return *error;
  if (auto error = CheckBestOf(request)) return *error;
  if (request.max_tokens == 0 && !request.echo) {
    return ValueError("max_tokens", "0 is allowed only with \"echo\": true");
  }
  const int64_t choices = static_cast<int64_t>(request.prompts.size()) * request.n;
  if (choices > kChoicesMax) {
    return ValueError("n", fmt::format("{} prompts times {} are {} choices: at most {}",
                                       request.prompts.size(), request.n, choices, kChoicesMax));
  }
  return request;
}

std::vector<FieldInfo> CompletionRequestFields() {
  std::vector<FieldInfo> out;
  AppendInfo(Table(), out);
  return out;
}

}  // namespace tandem
