#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tandem {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(EditDistance("", ""), 0U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("abc", ""), 3U);
  EXPECT_EQ(EditDistance("q4_0", "q4_0"), 0U);
  EXPECT_EQ(EditDistance("--prot", "--port"), 2U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("sitting", "kitten"), 3U);
}

TEST(NearestWord, FindsSlipsOnly) {
  constexpr std::array<std::string_view, 4> kKnown = {"port", "host", "max-seqs",
                                                      "served-model-name"};
  EXPECT_EQ(NearestWord("prot", kKnown), std::nullopt);  // two slips in a short word: a guess
  EXPECT_EQ(NearestWord("pot", kKnown), "port");
  EXPECT_EQ(NearestWord("max-seq", kKnown), "max-seqs");
  EXPECT_EQ(NearestWord("max_sqs", kKnown), "max-seqs");
  EXPECT_EQ(NearestWord("serve-model-nam", kKnown), "served-model-name");
  EXPECT_EQ(NearestWord("ctx-size", kKnown), std::nullopt);
  EXPECT_EQ(NearestWord("", kKnown), std::nullopt);
  EXPECT_EQ(NearestWord(std::string(65, 'x'), kKnown), std::nullopt);
  EXPECT_EQ(NearestWord("port", {}), std::nullopt);
}

TEST(NearestWord, TakesTheNearestAndOfTwoTheFirst) {
  constexpr std::array<std::string_view, 3> kKnown = {"Q4_0", "Q4_1", "Q5_1"};
  EXPECT_EQ(NearestWord("Q4_1", kKnown), "Q4_1");
  EXPECT_EQ(NearestWord("Q4_", kKnown), "Q4_0");
  EXPECT_EQ(NearestWord("Q5_10", kKnown), "Q5_1");
}

}  // namespace
}  // namespace tandem
