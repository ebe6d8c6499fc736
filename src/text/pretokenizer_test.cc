#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(std::string_view name, std::string_view text) {
  const PreTokenizer pre = *PreTokenizer::ForName(name);
  std::vector<std::string> pieces;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pre.NextPieceEnd(text, pos);
    EXPECT_TRUE(end > pos && end <= text.size());
    pieces.emplace_back(text.substr(pos, end - pos));
    pos = end;
  }
  return pieces;
}

TEST(PreTokenizer, SpaceJoinsTheWordAfterIt) {
  EXPECT_THAT(Split("smollm", "Hello world  again"), ElementsAre("Hello", " world", " ", " again"));
  EXPECT_THAT(Split("smollm", "a\n\nb \n c\t d  "),
              ElementsAre("a", "\n", "\n", "b", " \n", " c", "\t", " d", "  "));
  EXPECT_THAT(Split("smollm", "x !? y"), ElementsAre("x", " !?", " y"));
  EXPECT_THAT(Split("smollm", "\u00A0a \u3000b"), ElementsAre("\u00A0", "a", " ", "\u3000", "b"));
}

TEST(PreTokenizer, ContractionsSplitInLowerCaseOnly) {
  EXPECT_THAT(Split("smollm", "I'll don't WE'LL 's"),
              ElementsAre("I", "'ll", " don", "'t", " WE", "'", "LL", " '", "s"));
  EXPECT_THAT(Split("smollm", "'''re"), ElementsAre("'''", "re"));
}

TEST(PreTokenizer, SmollmIsolatesEveryNumber) {
  EXPECT_THAT(Split("smollm", "a 12  3b"), ElementsAre("a", " ", "1", "2", "  ", "3", "b"));
  EXPECT_THAT(Split("smollm", "\u00BD\u2167x"), ElementsAre("\u00BD", "\u2167", "x"));
  EXPECT_THAT(Split("smollm", "x. \n7"), ElementsAre("x", ".", " \n", "7"));
}

TEST(PreTokenizer, Gpt2KeepsNumbersTogether) {
  EXPECT_THAT(Split("gpt-2", "a 12  3b"), ElementsAre("a", " 12", " ", " 3", "b"));
}

TEST(PreTokenizer, MarksAreNeitherLettersNorSpace) {
  EXPECT_THAT(Split("smollm", "e\u0301e"), ElementsAre("e", "\u0301", "e"));
}

TEST(PreTokenizer, PiecesCoverRandomText) {
  SplitMix64 rng(7);
  const char32_t alphabet[] = {U' ', U' ', U'\n',     U'a',      U'Z',      U'\'',     U's',
                               U'1', U'!', U'\u00A0', U'\u00E9', U'\u0301', U'\u4E2D', U'\u0663'};
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (uint64_t n = rng.Below(30); n > 0; --n) {
      AppendChar(text, alphabet[rng.Below(std::size(alphabet))]);
    }
    std::string joined;
    for (const std::string& piece : Split("smollm", text)) joined += piece;
    ASSERT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace tandem
