#include "text/marked_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MarkedText, JoinsSpansThatTouch) {
  MarkedText text("a");
  text.AppendData("bc");
  text.AppendData("");
  text.AppendData("d");
  text.Append("e");
  text.Append(MarkedText::FromData("f"));
  EXPECT_EQ(text.text(), "abcdef");
  EXPECT_THAT(text.data(), ElementsAre(ByteSpan{1, 4}, ByteSpan{5, 6}));
}

TEST(MarkedText, PartsKeepTheirMarks) {
  MarkedText text;
  for (int i = 0; i < 4; ++i) {
    text.Append("..");
    text.AppendData("##");
  }
  // Every part marks exactly the bytes that are '#'.
  for (size_t begin = 0; begin <= text.size(); ++begin) {
    for (size_t end = begin; end <= text.size(); ++end) {
      MarkedText part("x");
      part.AppendPart(text, begin, end);
      std::string marks(part.size(), '.');
      for (const ByteSpan& s : part.data())
        marks.replace(s.begin, s.end - s.begin, s.end - s.begin, '#');
      std::string expected = part.text();
      expected[0] = '.';
      EXPECT_EQ(marks, expected);
    }
  }
  EXPECT_THAT(text.Part(0, 2).data(), IsEmpty());
}

}  // namespace
}  // namespace tandem
