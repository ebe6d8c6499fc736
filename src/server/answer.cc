#include "server/answer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/answer_body.h"

namespace tandem {
namespace {

AnswerEnd ToAnswerEnd(FinishReason reason) {
  return reason == FinishReason::kStop ? AnswerEnd::kStop : AnswerEnd::kLength;
}

// Said in a stream that has begun, so its status is never sent.
ApiError SlowReaderError(const Status& status) {
  ApiError error;
  error.code = "slow_reader";
  error.message = status.message();
  return error;
}

}  // namespace

void Answer::Run(std::shared_ptr<ServerState> state, WorkerPool& workers, AnswerPlanner planner,
                 RequestContext context, std::string body, std::shared_ptr<HttpExchange> exchange) {
  auto self = std::make_shared<Answer>(std::move(state), planner, std::move(context),
                                       std::move(body), exchange);
  exchange->OnAbort([self] { self->OnAbort(); });
  const bool queued = workers.Submit([self] {
    self->Prepare();
    self->exchange_->Post([self] { self->Launch(); });
  });
  if (!queued) self->Fail(ToApiError(ResourceExhaustedError("too many requests wait: try again")));
}

Answer::Answer(std::shared_ptr<ServerState> state, AnswerPlanner planner, RequestContext context,
               std::string body, std::shared_ptr<HttpExchange> exchange)
    : state_(std::move(state)),
      planner_(planner),
      exchange_(std::move(exchange)),
      context_(std::move(context)),
      body_(std::move(body)) {}

Answer::~Answer() {
  if (working_) state_->EndWork();
}

// ---- On a worker

void Answer::Prepare() {
  if (aborted_.load()) return;
  ApiResult<AnswerPlan> plan = planner_(*state_, body_, context_);
  std::string().swap(body_);
  if (plan.ok()) {
    plan_ = std::move(plan.value());
  } else {
    error_ = plan.error();
  }
}

// ---- On the I/O thread

void Answer::Launch() {
  if (ended_) return;
  if (error_) return Fail(*error_);
  choices_.resize(plan_.choices.size());
  unfinished_ = choices_.size();
  state_->BeginWork();
  working_ = true;
  const Status started = StartChoices();
  plan_.choices.clear();
  if (!started.ok()) Fail(ToApiError(started));
}

Status Answer::StartChoices() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    // Requests may outlive this answer, and with it the metrics.
    plan_.choices[i].observer = std::shared_ptr<GenerationObserver>(state_, &state_->metrics);
    TANDEM_ASSIGN_OR_RETURN(
        choices_[i].generation,
        TextGeneration::Start(
            state_->engine, *state_->model.tokenizer, std::move(plan_.choices[i]),
            [exchange = exchange_](std::function<void()> task) { exchange->Post(std::move(task)); },
            [self = shared_from_this(), i](const TextOutput& output) { self->OnText(i, output); }));
  }
  return OkStatus();
}

void Answer::OnAbort() {
  aborted_.store(true);
  if (ended_) return;
  CancelAll();
  End(AnswerEnd::kAbort);
}

void Answer::OnText(size_t index, const TextOutput& output) {
  if (ended_) return;
  if (output.refusal) return Fail(DeadlineUnmeetable(*output.refusal));
  if (output.finish == FinishReason::kFailed) return Fail(ToApiError(output.status));
  if (output.finish == FinishReason::kCancelled) {
    return Fail(ToApiError(CancelledError("the request was cancelled by the server")));
  }
  Choice& choice = choices_[index];
  Observe(choice, output);
  choice.usage = output.usage;
  std::string events = plan_.body->Append(index, output, UsageSoFar());
  if (output.finish) {
    choice.finished = true;
    --unfinished_;
    state_->metrics.ObserveEnd(ToAnswerEnd(*output.finish), state_->clock.Now() - context_.arrival);
  }
  if (plan_.stream) return Send(std::move(events));
  if (unfinished_ > 0) return;
  HttpResponse response;
  response.body = plan_.body->Whole(UsageAtEnd());
  exchange_->Respond(std::move(response));
  ended_ = true;
}

