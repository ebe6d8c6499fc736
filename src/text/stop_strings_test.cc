#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "text/unicode.h"

namespace tandem {
namespace {

StopMatcher Make(std::vector<std::string> strings) {
  return *StopMatcher::Create(std::move(strings));
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher m = Make({"STOP"});
  EXPECT_EQ(m.Append("abcST"), "abc");
  EXPECT_EQ(m.held_bytes(), 2u);
  EXPECT_EQ(m.Append("x"), "STx");
  EXPECT_EQ(m.Append("STO"), "");
  EXPECT_EQ(m.Append("P and more"), "");
  EXPECT_TRUE(m.stopped());
  EXPECT_EQ(m.matched(), "STOP");
  EXPECT_EQ(m.Append("leak"), "");
  EXPECT_EQ(m.Flush(), "");
}

TEST(StopMatcher, FlushGivesBackWhatWasHeld) {
  StopMatcher m = Make({"\n\nUser:"});
  EXPECT_EQ(m.Append("end\n\nUse"), "end");
  EXPECT_EQ(m.Flush(), "\n\nUse");
  EXPECT_FALSE(m.stopped());
  EXPECT_EQ(m.Append("r:"), "r:");  // a new stream
}

TEST(StopMatcher, TheMatchThatEndsFirstWins) {
  StopMatcher m = Make({"abcd", "bc"});
  EXPECT_EQ(m.Append("xabcd"), "xa");
  EXPECT_EQ(m.matched(), "bc");
}

TEST(StopMatcher, OfMatchesThatEndTogetherTheLongestWins) {
  StopMatcher m = Make({"c", "abc", "bc"});
  EXPECT_EQ(m.Append("xabc"), "x");
  EXPECT_EQ(m.matched(), "abc");
}

TEST(StopMatcher, FallsBackIntoAnOverlappingBeginning) {
  StopMatcher m = Make({"aab"});
  EXPECT_EQ(m.Append("aaa"), "a");
  EXPECT_EQ(m.Append("b"), "");
  EXPECT_TRUE(m.stopped());
}

TEST(StopMatcher, NeverCutsACharacter) {
  StopMatcher m = Make({"\u00E9\u00E8"});
  EXPECT_EQ(m.Append("\u00E8"), "\u00E8");
  EXPECT_EQ(m.Append("\u00E9"), "");
  EXPECT_EQ(m.Append("\u00EA"), "\u00E9\u00EA");
}

TEST(StopMatcher, RefusesWhatCannotBeAStopString) {
  EXPECT_FALSE(StopMatcher::Create({""}).ok());
  EXPECT_FALSE(StopMatcher::Create({"\xFF"}).ok());
  EXPECT_FALSE(StopMatcher::Create(std::vector<std::string>(65, "a")).ok());
  EXPECT_FALSE(StopMatcher::Create({std::string(5000, 'a')}).ok());
  EXPECT_TRUE(StopMatcher::Create({}).ok());
  EXPECT_TRUE(StopMatcher::Create({"a", "a"}).ok());
}

// The definition: the first end of any match; of those the longest.
std::string CutSlowly(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& s : stops) {
      if (std::string_view(text).substr(0, end).ends_with(s)) longest = std::max(longest, s.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcher, AnyChunkingAgreesWithTheDefinition) {
  SplitMix64 rng(9);
  const auto random_text = [&rng](uint64_t size) {
    std::string s;
    for (; size > 0; --size) s += static_cast<char>('a' + rng.Below(2));
    return s;
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> stops;
    for (uint64_t n = 1 + rng.Below(3); n > 0; --n) stops.push_back(random_text(1 + rng.Below(7)));
    const std::string text = random_text(rng.Below(40));
    StopMatcher m = Make(stops);
    std::string got;
    for (size_t pos = 0; pos < text.size();) {
      const size_t size = 1 + rng.Below(5);
      got += m.Append(std::string_view(text).substr(pos, size));
      ASSERT_TRUE(CutSlowly(stops, text).starts_with(got));
      pos += size;
    }
    got += m.Flush();
    ASSERT_EQ(got, CutSlowly(stops, text));
  }
}

}  // namespace
}  // namespace tandem
