#include "cli/flag_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/edit_distance.h"
#include "exec/memory_plan.h"

namespace tandem {
namespace {

// All of `text` as a T.
template <typename T>
bool ParseAll(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stopped == end;
}

// Without a description: in the help it would stand beside every flag.
CLI::Validator Check(std::function<std::string(std::string&)> check) {
  return CLI::Validator(std::move(check), "");
}

}  // namespace

CLI::Validator WholeNumber(int64_t low, int64_t high) {
  return Check([low, high](std::string& text) -> std::string {
    int64_t value = 0;
    if (ParseAll(text, &value) && value >= low && value <= high) return "";
    if (high >= std::numeric_limits<int32_t>::max()) {
      return fmt::format("'{}' is not a whole number of at least {}", text, low);
    }
    return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
  });
}

CLI::Validator DecimalNumber(double low, double high) {
  return Check([low, high](std::string& text) -> std::string {
    double value = 0;
    if (ParseAll(text, &value) && value >= low && value <= high) return "";
    return fmt::format("'{}' is not a number from {} to {}", text, low, high);
  });
}

CLI::Validator OneOf(std::vector<std::string> names) {
  return Check([names = std::move(names)](std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) return "";
    const std::vector<std::string_view> views(names.begin(), names.end());
    const auto nearest = NearestWord(text, views);
    return fmt::format("'{}' is not one of {}{}", text, fmt::join(names, ", "),
                       nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  });
}

CLI::Validator ByteSize() {
  return Check([](std::string& text) -> std::string {
    const auto bytes = ParseBytes(text);
    return bytes.ok() ? "" : bytes.status().message();
  });
}

}  // namespace tandem
