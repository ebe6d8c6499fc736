#include "exec/memory_plan.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

StateGroup Group(int32_t tokens_per_block, int32_t dims) {
  StateGroup g;
  g.layers = {0};
  g.num_heads = 1;
  g.planes = {{"k", DType::kF32, TileLayout::kDimMajor, dims}};
  g.tokens_per_block = tokens_per_block;
  return g;
}

TEST(MemoryPlan, NamesTheTermThatDoesNotFit) {
  MemoryPlan plan{1000, 400, 300, 200, 100};
  EXPECT_TRUE(plan.Check().ok());
  plan.limit = 999;
  EXPECT_NE(plan.Check().message().find("M_u"), std::string::npos);
  plan.limit = 899;
  EXPECT_NE(plan.Check().message().find("M_a"), std::string::npos);
  plan.limit = 699;
  EXPECT_NE(plan.Check().message().find("M_KV"), std::string::npos);
  plan.limit = 399;
  EXPECT_NE(plan.Check().message().find("M_w"), std::string::npos);
}

TEST(ParseBytes, ReadsUnitsAndRefusesTheRest) {
  EXPECT_EQ(ParseBytes("1.5g").value(), int64_t{3} << 29);
  EXPECT_EQ(ParseBytes("512MiB").value(), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("64kb").value(), 65536);
  EXPECT_EQ(ParseBytes("1000").value(), 1000);
  EXPECT_EQ(ParseBytes("10B").value(), 10);
  for (const char* bad : {"", "x", "-1", "1q", "nan", "inf", "1e3", "9999999999T", "1 G"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(640), "640 B");
  EXPECT_EQ(FormatBytes(int64_t{3} << 29), "1.5 GiB");
}

TEST(ChooseBlocks, WantsFullContextsAndTakesWhatFits) {
  const std::vector<StateGroup> groups = {Group(16, 4), Group(8, 12)};  // 256 and 384 bytes a block
  EXPECT_EQ(ChooseBlocks(groups, 1 << 30, 2, 33, 1).value(), (std::vector<int32_t>{6, 10}));
  // 16 and 48 bytes a token: a quarter and three quarters of the bytes.
  EXPECT_EQ(ChooseBlocks(groups, 4096, 100, 1000, 1).value(), (std::vector<int32_t>{4, 8}));
  EXPECT_FALSE(ChooseBlocks(groups, 4096, 100, 1000, 65).ok());
}

}  // namespace
}  // namespace tandem
