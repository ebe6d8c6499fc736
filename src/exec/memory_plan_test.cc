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

TEST(MemoryPlan, SaysWhatTheCacheIsStoredIn) {
  MemoryPlan plan{int64_t{1} << 30, 1024, 2048, 512, 0};
  EXPECT_EQ(plan.ToText(),
            "memory: weights 1.0 KiB + KV 2.0 KiB + activations 512 B + runtime 0 B = 3.5 KiB of "
            "1.0 GiB");
  plan.kv_type = "q8_0";
  EXPECT_NE(plan.ToText().find("+ q8_0 KV 2.0 KiB +"), std::string::npos);
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

TEST(ChooseBlocks, CountsTheScalesOfQ8) {
  StateGroup group = Group(16, 64);
  const auto blocks = [&group](DType dtype) {
    group.planes[0].dtype = dtype;
    return ChooseBlocks({&group, 1}, int64_t{1} << 20, 1000, 1000, 1).value()[0];
  };
  EXPECT_EQ(blocks(DType::kF32), 256);
  EXPECT_EQ(blocks(DType::kF16), 512);
  EXPECT_EQ(blocks(DType::kBF16), 512);
  EXPECT_EQ(blocks(DType::kQ8_0), (1 << 20) / (16 * 64 + 16 * 4));
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
