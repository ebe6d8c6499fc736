#include <cmath>

#include "sched/scheduler.h"

namespace tandem {
namespace {

Status ValidateSampling(const SamplingParams& p) {
  if (!std::isfinite(p.temperature) || p.temperature < 0) {
    return InvalidArgumentError("temperature is {}, must be at least 0", p.temperature);
  }
  if (p.top_k < 0) return InvalidArgumentError("top_k is {}, must be at least 0", p.top_k);
  if (!(p.top_p > 0 && p.top_p <= 1)) {
    return InvalidArgumentError("top_p is {}, must be above 0 and at most 1", p.top_p);
  }
  if (!(p.min_p >= 0 && p.min_p <= 1)) {
    return InvalidArgumentError("min_p is {}, must be from 0 to 1", p.min_p);
  }
  if (!std::isfinite(p.repetition_penalty) || p.repetition_penalty <= 0) {
    return InvalidArgumentError("the repetition penalty is {}, must be above 0",
                                p.repetition_penalty);
  }
  if (!std::isfinite(p.presence_penalty) || !std::isfinite(p.frequency_penalty)) {
    return InvalidArgumentError("presence and frequency penalty are {} and {}, must be finite",
                                p.presence_penalty, p.frequency_penalty);
  }
  if (p.min_tokens < 0) {
    return InvalidArgumentError("the least tokens are {}, must be at least 0", p.min_tokens);
  }
  if (p.top_logprobs > kMaxTopLogprobs) {
    return InvalidArgumentError("{} likeliest tokens, at most {} are allowed", p.top_logprobs,
                                kMaxTopLogprobs);
  }
  return OkStatus();
}

Status ValidateLogitBias(const Request& request, int32_t vocab_size) {
  if (request.logit_bias.size() > static_cast<size_t>(kMaxLogitBias)) {
    return InvalidArgumentError("{} logit biases, at most {} are allowed",
                                request.logit_bias.size(), kMaxLogitBias);
  }
  for (const LogitBias& entry : request.logit_bias) {
    if (entry.token.value() < 0 || entry.token.value() >= vocab_size) {
      return InvalidArgumentError(
          "token {} of the logit bias is not one of the {} of the vocabulary", entry.token,
          vocab_size);
    }
    if (!std::isfinite(entry.bias)) {
      return InvalidArgumentError("the logit bias of token {} is not finite", entry.token);
    }
  }
  return OkStatus();
}

}  // namespace

Status Scheduler::Validate(const Request& request) const {
  if (request.prompt.empty()) return InvalidArgumentError("the prompt is empty");
  if (request.send && port_ == nullptr) {
    return InvalidArgumentError("send {}: this node computes no prompts for others", *request.send);
  }
  if (request.send && config_.has_window_group()) {
    return UnimplementedError("the state of a model with window groups cannot be sent");
  }
  if (!request.send && request.max_output_tokens && *request.max_output_tokens < 1) {
    return InvalidArgumentError("the most output tokens are {}, must be at least 1",
                                *request.max_output_tokens);
  }
  if (request.stop_tokens.size() > static_cast<size_t>(kMaxStopTokens)) {
    return InvalidArgumentError("{} stop tokens, at most {} are allowed",
                                request.stop_tokens.size(), kMaxStopTokens);
  }
  TANDEM_RETURN_IF_ERROR(ValidateSampling(request.sampling));
  TANDEM_RETURN_IF_ERROR(ValidateLogitBias(request, config_.vocab_size));
  if (request.prompt_logprobs && !request.sampling.wants_logprobs()) {
    return InvalidArgumentError("log probabilities of the prompt need those of the answer");
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t output = request.send ? 1 : request.max_output_tokens.value_or(1);
  if (prompt + output > max_context_tokens_) {
    return OutOfRangeError(
        "the request needs {} tokens (prompt {}, output {}{}), at most {} fit (the model's context "
        "is "
        "{}, the KV memory holds {})",
        prompt + output, prompt, request.max_output_tokens ? "" : "at least ", output,
        max_context_tokens_, config_.context_length, pools_.MaxTokens(int64_t{1} << 40));
  }
  for (TokenId token : request.prompt) {
    if (token.value() < 0 || token.value() >= config_.vocab_size) {
      return InvalidArgumentError("prompt token {} is not one of the {} of the vocabulary", token,
                                  config_.vocab_size);
    }
  }
  return OkStatus();
}

}  // namespace tandem
