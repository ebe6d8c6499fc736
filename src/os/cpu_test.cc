#include "os/cpu.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

class CpuQuota : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void SetUp() override {
    root_ = testing::TempDir() + "/tandem_cgroup_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(CpuQuota, ParsesCpuMax) {
  EXPECT_EQ(ParseCpuMax("150000 100000\n"), 1.5);
  EXPECT_EQ(ParseCpuMax("max 100000\n"), std::nullopt);
  EXPECT_EQ(ParseCpuMax("-1 100000"), std::nullopt);
  EXPECT_EQ(ParseCpuMax("100000 0"), std::nullopt);
  EXPECT_EQ(ParseCpuMax("12x 5"), std::nullopt);
  EXPECT_EQ(ParseCpuMax(""), std::nullopt);
}

TEST_F(CpuQuota, V2TakesTheSmallestOnThePathToTheRoot) {
  Write("/a/b/cpu.max", "max 100000\n");
  Write("/a/cpu.max", "250000 100000\n");
  Write("/cpu.max", "400000 100000\n");
  EXPECT_EQ(CgroupCpuQuota("0::/a/b\n", root_), 2.5);
}

TEST_F(CpuQuota, V1ReadsTheHierarchyOfTheCpuController) {
  Write("/cpu/job/cpu.cfs_quota_us", "50000\n");
  Write("/cpu/job/cpu.cfs_period_us", "100000\n");
  Write("/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuQuota("5:cpuset:/x\n3:cpuacct,cpu:/job\n0::/\n", root_), 0.5);
  EXPECT_EQ(CgroupCpuQuota("5:cpuset:/job\n", root_), std::nullopt);
}

TEST_F(CpuQuota, DamagedTextIsNoQuota) {
  EXPECT_EQ(CgroupCpuQuota("\n:::\nnonsense\n3:cpu\n", root_), std::nullopt);
  EXPECT_EQ(CgroupCpuQuota("", root_), std::nullopt);
}

TEST(UsableProcessors, AtLeastOne) { EXPECT_GE(NumUsableProcessors(), 1); }

}  // namespace
}  // namespace tandem
