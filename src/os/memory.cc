#include "os/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/check.h"

namespace tandem {
namespace {

constexpr size_t kMaxProcBytes = 1 << 20;

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

// A decimal number, perhaps with a unit after it ("16384 kB"). Beyond 63 bits: the largest.
std::optional<int64_t> Number(std::string_view text) {
  text = Trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() || text.front() == '-') return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::numeric_limits<int64_t>::max();
  return value;
}

// The number after `key` at the start of a line.
std::optional<int64_t> Field(std::string_view text, std::string_view key) {
  for (const std::string_view line : Split(text, '\n')) {
    if (line.starts_with(key)) return Number(line.substr(key.size()));
  }
  return std::nullopt;
}

std::optional<int64_t> ReadNumber(FileSystem& fs, const std::string& path) {
  const Result<std::string> text = ReadSmallFile(fs, path, kMaxProcBytes);
  return text.ok() ? Number(*text) : std::nullopt;  // "max" is no number: no limit
}

// File names of one version of control groups.
struct CgroupFiles {
  std::string_view hard_limit;
  std::string_view throttle_limit;  // beyond it the group is slowed down; empty: none
  std::string_view usage;
  std::string_view reclaimable;  // field of memory.stat
};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.high", "memory.current", "inactive_file "};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "", "memory.usage_in_bytes",
                                   "total_inactive_file "};

void ApplyGroup(FileSystem& fs, const std::string& directory, const CgroupFiles& files,
                MemoryInfo& info) {
  int64_t limit = std::numeric_limits<int64_t>::max();
  std::string source;
  for (const std::string_view name : {files.hard_limit, files.throttle_limit}) {
    if (name.empty()) continue;
    const std::string path = fmt::format("{}/{}", directory, name);
    const std::optional<int64_t> value = ReadNumber(fs, path);
    if (value && *value < limit) {
      limit = *value;
      source = path;
    }
  }
  if (source.empty()) return;
  if (limit < info.limit_bytes) {
    info.limit_bytes = limit;
    info.limited_by = source;
  }
  const std::optional<int64_t> used = ReadNumber(fs, fmt::format("{}/{}", directory, files.usage));
  if (!used) return;
  int64_t reclaimable = 0;
  const Result<std::string> stat = ReadSmallFile(fs, directory + "/memory.stat", kMaxProcBytes);
  if (stat.ok()) reclaimable = std::min(Field(*stat, files.reclaimable).value_or(0), *used);
  const int64_t free = std::max<int64_t>(0, limit - (*used - reclaimable));
  info.available_bytes = std::min(info.available_bytes, free);
}

// Every group from `path` up to the root of the hierarchy. A container may see another path in
// /proc/self/cgroup than below its mount; missing directories set no limit, and the root is always
// read.
void ApplyHierarchy(FileSystem& fs, const std::string& root, std::string_view path,
                    const CgroupFiles& files, MemoryInfo& info) {
  std::string group(path);
  while (!group.empty() && group != "/") {
    ApplyGroup(fs, root + group, files, info);
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
  ApplyGroup(fs, root, files, info);
}

}  // namespace

Result<MemoryInfo> ReadMemoryInfo() {
  return ReadMemoryInfo(RealFileSystem(), "/proc", "/sys/fs/cgroup");
}

Result<MemoryInfo> ReadMemoryInfo(FileSystem& fs, const std::string& proc,
                                  const std::string& cgroup) {
  TANDEM_ASSIGN_OR_RETURN(const std::string meminfo,
                          ReadSmallFile(fs, proc + "/meminfo", kMaxProcBytes));
  constexpr int64_t kUnit = 1024;
  constexpr int64_t kMaxUnits = std::numeric_limits<int64_t>::max() / kUnit;
  const int64_t total = Field(meminfo, "MemTotal:").value_or(0);
  const int64_t available = Field(meminfo, "MemAvailable:").value_or(total);
  if (total <= 0 || total > kMaxUnits) {
    return InternalError("{}/meminfo names no sensible MemTotal", proc);
  }
  MemoryInfo info;
  info.limit_bytes = total * kUnit;
  info.limited_by = "physical memory";
  info.available_bytes = std::min(available, total) * kUnit;

  const Result<std::string> groups = ReadSmallFile(fs, proc + "/self/cgroup", kMaxProcBytes);
  if (!groups.ok()) return info;
  for (const std::string_view line : Split(*groups, '\n')) {  // "id:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      ApplyHierarchy(fs, cgroup, path, kVersion2, info);
      continue;
    }
    const std::vector<std::string_view> names = Split(controllers, ',');
    if (std::find(names.begin(), names.end(), "memory") != names.end()) {
      ApplyHierarchy(fs, cgroup + "/memory", path, kVersion1, info);
    }
  }
  info.available_bytes = std::min(info.available_bytes, info.limit_bytes);
  return info;
}

int64_t ResidentBytes() { return ResidentBytes(RealFileSystem(), "/proc"); }

int64_t ResidentBytes(FileSystem& fs, const std::string& proc) {
  const Result<std::string> text = ReadSmallFile(fs, proc + "/self/statm", kMaxProcBytes);
  if (!text.ok()) return 0;
  const std::vector<std::string_view> fields = Split(*text, ' ');
  if (fields.size() < 2) return 0;
  const int64_t pages = Number(fields[1]).value_or(0);
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages < std::numeric_limits<int64_t>::max() / page_bytes ? pages * page_bytes : 0;
}

Result<MemoryRegion> MemoryRegion::Allocate(int64_t bytes) {
  TANDEM_CHECK_GE(bytes, 0);
  MemoryRegion region;
  if (bytes == 0) return region;
  const auto size = static_cast<size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhaustedError("the system refuses {} bytes of memory: {}", bytes,
                                  std::generic_category().message(errno));
  }
  region.data_ = static_cast<std::byte*>(data);
  region.size_ = size;
  return region;
}

MemoryRegion::~MemoryRegion() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace tandem
