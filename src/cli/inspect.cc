// The command `inspect`: what is in a model file.
#include "model/inspect.h"

#include <cstdio>

#include "cli/commands.h"
#include "model/gguf.h"

namespace tandem {

int RunInspect(const Options& options) {
  const auto file = GgufFile::Open(RealFileSystem(), options.inspect.path);
  if (!file.ok()) return Fail(file.status());
  const std::string report = options.inspect.json ? InspectJson(*file) : InspectText(*file);
  std::fwrite(report.data(), 1, report.size(), stdout);
  return 0;
}

}  // namespace tandem
