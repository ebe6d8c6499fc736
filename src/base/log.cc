#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tandem {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::info;
}

// Leaked on purpose: threads may log while the process exits.
spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* l = new spdlog::logger("tandem", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    l->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    return l;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

Status SetLogLevel(std::string_view name) {
  constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                               {"info", LogLevel::kInfo},
                                                               {"warning", LogLevel::kWarning},
                                                               {"error", LogLevel::kError},
                                                               {"off", LogLevel::kOff}};
  for (const auto& [known, level] : kLevels) {
    if (known == name) {
      SetLogLevel(level);
      return OkStatus();
    }
  }
  return InvalidArgumentError("unknown log level '{}': use debug, info, warning, error or off",
                              name);
}

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, std::string_view text) {
  Logger().log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace tandem
