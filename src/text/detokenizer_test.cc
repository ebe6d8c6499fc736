#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/testing/tiny_vocabulary.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using testing::TinyVocabulary;

TokenId ByteToken(uint8_t byte) { return TokenId(3 + byte); }

class DetokenizerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = *Tokenizer::Create(TinyVocabulary());
  IncrementalDetokenizer detokenizer_{*tokenizer_};
};

TEST_F(DetokenizerTest, HoldsACharacterUntilItIsWhole) {
  EXPECT_EQ(detokenizer_.Append(ByteToken(0xF0), true), "");
  EXPECT_EQ(detokenizer_.Append(ByteToken(0x9F), true), "");
  EXPECT_EQ(detokenizer_.Append(ByteToken(0x98), true), "");
  EXPECT_EQ(detokenizer_.pending_bytes(), 3u);
  EXPECT_EQ(detokenizer_.Append(ByteToken(0x80), true), "\U0001F600");
  EXPECT_EQ(detokenizer_.Flush(), "");
}

TEST_F(DetokenizerTest, ReplacesAsSoonAsACharacterCannotBeCompleted) {
  EXPECT_EQ(detokenizer_.Append(ByteToken(0xE2), true), "");
  EXPECT_EQ(detokenizer_.Append(ByteToken('a'), true), "\uFFFDa");
  EXPECT_EQ(detokenizer_.Append(ByteToken(0xE2), true), "");
  EXPECT_EQ(detokenizer_.Append(ByteToken(0x82), true), "");
  EXPECT_EQ(detokenizer_.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer_.Flush(), "");
}

TEST_F(DetokenizerTest, SkippedControlTokensCountAsAbsent) {
  EXPECT_EQ(detokenizer_.Append(ByteToken(0xC3), true), "");
  EXPECT_EQ(detokenizer_.Append(TokenId(0), true), "");
  EXPECT_EQ(detokenizer_.Append(ByteToken(0xA9), true), "\u00E9");
  EXPECT_EQ(detokenizer_.Append(TokenId(0), false), "<|end|>");
  EXPECT_EQ(detokenizer_.Append(TokenId(2), true), "<think>");
  EXPECT_EQ(detokenizer_.Append(TokenId(-5), true), "");
}

TEST(Utf8Assembler, EverySplitGivesWhatDecodingTheWholeGives) {
  SplitMix64 rng(5);
  const std::string parts[] = {"a",    "\u00E9",   "\u4E2D",      "\U0001F600", "\xFF",
                               "\x80", "\xE2\x82", "\xF0\x9F",    "\xED\xA0",   "\xF4\x90",
                               "\xC3", "\xE0\x80", "\xF1\x80\x80"};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (uint64_t n = rng.Below(8); n > 0; --n) bytes += parts[rng.Below(std::size(parts))];
    Utf8Assembler assembler;
    std::string joined;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t size = 1 + rng.Below(4);
      const std::string piece = assembler.Append(std::string_view(bytes).substr(pos, size));
      ASSERT_TRUE(IsValidUtf8(piece));
      ASSERT_LE(assembler.pending_bytes(), 3u);
      joined += piece;
      pos += size;
    }
    joined += assembler.Flush();
    ASSERT_EQ(joined, ReplaceInvalidUtf8(bytes));
  }
}

}  // namespace
}  // namespace tandem
