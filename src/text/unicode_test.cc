#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/byte_level.h"

namespace tandem {
namespace {

TEST(Unicode, ReplacesEachMaximalSubpartOnce) {
  const std::string r = "\xEF\xBF\xBD";
  // Table 3-8 of the Unicode standard, and its neighbours.
  EXPECT_EQ(ReplaceInvalidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xE0\x80\xAF"), r + r + r);          // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), r + r + r + r);  // past U+10FFFF
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("caf\xC3\xA9"), "caf\xC3\xA9");
}

TEST(Unicode, TellsTruncatedFromDamaged) {
  EXPECT_TRUE(DecodeChar("\xE2\x82", 0).truncated);
  EXPECT_FALSE(DecodeChar("\xE2\x28", 0).truncated);
  EXPECT_FALSE(DecodeChar("\xFF", 0).truncated);
  EXPECT_FALSE(DecodeChar("\xE0\x80", 0).truncated);
}

TEST(Unicode, EveryCodePointSurvivesEncodingAndDecoding) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendChar(text, code);
    const DecodedChar c = DecodeChar(text, 0);
    ASSERT_TRUE(c.valid && c.code == code && c.size == text.size()) << static_cast<uint32_t>(code);
  }
}

TEST(Unicode, ClassesFollowGeneralCategories) {
  EXPECT_EQ(ClassOf(U'a'), CharClass::kLetter);
  EXPECT_EQ(ClassOf(U'\u00AA'), CharClass::kLetter);  // Lo
  EXPECT_EQ(ClassOf(U'\u02B0'), CharClass::kLetter);  // Lm
  EXPECT_EQ(ClassOf(U'\u00BD'), CharClass::kNumber);  // No
  EXPECT_EQ(ClassOf(U'\u2167'), CharClass::kNumber);  // Nl
  EXPECT_EQ(ClassOf(U'\u0663'), CharClass::kNumber);  // Nd
  EXPECT_EQ(ClassOf(U'\u0085'), CharClass::kSpace);
  EXPECT_EQ(ClassOf(U'\u00A0'), CharClass::kSpace);
  EXPECT_EQ(ClassOf(U'\u3000'), CharClass::kSpace);
  EXPECT_EQ(ClassOf(U'\u200B'), CharClass::kOther);  // Cf, no white space
  EXPECT_EQ(ClassOf(U'\u0301'), CharClass::kOther);
  EXPECT_EQ(ClassOf(U'\x1C'), CharClass::kOther);
  EXPECT_TRUE(IsPythonSpace(U'\x1C'));
}

TEST(ByteLevel, AlphabetIsABijection) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const std::string stored = EncodeByteLevel(all);
  EXPECT_EQ(DecodeByteLevel(stored), all);
  EXPECT_EQ(EncodeByteLevel(" \n"), "\u0120\u010A");
  EXPECT_FALSE(DecodeByteLevel(" ").has_value());
  EXPECT_FALSE(DecodeByteLevel("\u0144").has_value());  // the first character past the alphabet
  EXPECT_TRUE(DecodeByteLevel("\u0143").has_value());
}

}  // namespace
}  // namespace tandem
