#include "model/stamp_index.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

constexpr int64_t kHourNs = 3'600'000'000'000;

TEST(StampIndex, DamagedRecordMeansNotKnown) {
  const TestDir dir;
  const std::string path = dir.Write("f", "content");
  FaultFileSystem fs(RealFileSystem());
  fs.ShiftClock(kHourNs);
  StampIndex index(fs, dir.path() + "/cache");
  const FileStamp stamp = *(*fs.Open(path))->Stamp();
  const Hash128 hash = {1, 2};
  index.Record(path, stamp, index.Now(), hash);
  ASSERT_EQ(index.Find(path, stamp), hash);
  const std::string name = RealFileSystem().List(dir.path() + "/cache/index")->at(0);
  const std::string record = "cache/index/" + name;
  const std::string good = TestDir::Read(dir.path() + "/" + record);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    dir.Write(record, bad);
    EXPECT_EQ(index.Find(path, stamp), std::nullopt) << i;
  }
  dir.Write(record, good + "x");
  EXPECT_EQ(index.Find(path, stamp), std::nullopt);
  dir.Write(record, good);
  FileStamp other = stamp;
  ++other.ctime_ns;
  EXPECT_EQ(index.Find(path, other), std::nullopt);
  EXPECT_EQ(index.Find(path, stamp), hash);
}

TEST(StampIndex, WorksWithoutAWritableDirectory) {
  const TestDir dir;
  const std::string path = dir.Write("f", "content");
  dir.Write("cache", "a file where the directory should be");
  FaultFileSystem fs(RealFileSystem());
  fs.ShiftClock(kHourNs);
  StampIndex index(fs, dir.path() + "/cache");
  const FileStamp stamp = *(*fs.Open(path))->Stamp();
  index.Record(path, stamp, index.Now(), {1, 2});
  EXPECT_EQ(index.Find(path, stamp), std::nullopt);
}

}  // namespace
}  // namespace tandem
