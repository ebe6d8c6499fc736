#include "server/api_error.h"

#include <fmt/format.h>

#include <utility>

#include "server/json_body.h"

namespace tandem {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kServerError = "server_error";
constexpr std::string_view kRateLimit = "rate_limit_error";
// Queues drain in steps of milliseconds to seconds; a second spreads the retries without idling the
// server.
constexpr int64_t kQueueRetryMs = 1000;
// A restart takes about a second; ask again a little later.
constexpr int64_t kRestartRetryMs = 2000;

constexpr StatusMapping kStatusMappings[] = {
    {StatusCode::kInvalidArgument, 400, kInvalidRequest, "invalid_value", 0},
    {StatusCode::kNotFound, 404, kInvalidRequest, "not_found", 0},
    {StatusCode::kFailedPrecondition, 400, kInvalidRequest, "failed_precondition", 0},
    {StatusCode::kOutOfRange, 400, kInvalidRequest, "context_length_exceeded", 0},
    {StatusCode::kResourceExhausted, 429, kRateLimit, "queue_full", kQueueRetryMs},
    {StatusCode::kUnimplemented, 400, kInvalidRequest, "unsupported_value", 0},
    {StatusCode::kDataLoss, 500, kServerError, "engine_fault", 0},
    {StatusCode::kUnavailable, 503, kServerError, "shutting_down", kRestartRetryMs},
    {StatusCode::kCancelled, 503, kServerError, "request_cancelled", kRestartRetryMs},
    {StatusCode::kInternal, 500, kServerError, "engine_fault", 0},
};

constexpr HttpErrorMapping kHttpErrorMappings[] = {
    {400, kInvalidRequest, "bad_request"},        {404, kInvalidRequest, "not_found"},
    {405, kInvalidRequest, "method_not_allowed"}, {408, kInvalidRequest, "request_timeout"},
    {413, kInvalidRequest, "request_too_large"},  {415, kInvalidRequest, "unsupported_media_type"},
    {417, kInvalidRequest, "expectation_failed"}, {421, kInvalidRequest, "prefill_node"},
    {431, kInvalidRequest, "header_too_large"},   {500, kServerError, "internal_error"},
    {503, kServerError, "unavailable"},
};

Json ErrorBody(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  Json body = {{"message", error.message},
               {"type", error.type},
               {"param", or_null(error.param.value_or(""))},
               {"code", or_null(error.code)}};
  if (error.refusal) {
    body["predicted_ms"] = Milliseconds(error.refusal->predicted);
    body["allowed_ms"] = Milliseconds(error.refusal->allowed);
  }
  return {{"error", std::move(body)}};
}

}  // namespace

std::span<const StatusMapping> StatusMappings() { return kStatusMappings; }
std::span<const HttpErrorMapping> HttpErrorMappings() { return kHttpErrorMappings; }

ApiError ToApiError(const Status& status) {
  ApiError error;
  error.message = status.message();
  for (const StatusMapping& row : kStatusMappings) {
    if (row.status != status.code()) continue;
    error.http_status = row.http_status;
    error.type = row.type;
    error.code = row.code;
    if (row.retry_after_ms > 0) error.retry_after_ms = row.retry_after_ms;
    return error;
  }
  return HttpLayerError(500, status.message());
}

ApiError HttpLayerError(int http_status, std::string_view message) {
  ApiError error;
  error.message = message;
  error.http_status = 500;
  error.type = kServerError;
  error.code = "internal_error";
  for (const HttpErrorMapping& row : kHttpErrorMappings) {
    if (row.http_status != http_status) continue;
    error.http_status = row.http_status;
    error.type = row.type;
    error.code = row.code;
  }
  if (http_status == 503) error.retry_after_ms = kRestartRetryMs;
  return error;
}

ApiError FieldError(std::string code, std::string param, std::string message) {
  ApiError error;
  error.code = std::move(code);
  error.param = std::move(param);
  error.message = std::move(message);
  return error;
}

ApiError DeadlineUnmeetable(const DeadlineRefusal& refusal) {
  const bool late = refusal.predicted > refusal.allowed;
  ApiError error = FieldError(
      "deadline_unmeetable", refusal.first_token ? "ttft_target_ms" : "deadline_ms",
      fmt::format(
          "The {} is predicted after {} ms, and {} ms are allowed{}. Ask another server, or "
          "allow more time.",
          refusal.first_token ? "first token" : "answer", Milliseconds(refusal.predicted),
          Milliseconds(refusal.allowed),
          late ? "" : ", but it would make answers late that were accepted before"));
  error.http_status = 429;
  error.type = kRateLimit;
  error.refusal = refusal;
  return error;
}

ApiError ModelNotFound(std::string_view model) {
  // Long enough for any path-like name, short enough for a log line.
  constexpr size_t kShownBytesMax = 256;
  ApiError error = FieldError(
      "model_not_found", "model",
      fmt::format("The model '{}' does not exist here: GET /v1/models lists what is served.",
                  model.substr(0, kShownBytesMax)));
  error.http_status = 404;
  return error;
}

std::string ToJson(const ApiError& error) { return DumpJson(ErrorBody(error)); }

HttpResponse ToResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = ToJson(error);
  if (error.retry_after_ms) {
    response.headers.push_back({"retry-after-ms", std::to_string(*error.retry_after_ms)});
    // Whole seconds, rounded up: zero would mean at once.
    response.headers.push_back(
        {"retry-after", std::to_string((*error.retry_after_ms + 999) / 1000)});
  }
  if (error.refusal) {
    response.headers.push_back({"x-should-retry", "false"});
    response.headers.push_back({"x-retry-elsewhere", "true"});
  }
  return response;
}

}  // namespace tandem
