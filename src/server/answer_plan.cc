#include "server/answer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "server/answer_body.h"
#include "server/json_body.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

ApiError ContextError(std::string_view param, std::string message) {
  return FieldError("context_length_exceeded", std::string(param), std::move(message));
}

// What the body says before what the header says. Never 0 for what is above it.
std::optional<TimeNs> DurationOf(std::optional<double> field_ms, std::optional<double> header_ms) {
  const std::optional<double> ms = field_ms ? field_ms : header_ms;
  if (!ms) return std::nullopt;
  return static_cast<TimeNs>(std::ceil(*ms * static_cast<double>(kNsPerMs)));
}

}  // namespace

AnswerPlan::AnswerPlan() = default;
AnswerPlan::AnswerPlan(AnswerPlan&&) noexcept = default;
AnswerPlan& AnswerPlan::operator=(AnswerPlan&&) noexcept = default;
AnswerPlan::~AnswerPlan() = default;

AnswerIdentity NewIdentity(ServerState& state, std::string_view id_prefix, std::string_view model) {
  return {state.NewId(id_prefix), static_cast<int64_t>(std::time(nullptr)), std::string(model),
          state.model.fingerprint};
}

std::optional<ApiError> CheckModel(const ServerState& state, std::string_view model) {
  if (state.model.Answers(model)) return std::nullopt;
  return ModelNotFound(model);
}

std::optional<ApiError> CheckTokens(const ServerState& state, const std::vector<TokenId>& tokens,
                                    std::string_view param) {
  const Tokenizer& tokenizer = *state.model.tokenizer;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokenizer.Contains(tokens[i])) continue;
    return ValueError(
        fmt::format("{}[{}]", param, i),
        fmt::format("{} is no token: the model has {}", tokens[i].value(), tokenizer.vocab_size()));
  }
  return std::nullopt;
}

std::optional<ApiError> CheckTokenFields(const ServerState& state, const GenerationFields& fields) {
  if (auto error = CheckTokens(state, fields.stop_token_ids, "stop_token_ids")) return error;
  const Tokenizer& tokenizer = *state.model.tokenizer;
  for (const LogitBias& entry : fields.logit_bias) {
    if (tokenizer.Contains(entry.token)) continue;
    return ValueError("logit_bias", fmt::format("{} is no token: the model has {}",
                                                entry.token.value(), tokenizer.vocab_size()));
  }
  return std::nullopt;
}

std::optional<ApiError> CheckContext(const ServerState& state, int64_t prompt_tokens,
                                     std::optional<int32_t> max_tokens, std::string_view param) {
  const int64_t context = state.engine.max_context_tokens();
  if (prompt_tokens == 0) return ValueError(param, "the prompt is empty");
  if (prompt_tokens >= context) {
    return ContextError(
        param, fmt::format("This model's maximum context length is {} tokens, but the {} {} {} "
                           "tokens, which leaves no place for an answer. Please shorten {}.",
                           context, param, param == "messages" ? "have" : "has", prompt_tokens,
                           param == "messages" ? "them" : "it"));
  }
  if (max_tokens && prompt_tokens + *max_tokens > context) {
    return ContextError(
        param, fmt::format("This model's maximum context length is {} tokens, but {} were "
                           "requested: {} in the {} and {} for the answer. Please shorten the {} "
                           "or the answer.",
                           context, prompt_tokens + *max_tokens, prompt_tokens, param, *max_tokens,
                           param));
  }
  return std::nullopt;
}

std::optional<ApiError> CheckTextLength(const ServerState& state, size_t bytes,
                                        std::string_view param) {
  const int64_t context = state.engine.max_context_tokens();
  const size_t per_token = std::max<size_t>(state.model.tokenizer->max_token_bytes(), 1);
  const auto tokens = static_cast<int64_t>(bytes / per_token);
  if (tokens < context) return std::nullopt;
  return ContextError(
      param, fmt::format("This model's maximum context length is {} tokens, but the {} {} at least "
                         "{} tokens. Please shorten {}.",
                         context, param, param == "messages" ? "have" : "has", tokens,
                         param == "messages" ? "them" : "it"));
}

Request BuildRequest(ServerState& state, const GenerationFields& fields,
                     const RequestContext& context) {
  Request request;
  request.arrival = context.arrival;
  request.deadline = DurationOf(fields.deadline_ms, context.deadline_ms);
  request.ttft_target = DurationOf(fields.ttft_target_ms, context.ttft_target_ms);
  request.cache_salt = fields.cache_salt.value_or("");
  // All tenants' names are equally long, so no salt can make one tenant's into another's.
  if (!context.tenant.empty()) request.cache_salt = context.tenant + ":" + request.cache_salt;
  SamplingParams& sampling = request.sampling;
  sampling = state.model.default_sampling;
  const auto set = [](const auto& given, auto& value) {
    if (given) value = *given;
  };
  set(fields.temperature, sampling.temperature);
  set(fields.top_p, sampling.top_p);
  set(fields.min_p, sampling.min_p);
  set(fields.repetition_penalty, sampling.repetition_penalty);
  set(fields.presence_penalty, sampling.presence_penalty);
  set(fields.frequency_penalty, sampling.frequency_penalty);
  if (fields.top_k) sampling.top_k = std::max(0, *fields.top_k);
  sampling.min_tokens = fields.min_tokens;
  sampling.top_logprobs = -1;
  sampling.seed = fields.seed ? static_cast<uint64_t>(*fields.seed) : state.NewSeed();
  request.logit_bias = fields.logit_bias;
  if (!fields.ignore_eos) request.stop_tokens = state.model.stop_tokens;
  for (const TokenId token : fields.stop_token_ids) {
    auto& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) == stops.end()) stops.push_back(token);
  }
  return request;
}

TextOptions BuildTextOptions(const ServerState& state, const GenerationFields& fields) {
  TextOptions options;
  const std::vector<TokenId>& own = state.model.stop_tokens;
  for (const TokenId token : fields.stop_token_ids) {
    if (fields.ignore_eos || std::find(own.begin(), own.end(), token) == own.end()) {
      options.named_stop_tokens.push_back(token);
    }
  }
  options.stop = fields.stop;
  options.include_stop = fields.include_stop_str_in_output;
  options.hide_special = fields.skip_special_tokens;
  options.min_tokens = fields.min_tokens;
  options.report_tokens = fields.return_token_ids;
  return options;
}

void AddSamples(const Request& request, const TextOptions& text, int32_t n, AnswerPlan& plan) {
  plan.samples = static_cast<size_t>(n);
  for (int32_t i = 0; i < n; ++i) {
    TextGeneration::Options& choice = plan.choices.emplace_back();
    choice.request = request;
    choice.request.sample_index = static_cast<uint32_t>(i);
    choice.text = text;
    if (request.sampling.wants_logprobs()) {
      choice.text.logprobs_per_token = request.sampling.top_logprobs + 1;
      choice.text.report_tokens = true;
    }
  }
  plan.prompt_tokens += static_cast<int32_t>(request.prompt.size());
}

}  // namespace tandem
