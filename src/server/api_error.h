// What: errors as the API's clients see them, and the one table that maps our Status codes to HTTP.
// Not here: finding the errors (field_table.h, answer_plan.h and others).
// Threads: values and pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"
#include "core/request.h"
#include "server/http_message.h"

namespace tandem {

// {"error": {"message", "type", "param", "code"}} with an HTTP status; with a refusal also
// "predicted_ms" and "allowed_ms".
struct ApiError {
  int http_status = 400;
  std::string type = "invalid_request_error";
  std::string code;
  std::optional<std::string> param;
  std::string message;
  // Hints for well-behaved clients: when to try again.
  std::optional<int64_t> retry_after_ms;
  // Of deadline_unmeetable: trying again here is in vain, elsewhere it may not be.
  std::optional<DeadlineRefusal> refusal;
};

// One row per StatusCode; docs/formats/http-api.md shows the same table, and a test compares them.
struct StatusMapping {
  StatusCode status;
  int http_status;
  std::string_view type;
  std::string_view code;
  int64_t retry_after_ms;  // 0: no hint
};
std::span<const StatusMapping> StatusMappings();

// Errors of the HTTP layer itself and of routing, in the same shape.
struct HttpErrorMapping {
  int http_status;
  std::string_view type;
  std::string_view code;
};
std::span<const HttpErrorMapping> HttpErrorMappings();

ApiError ToApiError(const Status& status);
// Requires a row for `http_status` in HttpErrorMappings, else the answer is a 500.
ApiError HttpLayerError(int http_status, std::string_view message);

// 400 with the given code about one field.
ApiError FieldError(std::string code, std::string param, std::string message);

// 429: the engine does not expect to answer in time.
ApiError DeadlineUnmeetable(const DeadlineRefusal& refusal);

ApiError ModelNotFound(std::string_view model);

// {"error": ...} alone, as the body of a response or the data of an event.
std::string ToJson(const ApiError& error);
HttpResponse ToResponse(const ApiError& error);

// A T or the error to answer with.
template <typename T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  ApiResult(ApiError error) : value_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(value_); }
  T& value() {
    TANDEM_CHECK(ok());
    return std::get<T>(value_);
  }
  const ApiError& error() const {
    TANDEM_CHECK(!ok());
    return std::get<ApiError>(value_);
  }

 private:
  std::variant<T, ApiError> value_;
};

}  // namespace tandem
