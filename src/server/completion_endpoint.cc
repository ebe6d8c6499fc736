#include "server/completion_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/completion_answer.h"
#include "server/completion_request.h"
#include "text/detokenizer.h"

namespace tandem {
namespace {

std::string ParamOf(const CompletionRequest& request, size_t index) {
  return request.prompt_is_list ? fmt::format("prompt[{}]", index) : "prompt";
}

// Tokens as text, and where each of them begins. The begin-of-text token that encoding put before a
// text is no part of it.
void AddEcho(const Tokenizer& tokenizer, bool hide_special, bool hide_first,
             CompletionPrompt& prompt) {
  IncrementalDetokenizer detokenizer(tokenizer);
  int64_t chars = 0;
  bool at_start = true;
  for (size_t i = 0; i < prompt.tokens.size(); ++i) {
    TextToken& token = prompt.text_tokens.emplace_back();
    token.token = prompt.tokens[i];
    token.text_begin = chars;
    token.hidden = (hide_special && tokenizer.IsControl(token.token)) || (i == 0 && hide_first);
    if (token.hidden) continue;
    token.at_start = std::exchange(at_start, false);
    const std::string piece = detokenizer.Append(token.token, /*skip_special=*/false);
    chars += CountChars(piece);
    prompt.text += piece;
  }
  prompt.text += detokenizer.Flush();
}

ApiResult<CompletionPrompt> EncodePrompt(const ServerState& state, const CompletionRequest& request,
                                         size_t index) {
  const std::string param = ParamOf(request, index);
  const Tokenizer& tokenizer = *state.model.tokenizer;
  CompletionPrompt prompt;
  const auto* text = std::get_if<std::string>(&request.prompts[index]);
  if (text) {
    if (auto error = CheckTextLength(state, text->size(), param)) return *error;
    prompt.tokens =
        tokenizer.Encode(*text, {.add_special = request.add_special_tokens, .parse_special = true});
  } else {
    prompt.tokens = std::get<std::vector<TokenId>>(request.prompts[index]);
    if (auto error = CheckTokens(state, prompt.tokens, param)) return *error;
  }
  // To have its own tokens scored, a prompt is run with one token of answer, which is dropped.
  const std::optional<int32_t> limit =
      request.max_tokens ? std::optional(std::max(1, *request.max_tokens)) : std::nullopt;
  if (auto error = CheckContext(state, static_cast<int64_t>(prompt.tokens.size()), limit, param)) {
    return *error;
  }
  if (!request.echo) return prompt;
  const bool hide_first = text && request.add_special_tokens && tokenizer.bos().has_value() &&
                          prompt.tokens.front() == *tokenizer.bos() &&
                          !text->starts_with(tokenizer.TokenBytes(*tokenizer.bos()));
  AddEcho(tokenizer, !text && request.skip_special_tokens, hide_first, prompt);
  if (text) prompt.text = *text;
  return prompt;
}

}  // namespace

ApiResult<AnswerPlan> PlanCompletion(ServerState& state, std::string_view body,
                                     const RequestContext& context) {
  ApiResult<CompletionRequest> parsed = ParseCompletionRequest(body);
  if (!parsed.ok()) return parsed.error();
  const CompletionRequest& request = parsed.value();
  if (auto error = CheckModel(state, request.model)) return *error;
  if (auto error = CheckTokenFields(state, request)) return *error;

  CompletionAnswerOptions answer;
  answer.identity = NewIdentity(state, "cmpl-", request.model);
  answer.usage_mode = request.usage_mode();
  answer.stream = request.stream;
  answer.samples = static_cast<size_t>(request.n);
  answer.echo = request.echo;
  answer.discard_output = request.max_tokens == 0;
  answer.logprobs = request.logprobs.has_value();
  answer.top_logprobs = request.logprobs.value_or(0);
  answer.return_token_ids = request.return_token_ids;

  AnswerPlan plan;
  plan.stream = request.stream;
  plan.usage_at_end = request.include_usage;
  plan.count_output = !answer.discard_output;
  Request base = BuildRequest(state, request, context);
  base.sampling.top_logprobs = request.logprobs.value_or(-1);
  base.prompt_logprobs = request.echo && request.logprobs.has_value();
  const TextOptions text = BuildTextOptions(state, request);
  const int32_t context_tokens = state.engine.max_context_tokens();
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    ApiResult<CompletionPrompt> prompt = EncodePrompt(state, request, i);
    if (!prompt.ok()) return prompt.error();
    base.prompt = prompt.value().tokens;
    const int32_t place = context_tokens - static_cast<int32_t>(base.prompt.size());
    base.max_output_tokens =
        std::max(1, request.max_tokens.value_or(std::min(kCompletionTokensDefault, place)));
    AddSamples(base, text, request.n, plan);
    answer.prompts.push_back(std::move(prompt.value()));
  }
  plan.body = std::make_unique<CompletionAnswer>(state.model.tokenizer, std::move(answer));
  return plan;
}

}  // namespace tandem
