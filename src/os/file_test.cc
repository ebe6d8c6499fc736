#include "os/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(FileSystem, ReadsPartsOfAFile) {
  const TestDir dir;
  const std::string path = dir.Write("f", "0123456789");
  const auto file = RealFileSystem().Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->size(), 10);
  std::vector<std::byte> out(4);
  ASSERT_TRUE((*file)->ReadAt(3, out).ok());
  EXPECT_EQ(Text(out), "3456");
  const Status beyond = (*file)->ReadAt(8, out);
  EXPECT_EQ(beyond.code(), StatusCode::kDataLoss);
  EXPECT_THAT(beyond.message(), HasSubstr("ends at byte 10, 2 bytes before"));
}

TEST(FileSystem, NamesWhatCannotBeOpened) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const auto missing = fs.Open(dir.path() + "/none");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(dir.path() + "/none"));
  EXPECT_THAT(fs.Open(dir.path()).status().message(), HasSubstr("it is a directory"));
  EXPECT_EQ(fs.Map(dir.path()).status().code(), StatusCode::kFailedPrecondition);
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(fs.Open(pipe).status().message(), HasSubstr("not a regular file"));  // does not wait
  EXPECT_EQ(fs.Open(std::string("a\0b", 3)).status().code(), StatusCode::kInvalidArgument);
}

TEST(FileSystem, MapsAWholeFile) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const std::string path = dir.Write("f", "mapped");
  auto map = fs.Map(path);
  ASSERT_TRUE(map.ok());
  map->Prefetch();
  EXPECT_EQ(Text(map->bytes()), "mapped");
  EXPECT_EQ(map->stamp().size, 6);
  const MappedFile moved = std::move(map).value();
  EXPECT_EQ(Text(moved.bytes()), "mapped");
  const auto empty = fs.Map(dir.Write("e", ""));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes().empty());
}

TEST(FileSystem, StampTellsAnotherVersionOfAFile) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const std::string path = dir.Write("f", "one");
  const auto file = fs.Open(path);
  ASSERT_TRUE(file.ok());
  const FileStamp before = *(*file)->Stamp();
  dir.Write("f", "four");
  const FileStamp after = *(*file)->Stamp();
  EXPECT_EQ(before.inode, after.inode);
  EXPECT_FALSE(before == after);
}

TEST(FileSystem, CreatesDirectoriesWithTheirParents) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const std::string deep = dir.path() + "/a/b/c";
  ASSERT_TRUE(fs.CreateDirectories(deep, 0700).ok());
  ASSERT_TRUE(fs.CreateDirectories(deep, 0700).ok());
  struct stat s;
  ASSERT_EQ(::stat(deep.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777u, 0700u);
  dir.Write("file", "x");
  EXPECT_EQ(fs.CreateDirectories(dir.path() + "/file/sub", 0700).code(),
            StatusCode::kFailedPrecondition);
  const auto names = fs.List(dir.path());
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"a", "file"}));
}

TEST(FileSystem, CreatesOnlyWhatIsNotThere) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  ASSERT_TRUE(fs.Create(dir.path() + "/f").ok());
  EXPECT_EQ(fs.Create(dir.path() + "/f").status().code(), StatusCode::kFailedPrecondition);
}

TEST(FileLock, ExcludesOthersUntilItIsGone) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const std::string path = dir.path() + "/lock";
  auto first = fs.TryLock(path);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(fs.TryLock(path).status().code(), StatusCode::kUnavailable);
  first->reset();
  EXPECT_TRUE(fs.TryLock(path).ok());
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const std::string path = dir.Write("f", "old");
  {
    const auto file = AtomicFile::Create(fs, path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(Bytes("new ")).ok());
    EXPECT_EQ(TestDir::Read(path), "old");
    ASSERT_TRUE((*file)->Write(Bytes("content")).ok());
    ASSERT_TRUE((*file)->Commit().ok());
  }
  EXPECT_EQ(TestDir::Read(path), "new content");
  {
    const auto file = AtomicFile::Create(fs, path);
    ASSERT_TRUE((*file)->Write(Bytes("abandoned")).ok());
  }
  EXPECT_EQ(TestDir::Read(path), "new content");
  EXPECT_EQ(fs.List(dir.path())->size(), 1u) << "a temporary file was left behind";
}

