#include "text/jinja/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace tandem::jinja {
namespace {

using ::testing::ElementsAre;

TEST(JinjaStrings, SearchAgreesWithTheStandardLibrary) {
  SplitMix64 rng(21);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    std::string needle;
    for (uint64_t n = rng.Below(200); n > 0; --n)
      text += static_cast<char>('a' + (rng.Below(20) == 0));
    // Long enough for the linear search, and taken from the text half of the time.
    for (uint64_t n = 33 + rng.Below(20); n > 0; --n) needle += 'a';
    if (rng.Below(2) == 0 && text.size() > 60) needle = text.substr(rng.Below(20), 40);
    ASSERT_EQ(FindText(text, needle, 0), text.find(needle));
    ASSERT_EQ(FindText(text, needle, 3), text.find(needle, 3));
    ASSERT_EQ(FindLastText(text, needle), text.rfind(needle));
  }
}

TEST(JinjaStrings, SearchIsLinearOnPeriodicText) {
  const std::string text(1 << 20, 'a');
  const std::string needle = std::string(1 << 19, 'a') + "b";
  EXPECT_EQ(FindText(text, needle, 0), std::string::npos);
  EXPECT_EQ(FindLastText(text, "b" + std::string(1 << 19, 'a')), std::string::npos);
}

TEST(JinjaStrings, CaseMappingKnowsTheSpecialCases) {
  EXPECT_EQ(ToUpper("stra\u00DFe \uFB01"), "STRASSE FI");
  EXPECT_EQ(ToLower("\u0130"), "i\u0307");
  EXPECT_EQ(Capitalize("\u00DFa \u01C6"), "Ssa \u01C6");
  EXPECT_EQ(Capitalize("\u01C6A"), "\u01C5a");
  EXPECT_EQ(TitleCase("they're b1a x-y"), "They'Re B1A X-Y");
}

TEST(JinjaStrings, SigmaHasAFinalForm) {
  EXPECT_EQ(ToLower("\u039F\u0394\u039F\u03A3"), "\u03BF\u03B4\u03BF\u03C2");
  EXPECT_EQ(ToLower("\u03A3"), "\u03C3");
  EXPECT_EQ(ToLower("\u0391\u03A3\u0391"), "\u03B1\u03C3\u03B1");
  EXPECT_EQ(ToLower("\u0391\u03A3'\u0391 \u0391\u03A3."), "\u03B1\u03C3'\u03B1 \u03B1\u03C2.");
  EXPECT_EQ(ToLower("\u03A3\u03A3\u03A3"), "\u03C3\u03C3\u03C2");
}

TEST(JinjaStrings, StripsAndSplitsLikePython) {
  EXPECT_EQ(StripSpace("\u00A0\x1F a \u2003", Side::kBoth), "a");
  EXPECT_EQ(StripChars("\u00E9x\u00E9", "\u00E9", Side::kLeft), "x\u00E9");
  EXPECT_EQ(StripSpace(" \n", Side::kRight), "");
  EXPECT_THAT(SplitLines("a\r\nb\n\nc\u2028d\n"), ElementsAre("a", "b", "", "c", "d"));
  EXPECT_TRUE(SplitLines("").empty());
}

}  // namespace
}  // namespace tandem::jinja
