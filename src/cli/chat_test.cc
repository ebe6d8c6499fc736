#include "cli/chat.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ChatMessage, ABackslashAtTheEndContinuesTheLine) {
  EXPECT_TRUE(IsWholeMessage("a"));
  EXPECT_FALSE(IsWholeMessage("a\\"));
  EXPECT_FALSE(IsWholeMessage("a\\\nb\\"));
  EXPECT_TRUE(IsWholeMessage("a\\\nb"));
  EXPECT_EQ(MessageFrom("a\\\nb\\ c\\\n\nd"), "a\nb\\ c\n\nd");
  EXPECT_EQ(MessageFrom("pasted\nlines"), "pasted\nlines");
}

TEST(ChatMessage, QuotesHoldABlock) {
  EXPECT_FALSE(IsWholeMessage("\"\"\""));
  EXPECT_FALSE(IsWholeMessage("\"\"\"\""));
  EXPECT_FALSE(IsWholeMessage("\"\"\"\na\\\n\nb"));
  EXPECT_TRUE(IsWholeMessage("\"\"\"\"\"\""));
  EXPECT_EQ(MessageFrom("\"\"\"\"\"\""), "");
  EXPECT_EQ(MessageFrom("\"\"\"\na\\\n\n  b\n\"\"\""), "a\\\n\n  b");
  EXPECT_EQ(MessageFrom("\"\"\"one line\"\"\""), "one line");
  EXPECT_TRUE(IsWholeMessage("say \"\"\""));  // only at the beginning
}

}  // namespace
}  // namespace tandem
