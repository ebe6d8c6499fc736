// What: a configuration file as lines of "flag = value" (docs/formats/config-file.md).
// Not here: which flags there are and what they allow (options.h).
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

inline constexpr size_t kConfigBytesMax = size_t{1} << 20;

struct ConfigEntry {
  int line = 0;      // from 1
  std::string flag;  // without dashes
  std::string value;
};

// In the order of the file. INVALID_ARGUMENT begins with the line's number.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text);

}  // namespace tandem
