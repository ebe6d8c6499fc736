#include "server/chat_completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

AnswerEnd ToAnswerEnd(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return AnswerEnd::kStop;
    case FinishReason::kLength: return AnswerEnd::kLength;
    case FinishReason::kCancelled: return AnswerEnd::kAbort;
    case FinishReason::kFailed: break;
  }
  return AnswerEnd::kError;
}

ApiError ContextError(std::string message) {
  ApiError error;
  error.code = "context_length_exceeded";
  error.param = "messages";
  error.message = std::move(message);
  return error;
}

// No token stands for more than max_token_bytes, so a text beyond the context many times over is
// refused before the work of encoding it.
std::optional<ApiError> TooLongToEncode(const ChatRequest& chat, const Tokenizer& tokenizer,
                                        int64_t context) {
  int64_t bytes = 0;
  for (const ChatMessage& message : chat.messages) {
    bytes += static_cast<int64_t>(message.content.size());
  }
  const auto per_token = static_cast<int64_t>(std::max<size_t>(tokenizer.max_token_bytes(), 1));
  if (bytes / per_token < context) return std::nullopt;
  return ContextError(
      fmt::format("This model's maximum context length is {} tokens, but the messages have at "
                  "least {} tokens. Please shorten them.",
                  context, bytes / per_token));
}

// Said in a stream that has begun, so its status is never sent.
ApiError SlowReaderError(const Status& status) {
  ApiError error;
  error.code = "slow_reader";
  error.message = status.message();
  return error;
}

}  // namespace

void ChatCompletion::Run(std::shared_ptr<ServerState> state, WorkerPool& workers, std::string body,
                         std::shared_ptr<HttpExchange> exchange) {
  auto self = std::make_shared<ChatCompletion>(state, std::move(body), exchange);
  exchange->OnAbort([self] { self->OnAbort(); });
  const bool queued = workers.Submit([self] {
    self->Prepare();
    self->exchange_->Post([self] { self->Launch(); });
  });
  if (!queued) self->Fail(ToApiError(ResourceExhaustedError("too many requests wait: try again")));
}

ChatCompletion::ChatCompletion(std::shared_ptr<ServerState> state, std::string body,
                               std::shared_ptr<HttpExchange> exchange)
    : state_(std::move(state)),
      exchange_(std::move(exchange)),
      arrival_(state_->clock.Now()),
      body_(std::move(body)) {}

ChatCompletion::~ChatCompletion() {
  if (generation_) state_->EndWork();
}

// ---- On a worker

void ChatCompletion::Prepare() {
  if (aborted_.load()) return;
  error_ = BuildRequest();
  std::string().swap(body_);
}

std::optional<ApiError> ChatCompletion::BuildRequest() {
  ApiResult<ChatRequest> parsed = ParseChatRequest(body_);
  if (!parsed.ok()) return parsed.error();
  chat_ = std::move(parsed.value());
  if (!state_->model.Answers(chat_.model)) return ModelNotFound(chat_.model);

  ApiResult<std::vector<TokenId>> prompt = BuildPrompt(chat_);
  if (!prompt.ok()) return prompt.error();
  Request& request = options_.request;
  request.prompt = std::move(prompt.value());
  request.max_output_tokens = chat_.max_tokens;
  request.stop_tokens = state_->model.stop_tokens;
  request.sampling = BuildSampling(chat_);
  request.arrival = arrival_;
  options_.stop = std::move(chat_.stop);
  return std::nullopt;
}

ApiResult<std::vector<TokenId>> ChatCompletion::BuildPrompt(const ChatRequest& chat) const {
  const int64_t context = state_->engine.max_context_tokens();
  if (auto error = TooLongToEncode(chat, *state_->model.tokenizer, context)) return *error;
  Result<std::vector<TokenId>> prompt = state_->prompt.Encode(chat.messages);
  if (!prompt.ok()) {
    ApiError error = ToApiError(prompt.status());
    if (error.http_status == 400) error.param = "messages";
    return error;
  }
  const auto prompt_tokens = static_cast<int64_t>(prompt->size());
  if (prompt_tokens == 0) return ApiError(ToApiError(InvalidArgumentError("the prompt is empty")));
  if (prompt_tokens >= context) {
    return ContextError(
        fmt::format("This model's maximum context length is {} tokens, but the messages have {} "
                    "tokens. Please shorten them.",
                    context, prompt_tokens));
  }
  if (chat.max_tokens && prompt_tokens + *chat.max_tokens > context) {
    return ContextError(fmt::format(
        "This model's maximum context length is {} tokens, but {} were requested: {} in the "
        "messages and {} for the answer. Please shorten the messages or the answer.",
        context, prompt_tokens + *chat.max_tokens, prompt_tokens, *chat.max_tokens));
  }
  return std::move(prompt).value();
}

