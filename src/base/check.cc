#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem::internal {

void CheckFailed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s%s\n", file, line, expression,
               values.empty() ? "" : " (", values.c_str(), values.empty() ? "" : ")");
  std::fflush(stderr);
  std::abort();
}

}  // namespace tandem::internal
