#include "os/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "os/test_dir.h"

namespace tandem {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A machine of 1000 MiB, 800 of them available, whose files a test completes.
class FakeMachine {
 public:
  FakeMachine() {
    dir_.Write("proc/meminfo",
               "MemTotal:       1024000 kB\nMemFree: 5 kB\nMemAvailable:    819200 kB\n");
  }
  void Write(const std::string& name, std::string_view text) { dir_.Write(name, text); }
  MemoryInfo Info() {
    const auto info =
        ReadMemoryInfo(RealFileSystem(), dir_.path() + "/proc", dir_.path() + "/cgroup");
    EXPECT_TRUE(info.ok()) << info.status().ToString();
    return info.ok() ? *info : MemoryInfo();
  }
  std::string Path(const std::string& name) const { return dir_.path() + "/" + name; }

 private:
  TestDir dir_;
};

TEST(MemoryInfo, WithoutGroupsIsThePhysicalMemory) {
  FakeMachine machine;
  const MemoryInfo info = machine.Info();
  EXPECT_EQ(info.limit_bytes, 1000 * kMiB);
  EXPECT_EQ(info.available_bytes, 800 * kMiB);
  EXPECT_EQ(info.limited_by, "physical memory");
}

TEST(MemoryInfo, Version2TakesTheTightestOfAllAncestors) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "0::/pod/box\n");
  machine.Write("cgroup/pod/box/memory.max", "max\n");
  machine.Write("cgroup/pod/memory.max", "314572800\n");                        // 300 MiB
  machine.Write("cgroup/pod/memory.current", "209715200\n");                    // 200 MiB
  machine.Write("cgroup/pod/memory.stat", "anon 1\ninactive_file 52428800\n");  // 50 MiB
  machine.Write("cgroup/memory.max", "524288000\n");                            // 500 MiB
  const MemoryInfo info = machine.Info();
  EXPECT_EQ(info.limit_bytes, 300 * kMiB);
  EXPECT_EQ(info.limited_by, machine.Path("cgroup/pod/memory.max"));
  EXPECT_EQ(info.available_bytes, 150 * kMiB);
}

TEST(MemoryInfo, Version2CountsTheThrottleLimit) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "0::/\n");
  machine.Write("cgroup/memory.max", "max\n");
  machine.Write("cgroup/memory.high", "104857600\n");
  EXPECT_EQ(machine.Info().limit_bytes, 100 * kMiB);
  EXPECT_EQ(machine.Info().available_bytes, 100 * kMiB);
}

TEST(MemoryInfo, Version1ReadsTheMemoryController) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory,hugetlb:/docker/abc\n0::/\n");
  // The container sees its own group at the root of the mount; the path is the host's.
  machine.Write("cgroup/memory/memory.limit_in_bytes", "209715200\n");
  machine.Write("cgroup/memory/memory.usage_in_bytes", "104857600\n");
  const MemoryInfo info = machine.Info();
  EXPECT_EQ(info.limit_bytes, 200 * kMiB);
  EXPECT_EQ(info.available_bytes, 100 * kMiB);
}

TEST(MemoryInfo, UnlimitedVersion1GroupSetsNoLimit) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "4:memory:/\n");
  machine.Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.Write("cgroup/memory/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(machine.Info().limit_bytes, 1000 * kMiB);
}

TEST(MemoryInfo, NonsenseInAGroupSetsNoLimit) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "\n:\nx\n0::relative\n0::/a/../b\n");
  machine.Write("cgroup/memory.max", "-5\n");
  EXPECT_EQ(machine.Info().limit_bytes, 1000 * kMiB);
  machine.Write("cgroup/memory.max", "99999999999999999999999\n");
  EXPECT_EQ(machine.Info().limit_bytes, 1000 * kMiB);
  machine.Write("cgroup/memory.max", "");
  EXPECT_EQ(machine.Info().limit_bytes, 1000 * kMiB);
}

TEST(MemoryInfo, UsageBeyondTheLimitLeavesNothing) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "0::/\n");
  machine.Write("cgroup/memory.max", "104857600\n");
  machine.Write("cgroup/memory.current", "209715200\n");
  EXPECT_EQ(machine.Info().available_bytes, 0);
}

TEST(MemoryInfo, FailsWithoutSensibleTotals) {
  const TestDir dir;
  const auto read = [&] {
    return ReadMemoryInfo(RealFileSystem(), dir.path(), dir.path()).status();
  };
  EXPECT_EQ(read().code(), StatusCode::kNotFound);
  dir.Write("meminfo", "MemTotal: no kB\n");
  EXPECT_EQ(read().code(), StatusCode::kInternal);
  dir.Write("meminfo", "MemTotal: 9223372036854775807 kB\n");
  EXPECT_EQ(read().code(), StatusCode::kInternal);
}

TEST(MemoryInfo, OfThisMachineIsPlausible) {
  const auto info = ReadMemoryInfo();
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_GT(info->limit_bytes, 64 * kMiB);
  EXPECT_LE(info->available_bytes, info->limit_bytes);
}

TEST(ResidentBytes, GrowsWithTouchedMemory) {
  const int64_t before = ResidentBytes();
  ASSERT_GT(before, 0);
  auto region = MemoryRegion::Allocate(64 * kMiB);
  ASSERT_TRUE(region.ok());
  std::memset(region->bytes().data(), 1, region->bytes().size());
  EXPECT_GE(ResidentBytes(), before + 48 * kMiB);
  const TestDir dir;
  dir.Write("self/statm", "77\n");
  EXPECT_EQ(ResidentBytes(RealFileSystem(), dir.path()), 0);
}

TEST(MemoryRegion, RefusesWhatTheSystemCannotGive) {
  EXPECT_EQ(MemoryRegion::Allocate(int64_t{1} << 60).status().code(),
            StatusCode::kResourceExhausted);
  const auto none = MemoryRegion::Allocate(0);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->bytes().empty());
}

}  // namespace
}  // namespace tandem
