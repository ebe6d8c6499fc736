#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::StartsWith;

TEST(ConfigFile, IsLinesOfFlagAndValue) {
  const auto entries = ParseConfig(
      "\xef\xbb\xbf# a comment\r\n"
      "\n"
      "port = 9000\r\n"
      "  --host=0.0.0.0  \n"
      "api-key = a=b#c\n"
      "system = \"  two  blanks \\ \"\n"
      "no-cache=");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 5U);
  EXPECT_EQ((*entries)[0].line, 3);
  EXPECT_EQ((*entries)[0].flag, "port");
  EXPECT_EQ((*entries)[0].value, "9000");
  EXPECT_EQ((*entries)[1].flag, "host");
  EXPECT_EQ((*entries)[1].value, "0.0.0.0");
  EXPECT_EQ((*entries)[2].value, "a=b#c");
  EXPECT_EQ((*entries)[3].value, "  two  blanks \\ ");
  EXPECT_EQ((*entries)[4].line, 7);
  EXPECT_EQ((*entries)[4].value, "");
}

TEST(ConfigFile, SaysWhichLineIsWrong) {
  for (const auto& [text, message] :
       {std::pair<std::string, std::string>{"port = 1\nhost\n", "2: 'host' is not"},
        {"= 3\n", "1: '= 3' is not"},
        {"\n\nsystem = \"no end\n", "3: the quote"},
        {"system = \"\n", "1: the quote"},
        {std::string("a = b\0c", 7), "1: holds a zero byte"}}) {
    const auto entries = ParseConfig(text);
    ASSERT_FALSE(entries.ok()) << text;
    EXPECT_THAT(entries.status().message(), StartsWith(message));
  }
  EXPECT_LT(ParseConfig(std::string(1 << 20, 'x')).status().message().size(), 200U);
}

}  // namespace
}  // namespace tandem
