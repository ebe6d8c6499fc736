#include "cli/chat_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "os/test_dir.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ChatHistory, KeepsTextsOfSeveralLinesAcrossObjects) {
  const TestDir dir;
  const std::string path = dir.path() + "/state/tandem/chat_history";
  EXPECT_THAT(*ChatHistory(RealFileSystem(), path).Load(), IsEmpty());
  ASSERT_TRUE(ChatHistory(RealFileSystem(), path).Append("one").ok());
  ASSERT_TRUE(ChatHistory(RealFileSystem(), path).Append("two\nlines \"\\ und Ä").ok());
  ASSERT_TRUE(ChatHistory(RealFileSystem(), path).Append("two\nlines \"\\ und Ä").ok());
  EXPECT_THAT(*ChatHistory(RealFileSystem(), path).Load(),
              ElementsAre("one", "two\nlines \"\\ und Ä"));
  struct stat file = {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
}

TEST(ChatHistory, LeavesOutWhatIsNotItsOwn) {
  const TestDir dir;
  const std::string path = dir.path() + "/h";
  dir.Write("h", "\"good\"\nnot json\n{\"a\": 1}\n\n\"cut");
  EXPECT_THAT(*ChatHistory(RealFileSystem(), path).Load(), ElementsAre("good"));
  ASSERT_TRUE(ChatHistory(RealFileSystem(), path).Append("bytes \xff").ok());
  EXPECT_THAT(*ChatHistory(RealFileSystem(), path).Load(),
              ElementsAre("good", "bytes \xef\xbf\xbd"));
}

TEST(ChatHistory, KeepsTheNewestWithinItsLimits) {
  const TestDir dir;
  const std::string path = dir.path() + "/h";
  {
    std::string file;
    for (int i = 0; i < kChatHistoryEntries; ++i) file += "\"" + std::to_string(i) + "\"\n";
    dir.Write("h", file);
  }
  const ChatHistory history(RealFileSystem(), path);
  ASSERT_TRUE(history.Append("new").ok());
  const auto entries = *history.Load();
  ASSERT_EQ(entries.size(), static_cast<size_t>(kChatHistoryEntries));
  EXPECT_EQ(entries.front(), "1");
  EXPECT_EQ(entries.back(), "new");

  ASSERT_TRUE(history.Append(std::string(kChatHistoryEntryBytesMax + 1, 'a')).ok());
  EXPECT_EQ(history.Load()->back(), "new");
  for (char c = 'a'; c <= 'z'; ++c) {
    ASSERT_TRUE(history.Append(std::string(kChatHistoryEntryBytesMax, c)).ok());
  }
  EXPECT_EQ(history.Load()->size(), 15U);  // with quotes and line break, 16 are too many
  EXPECT_EQ(history.Load()->back().front(), 'z');
}

TEST(ChatHistory, SaysWhyItCannotBeKept) {
  const TestDir dir;
  dir.Write("file", "");
  const ChatHistory history(RealFileSystem(), dir.path() + "/file/h");
  EXPECT_FALSE(history.Append("x").ok());
}

}  // namespace
}  // namespace tandem
