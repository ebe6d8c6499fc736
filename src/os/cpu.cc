#include "os/cpu.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <thread>

namespace tandem {
namespace {

// Of files of the kernel; longer content than this is not what we look for.
constexpr std::streamsize kMaxFileBytes = 64 << 10;

std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMaxFileBytes), '\0');
  file.read(text.data(), kMaxFileBytes);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string_view NextWord(std::string_view* text) {
  const size_t begin = text->find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  const size_t end = std::min(text->find_first_of(" \t\n", begin), text->size());
  const std::string_view word = text->substr(begin, end - begin);
  text->remove_prefix(end);
  return word;
}

std::optional<int64_t> ParsePositive(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value <= 0) return std::nullopt;
  return value;
}

std::optional<double> Smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<double> QuotaOfV1(const std::string& folder) {
  std::string quota = ReadSmallFile(folder + "/cpu.cfs_quota_us");
  const std::string period = ReadSmallFile(folder + "/cpu.cfs_period_us");
  return ParseCpuMax(quota.append(" ").append(period));
}

std::optional<double> QuotaOfV2(const std::string& folder) {
  return ParseCpuMax(ReadSmallFile(folder + "/cpu.max"));
}

// Over `path` and each of its parents below `root`, and `root` itself.
template <typename QuotaOf>
std::optional<double> SmallestOnPath(const std::string& root, std::string path, QuotaOf quota_of) {
  std::optional<double> smallest;
  while (!path.empty() && path != "/") {
    smallest = Smaller(smallest, quota_of(root + path));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return Smaller(smallest, quota_of(root));
}

// Whether the comma-separated `controllers` has "cpu".
bool HasCpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

int AffinityCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than CPU_SETSIZE processors
}

}  // namespace

std::optional<double> ParseCpuMax(std::string_view text) {
  const std::optional<int64_t> quota = ParsePositive(NextWord(&text));
  const std::optional<int64_t> period = ParsePositive(NextWord(&text));
  if (!quota || !period) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> CgroupCpuQuota(std::string_view proc_cgroup, const std::string& mount) {
  std::optional<double> smallest;
  while (!proc_cgroup.empty()) {
    const size_t line_end = std::min(proc_cgroup.find('\n'), proc_cgroup.size());
    const std::string_view line = proc_cgroup.substr(0, line_end);
    proc_cgroup.remove_prefix(std::min(line_end + 1, proc_cgroup.size()));
    // hierarchy-id:controllers:path; v2 has id 0 and no controllers.
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      smallest = Smaller(smallest, SmallestOnPath(mount, path, QuotaOfV2));
    } else if (HasCpu(controllers)) {
      smallest = Smaller(smallest, SmallestOnPath(mount + "/cpu", path, QuotaOfV1));
    }
  }
  return smallest;
}

int NumUsableProcessors() {
  int count = std::max(AffinityCount(), 1);
  const std::optional<double> quota =
      CgroupCpuQuota(ReadSmallFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (quota && *quota < count) count = std::max(static_cast<int>(*quota), 1);
  return count;
}

}  // namespace tandem
