// What: Status and Result<T>: how operating errors travel (files, memory, peers, users' input).
// Not here: programmer errors (check.h). No exception crosses a module boundary.
// Threads: values; a Status may be moved between threads.
// Cost: an OK Status holds no allocation.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace tandem {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // the caller's value is wrong whatever the state
  kNotFound,            // a named thing does not exist
  kFailedPrecondition,  // right value, wrong moment or configuration
  kOutOfRange,          // beyond a stated limit
  kResourceExhausted,   // memory, blocks, queue places, disk
  kUnimplemented,       // known, named, and not supported
  kDataLoss,            // a file or message is damaged
  kUnavailable,         // try again or elsewhere
  kCancelled,
  kInternal,  // our own fault
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  // Says what went wrong and, where there is one, the fix. Empty when ok().
  const std::string& message() const;
  // "DATA_LOSS: message", or "OK".
  std::string ToString() const;
  // The same error with `context` put before the message ("reading x.gguf: ...").
  Status WithContext(std::string_view context) const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status OkStatus() { return Status(); }

#define TANDEM_DEFINE_ERROR(Name, kCode)                                                \
  template <typename... Args>                                                           \
  Status Name(fmt::format_string<Args...> format, Args&&... args) {                     \
    return Status(StatusCode::kCode, fmt::format(format, std::forward<Args>(args)...)); \
  }
TANDEM_DEFINE_ERROR(InvalidArgumentError, kInvalidArgument)
TANDEM_DEFINE_ERROR(NotFoundError, kNotFound)
TANDEM_DEFINE_ERROR(FailedPreconditionError, kFailedPrecondition)
TANDEM_DEFINE_ERROR(OutOfRangeError, kOutOfRange)
TANDEM_DEFINE_ERROR(ResourceExhaustedError, kResourceExhausted)
TANDEM_DEFINE_ERROR(UnimplementedError, kUnimplemented)
TANDEM_DEFINE_ERROR(DataLossError, kDataLoss)
TANDEM_DEFINE_ERROR(UnavailableError, kUnavailable)
TANDEM_DEFINE_ERROR(CancelledError, kCancelled)
TANDEM_DEFINE_ERROR(InternalError, kInternal)
#undef TANDEM_DEFINE_ERROR

// A T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    TANDEM_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  const T& value() const& {
    if (!ok()) [[unlikely]]
      internal::CheckFailed(__FILE__, __LINE__, "Result::ok()", status_.ToString());
    return *value_;
  }
  T& value() & {
    if (!ok()) [[unlikely]]
      internal::CheckFailed(__FILE__, __LINE__, "Result::ok()", status_.ToString());
    return *value_;
  }
  T&& value() && { return std::move(this->value()); }

  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tandem

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

#define TANDEM_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::tandem::Status tandem_status_ = (expr); !tandem_status_.ok()) return tandem_status_; \
  } while (false)

// TANDEM_ASSIGN_OR_RETURN(auto x, MakeX());
#define TANDEM_ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN_IMPL(TANDEM_CONCAT(tandem_result_, __LINE__), lhs, expr)
#define TANDEM_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result).value()