void Answer::Observe(Choice& choice, const TextOutput& output) {
  const TimeNs now = state_->clock.Now();
  if (output.finish) {
    choice.times = output.times;
    choice.recomputed_tokens = output.recomputed_tokens;
    // The engine goes on behind a stop string until it is told.
    if (choice.times.finished == 0) choice.times.finished = now;
    state_->metrics.ObserveTimes(choice.times, output.usage.prompt_tokens,
                                 output.usage.completion_tokens);
  }
  if (output.new_tokens == 0) return;
  if (choice.last_token) {
    state_->metrics.ObserveInterToken(now - *choice.last_token);
  } else {
    state_->metrics.ObserveFirstToken(now - context_.arrival);
  }
  choice.last_token = now;
}

// The samples of a prompt share its tokens: what the first has found in the cache stands for all.
Usage Answer::UsageSoFar() const {
  Usage usage;
  usage.prompt_tokens = plan_.prompt_tokens;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Usage& one = choices_[i].usage;
    if (i % plan_.samples == 0) usage.cached_tokens += one.cached_tokens;
    if (!plan_.count_output) continue;
    usage.completion_tokens += one.completion_tokens;
    usage.reasoning_tokens += one.reasoning_tokens;
  }
  return usage;
}

FinalUsage Answer::UsageAtEnd() const {
  FinalUsage final_usage{UsageSoFar(), {}};
  RequestTimes all = choices_.front().times;
  RequestTiming& timing = final_usage.timing;
  for (const Choice& choice : choices_) {
    all.arrival = std::min(all.arrival, choice.times.arrival);
    all.admitted = std::min(all.admitted, choice.times.admitted);
    all.first_token = std::min(all.first_token, choice.times.first_token);
    all.finished = std::max(all.finished, choice.times.finished);
    timing.recomputed_tokens += choice.recomputed_tokens;
  }
  timing.queue = std::max<TimeNs>(0, all.admitted - all.arrival);
  timing.prefill = std::max<TimeNs>(0, all.first_token - all.admitted);
  timing.decode = std::max<TimeNs>(0, all.finished - all.first_token);
  return final_usage;
}

void Answer::Send(std::string events) {
  if (!stream_started_) {
    stream_started_ = true;
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->StartStream(std::move(head));
  }
  if (unfinished_ == 0) {
    if (plan_.usage_at_end) events += plan_.body->UsageEvent(UsageAtEnd());
    events += kDoneEvent;
    exchange_->Finish(events);
    ended_ = true;
    return;
  }
  if (events.empty()) return;
  const Status written = exchange_->Write(events);
  if (!written.ok()) Fail(SlowReaderError(written));
}

void Answer::Fail(const ApiError& error) {
  if (error.http_status >= 500) LogWarning("a request failed: {}", error.message);
  if (stream_started_) {
    state_->metrics.CountError(error.code);
    exchange_->Finish(ServerSentEvent(ToJson(error)));
  } else {
    exchange_->Respond(state_->Fail(error));
  }
  CancelAll();
  if (working_) {
    End(AnswerEnd::kError);
  } else {
    ended_ = true;
  }
}

void Answer::CancelAll() {
  for (Choice& choice : choices_) {
    if (choice.generation && !choice.finished) choice.generation->Cancel();
  }
}

void Answer::End(AnswerEnd how) {
  ended_ = true;
  const TimeNs age = state_->clock.Now() - context_.arrival;
  // Before the engine has anything, the request counts as one.
  const size_t count = choices_.empty() ? 1 : unfinished_;
  for (size_t i = 0; i < count; ++i) state_->metrics.ObserveEnd(how, age);
}

}  // namespace tandem