TEST(AtomicFile, TwoWritersOfOnePathDoNotMix) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  const std::string path = dir.path() + "/f";
  const auto a = AtomicFile::Create(fs, path);
  const auto b = AtomicFile::Create(fs, path);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE((*a)->Write(Bytes("aaa")).ok());
  ASSERT_TRUE((*b)->Write(Bytes("bb")).ok());
  ASSERT_TRUE((*b)->Commit().ok());
  ASSERT_TRUE((*a)->Commit().ok());
  EXPECT_EQ(TestDir::Read(path), "aaa");
}

// Whatever fails, the path holds the old content or the new, and no part of a file stays.
TEST(AtomicFile, EveryFailureLeavesTheOldFile) {
  for (int64_t k = 0;; ++k) {
    const TestDir dir;
    const std::string path = dir.Write("f", "old");
    FaultFileSystem fs(RealFileSystem());
    fs.FailAt(k, InternalError("injected"));
    Status status;
    {
      const auto file = AtomicFile::Create(fs, path);
      status = file.status();
      if (file.ok()) status = (*file)->Write(Bytes("new"));
      if (status.ok()) status = (*file)->Commit();
    }
    if (status.ok()) {
      EXPECT_EQ(k, 5) << "create, write, sync, rename, sync_directory can fail";
      EXPECT_EQ(TestDir::Read(path), "new");
      return;
    }
    EXPECT_EQ(status.message(), "injected");
    EXPECT_EQ(TestDir::Read(path), k == 4 ? "new" : "old");
    EXPECT_EQ(RealFileSystem().List(dir.path())->size(), 1u);
  }
}

TEST(FaultFileSystem, RunsOutOfSpace) {
  const TestDir dir;
  FaultFileSystem fs(RealFileSystem());
  fs.LimitWrites(5);
  const auto file = fs.Create(dir.path() + "/f");
  ASSERT_TRUE((*file)->Write(Bytes("abc")).ok());
  EXPECT_EQ((*file)->Write(Bytes("def")).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(TestDir::Read(dir.path() + "/f"), "abcde");
}

TEST(ReadSmallFile, ReadsFilesOfUnknownSizeUpToALimit) {
  const TestDir dir;
  FileSystem& fs = RealFileSystem();
  EXPECT_EQ(*ReadSmallFile(fs, dir.Write("f", "hello"), 5), "hello");
  EXPECT_EQ(ReadSmallFile(fs, dir.Write("f", "hello!"), 5).status().code(),
            StatusCode::kOutOfRange);
  const std::string big(100'000, 'x');
  EXPECT_EQ(*ReadSmallFile(fs, dir.Write("f", big), 1 << 20), big);
  EXPECT_FALSE(ReadSmallFile(fs, "/proc/self/status", 1 << 20)->empty());  // reports size 0
}

TEST(MemoryFile, ReadsLikeAFile) {
  const auto file = MakeMemoryFile(Bytes("0123"), "name");
  std::vector<std::byte> out(3);
  ASSERT_TRUE(file->ReadAt(1, out).ok());
  EXPECT_EQ(Text(out), "123");
  EXPECT_EQ(*file->ReadSome(9, out), 0u);
  EXPECT_EQ(file->ReadAt(2, out).code(), StatusCode::kDataLoss);
}

TEST(UserStateDir, FollowsTheXdgRule) {
  EXPECT_EQ(*UserStateDir("/x", "/h"), "/x/tandem");
  EXPECT_EQ(*UserStateDir("", "/h"), "/h/.local/state/tandem");
  EXPECT_FALSE(UserStateDir(nullptr, "").ok());
}

TEST(UserCacheDir, FollowsTheXdgRule) {
  EXPECT_EQ(*UserCacheDir("/x", "/h"), "/x/tandem");
  EXPECT_EQ(*UserCacheDir("relative", "/h"), "/h/.cache/tandem");  // must be ignored
  EXPECT_EQ(*UserCacheDir(nullptr, "/h"), "/h/.cache/tandem");
  EXPECT_EQ(UserCacheDir(nullptr, nullptr).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem
