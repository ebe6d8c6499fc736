#include "server/tokenize_endpoint.h"

#include <utility>

#include "server/answer_plan.h"
#include "server/token_json.h"
#include "server/tokenize_request.h"
#include "text/detokenizer.h"

namespace tandem {
namespace {

ApiResult<std::vector<TokenId>> TokensOf(const ServerState& state, const TokenizeRequest& request) {
  if (request.prompt) {
    return state.model.tokenizer->Encode(
        *request.prompt,
        {.add_special = request.add_special_tokens.value_or(true), .parse_special = true});
  }
  if (const auto reserved = ChatPrompt::ReservedVariable(request.chat_template_kwargs)) {
    return ValueError("chat_template_kwargs." + std::string(*reserved),
                      "a request sets this in other ways");
  }
  Result<EncodedPrompt> prompt =
      state.prompt.Encode(request, {}, request.add_special_tokens.value_or(false));
  if (!prompt.ok()) {
    ApiError error = ToApiError(prompt.status());
    if (error.http_status == 400) error.param = "messages";
    if (prompt.status().code() == StatusCode::kOutOfRange) error.code = "invalid_value";
    return error;
  }
  return std::move(prompt->tokens);
}

}  // namespace

ApiResult<std::string> Tokenize(ServerState& state, std::string_view body) {
  ApiResult<TokenizeRequest> parsed = ParseTokenizeRequest(body);
  if (!parsed.ok()) return parsed.error();
  const TokenizeRequest& request = parsed.value();
  if (!request.model.empty()) {
    if (auto error = CheckModel(state, request.model)) return *error;
  }
  ApiResult<std::vector<TokenId>> tokens = TokensOf(state, request);
  if (!tokens.ok()) return tokens.error();
  Json ids = Json::array();
  Json texts = Json::array();
  for (const TokenId token : tokens.value()) {
    ids.push_back(token.value());
    if (!request.return_token_strs) continue;
    texts.push_back(ChatTokenName(state.model.tokenizer->TokenBytes(token)));
  }
  return DumpJson({{"count", ids.size()},
                   {"max_model_len", state.engine.max_context_tokens()},
                   {"tokens", std::move(ids)},
                   {"token_strs", request.return_token_strs ? std::move(texts) : Json(nullptr)}});
}

ApiResult<std::string> Detokenize(ServerState& state, std::string_view body) {
  ApiResult<DetokenizeRequest> parsed = ParseDetokenizeRequest(body);
  if (!parsed.ok()) return parsed.error();
  const DetokenizeRequest& request = parsed.value();
  if (!request.model.empty()) {
    if (auto error = CheckModel(state, request.model)) return *error;
  }
  if (auto error = CheckTokens(state, request.tokens, "tokens")) return *error;
  IncrementalDetokenizer detokenizer(*state.model.tokenizer);
  std::string text;
  for (const TokenId token : request.tokens) {
    text += detokenizer.Append(token, /*skip_special=*/false);
  }
  text += detokenizer.Flush();
  return DumpJson({{"prompt", std::move(text)}});
}

}  // namespace tandem
