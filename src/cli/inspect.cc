// The command `inspect`: what is in a model file or folder.
#include "model/inspect.h"

#include <cstdio>

#include "cli/commands.h"
#include "model/gguf.h"
#include "model/hf_folder.h"

namespace tandem {
namespace {

Result<std::string> Report(FileSystem& fs, const InspectOptions& options) {
  if (IsDirectory(fs, options.path)) {
    TANDEM_ASSIGN_OR_RETURN(HfFolder folder, HfFolder::Open(fs, options.path));
    TANDEM_RETURN_IF_ERROR(folder.OpenWeights(fs));
    return options.json ? InspectJson(folder) : InspectText(folder);
  }
  TANDEM_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(fs, options.path));
  return options.json ? InspectJson(file) : InspectText(file);
}

}  // namespace

int RunInspect(const Options& options) {
  const Result<std::string> report = Report(RealFileSystem(), options.inspect);
  if (!report.ok()) return Fail(report.status());
  std::fwrite(report->data(), 1, report->size(), stdout);
  return 0;
}

}  // namespace tandem