SamplingParams ChatCompletion::BuildSampling(const ChatRequest& chat) {
  SamplingParams params = state_->model.default_sampling;
  if (chat.temperature) params.temperature = *chat.temperature;
  if (chat.top_p) params.top_p = *chat.top_p;
  if (chat.top_k) params.top_k = *chat.top_k;
  params.seed = chat.seed ? static_cast<uint64_t>(*chat.seed) : state_->NewSeed();
  return params;
}

// ---- On the I/O thread

void ChatCompletion::Launch() {
  if (ended_) return;
  if (error_) return Fail(*error_);
  identity_ = {state_->NewAnswerId(), static_cast<int64_t>(std::time(nullptr)), chat_.model,
               state_->model.fingerprint};
  if (chat_.stream) chunks_.emplace(identity_, chat_.include_usage);
  auto started = TextGeneration::Start(
      state_->engine, *state_->model.tokenizer, std::move(options_),
      [exchange = exchange_](std::function<void()> task) { exchange->Post(std::move(task)); },
      [self = shared_from_this()](TextOutput output) { self->OnText(output); });
  if (!started.ok()) return Fail(ToApiError(started.status()));
  generation_ = std::move(started).value();
  state_->BeginWork();
}

void ChatCompletion::OnAbort() {
  aborted_.store(true);
  if (ended_) return;
  if (generation_) generation_->Cancel();
  End(AnswerEnd::kAbort);
}

void ChatCompletion::OnText(const TextOutput& output) {
  if (ended_) return;
  Observe(output);
  if (output.finish == FinishReason::kFailed) return Fail(ToApiError(output.status));
  if (output.finish == FinishReason::kCancelled) {
    return Fail(ToApiError(CancelledError("the request was cancelled by the server")));
  }
  if (chat_.stream) {
    Stream(output);
  } else {
    RespondWhole(output);
  }
}

void ChatCompletion::Observe(const TextOutput& output) {
  if (output.new_tokens == 0) return;
  const TimeNs now = state_->clock.Now();
  if (first_token_seen_) {
    state_->metrics.ObserveInterToken(now - last_token_);
  } else {
    first_token_seen_ = true;
    state_->metrics.ObserveFirstToken(now - arrival_);
  }
  last_token_ = now;
}

void ChatCompletion::RespondWhole(const TextOutput& output) {
  text_ += output.delta;
  if (!output.finish) return;
  HttpResponse response;
  response.body = ChatCompletionJson(identity_, text_, *output.finish, output.usage);
  exchange_->Respond(std::move(response));
  End(ToAnswerEnd(*output.finish));
}

void ChatCompletion::Stream(const TextOutput& output) {
  std::string events;
  if (!stream_started_) {
    stream_started_ = true;
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->StartStream(std::move(head));
    events += chunks_->Role();
  }
  if (!output.delta.empty()) events += chunks_->Content(output.delta);
  if (output.finish) {
    events += chunks_->Finish(*output.finish);
    if (chat_.include_usage) events += chunks_->UsageChunk(output.usage);
    events += kDoneEvent;
    exchange_->Finish(events);
    return End(ToAnswerEnd(*output.finish));
  }
  if (events.empty()) return;
  const Status written = exchange_->Write(events);
  if (written.ok()) return;
  generation_->Cancel();
  Fail(SlowReaderError(written));
}

void ChatCompletion::Fail(const ApiError& error) {
  if (error.http_status >= 500) LogWarning("a request failed: {}", error.message);
  if (stream_started_) {
    state_->metrics.CountError(error.code);
    exchange_->Finish(ServerSentEvent(ToJson(error)));
  } else {
    exchange_->Respond(state_->Fail(error));
  }
  if (generation_) {
    End(AnswerEnd::kError);
  } else {
    ended_ = true;
  }
}

void ChatCompletion::End(AnswerEnd how) {
  ended_ = true;
  state_->metrics.ObserveEnd(how, state_->clock.Now() - arrival_);
}

}  // namespace tandem
