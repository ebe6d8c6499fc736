// The command `cache`: the packed weights that earlier starts have left, and their removal.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "os/file.h"

namespace tandem {
namespace {

constexpr int64_t kHourNs = 3600 * kNsPerS;
constexpr int64_t kDayNs = 24 * kHourNs;

struct CachedFile {
  std::string name;
  int64_t bytes = 0;
  int64_t idle_ns = 0;  // since the last use that the file system knows of
};

// Files in `directory` whose names end in `ending`; none when there is no such directory.
Result<std::vector<CachedFile>> ListFiles(const std::string& directory, std::string_view ending) {
  const Result<std::vector<std::string>> names = RealFileSystem().List(directory);
  if (!names.ok() && names.status().code() == StatusCode::kNotFound) {
    return std::vector<CachedFile>();
  }
  TANDEM_RETURN_IF_ERROR(names.status());
  const int64_t now = RealFileSystem().NowNs();
  std::vector<CachedFile> files;
  for (const std::string& name : *names) {
    struct stat info = {};
    // One that another process has removed meanwhile is not listed.
    if (!name.ends_with(ending) || stat((directory + "/" + name).c_str(), &info) != 0) continue;
    if (!S_ISREG(info.st_mode)) continue;
    const auto ns = [](const timespec& time) { return time.tv_sec * kNsPerS + time.tv_nsec; };
    const int64_t used = std::max(ns(info.st_atim), ns(info.st_mtim));
    files.push_back({name, info.st_size, std::max<int64_t>(0, now - used)});
  }
  return files;
}

std::string AgeText(int64_t ns) {
  if (ns < kHourNs) return "within the hour";
  if (ns < 2 * kDayNs) return fmt::format("{} h ago", ns / kHourNs);
  return fmt::format("{} days ago", ns / kDayNs);
}

std::string SizeText(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void PrintTotal(const char* said, const std::vector<CachedFile>& files) {
  int64_t bytes = 0;
  for (const CachedFile& file : files) bytes += file.bytes;
  fmt::print("{}{} {}, {}\n", said, files.size(), files.size() == 1 ? "file" : "files",
             SizeText(bytes));
}

// A process that uses a file keeps it until it ends.
Status Remove(const std::string& directory, const std::vector<CachedFile>& files) {
  for (const CachedFile& file : files) {
    const Status status = RealFileSystem().Remove(directory + "/" + file.name);
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  return OkStatus();
}

Status Cache(const CacheOptions& options) {
  std::string root = options.cache_dir;
  if (root.empty()) {
    TANDEM_ASSIGN_OR_RETURN(root, UserCacheDir());
  }
  const std::string directory = root + "/weights";
  TANDEM_ASSIGN_OR_RETURN(std::vector<CachedFile> files, ListFiles(directory, ".packed"));
  if (!options.clear && !options.clear_older_than_days.has_value()) {
    fmt::print("{}\n", directory);
    for (const CachedFile& file : files) {
      fmt::print("{:>12}  used {:<16} {}\n", SizeText(file.bytes), AgeText(file.idle_ns),
                 file.name);
    }
    PrintTotal("", files);
    return OkStatus();
  }
  if (!options.clear) {
    const int64_t limit = int64_t{*options.clear_older_than_days} * kDayNs;
    std::erase_if(files, [limit](const CachedFile& file) { return file.idle_ns < limit; });
  }
  TANDEM_RETURN_IF_ERROR(Remove(directory, files));
  if (options.clear) {  // the hashes of model files are of no more use either
    TANDEM_ASSIGN_OR_RETURN(const auto stamps, ListFiles(root + "/index", ".stamp"));
    TANDEM_RETURN_IF_ERROR(Remove(root + "/index", stamps));
  }
  PrintTotal("removed ", files);
  return OkStatus();
}

}  // namespace

int RunCache(const Options& options) {
  const Status status = Cache(options.cache);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace tandem
