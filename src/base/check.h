// What: CHECK macros for programmer errors: print the expression and its values, then abort.
// Not here: errors of users, files, peers or the system; those are Status values (status.h).
//   Nothing that comes from outside the process may reach a CHECK.
// Threads: any.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <type_traits>

namespace tandem::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* expression,
                              const std::string& values);

template <typename T>
std::string CheckValue(const T& v) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<long long>(v));
  } else if constexpr (fmt::is_formattable<T>::value) {
    return fmt::format("{}", v);
  } else if constexpr (requires { v.value(); }) {
    return fmt::format("{}", v.value());
  } else {
    return "?";
  }
}

}  // namespace tandem::internal

#define TANDEM_CHECK(cond)                                                       \
  do {                                                                           \
    if (!(cond)) [[unlikely]]                                                    \
      ::tandem::internal::CheckFailed(__FILE__, __LINE__, #cond, std::string{}); \
  } while (false)

#define TANDEM_CHECK_OP(op, a, b)                                                          \
  do {                                                                                     \
    const auto& tandem_a_ = (a);                                                           \
    const auto& tandem_b_ = (b);                                                           \
    if (!(tandem_a_ op tandem_b_)) [[unlikely]]                                            \
      ::tandem::internal::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,               \
                                      ::tandem::internal::CheckValue(tandem_a_) + " vs " + \
                                          ::tandem::internal::CheckValue(tandem_b_));      \
  } while (false)

#define TANDEM_CHECK_EQ(a, b) TANDEM_CHECK_OP(==, a, b)
#define TANDEM_CHECK_NE(a, b) TANDEM_CHECK_OP(!=, a, b)
#define TANDEM_CHECK_LT(a, b) TANDEM_CHECK_OP(<, a, b)
#define TANDEM_CHECK_LE(a, b) TANDEM_CHECK_OP(<=, a, b)
#define TANDEM_CHECK_GT(a, b) TANDEM_CHECK_OP(>, a, b)
#define TANDEM_CHECK_GE(a, b) TANDEM_CHECK_OP(>=, a, b)
