#include "cli/config_file.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// A value in quotes keeps its blanks; nothing within is special.
Result<std::string> ValueOf(std::string_view text, int line) {
  if (!text.starts_with('"')) return std::string(text);
  if (text.size() < 2 || !text.ends_with('"')) {
    return InvalidArgumentError("{}: the quote does not end on this line", line);
  }
  return std::string(text.substr(1, text.size() - 2));
}

}  // namespace

Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text) {
  std::vector<ConfigEntry> entries;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // an editor's byte-order mark
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    const std::string_view line = Trim(whole);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.find('\0') != std::string_view::npos) {
      return InvalidArgumentError("{}: holds a zero byte: not a text file", number);
    }
    const size_t equals = line.find('=');
    std::string_view flag = Trim(line.substr(0, equals));
    while (flag.starts_with('-')) flag.remove_prefix(1);
    if (equals == std::string_view::npos || flag.empty()) {
      return InvalidArgumentError("{}: '{}' is not 'flag = value'", number, line.substr(0, 64));
    }
    TANDEM_ASSIGN_OR_RETURN(std::string value, ValueOf(Trim(line.substr(equals + 1)), number));
    entries.push_back({number, std::string(flag), std::move(value)});
  }
  return entries;
}

}  // namespace tandem
