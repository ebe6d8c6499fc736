#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/state_group.h"

namespace tandem {
namespace {

TEST(DType, BytesFollowTheBlock) {
  EXPECT_EQ(BytesOf(DType::kQ4_1, 576), 360);
  EXPECT_EQ(BytesOf(DType::kQ8_0, 64), 68);
  EXPECT_EQ(DTypeFromName("q4_1"), DType::kQ4_1);
  EXPECT_EQ(DTypeFromName("q9"), std::nullopt);
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    ASSERT_EQ(FloatToHalf(f), h) << f;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(HalfToFloat(FloatToHalf(1.0f + 0x1.0p-11f)), 1.0f);              // tie to even
  EXPECT_EQ(HalfToFloat(FloatToHalf(1.0f + 0x1.8p-10f)), 1.0f + 0x1.0p-9f);  // tie to even, up
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(0x1.0p-25f), 0);  // half of the smallest subnormal: tie to even
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 1);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(1.0f + 0x1.0p-8f)), 1.0f);
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(1.0f + 0x1.8p-7f)), 1.0f + 0x1.0p-6f);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
}

StateGroup TwoLayerGroup() {
  StateGroup g;
  g.layers = {0, 1};
  g.num_heads = 3;
  g.planes = {{"k", DType::kF16, TileLayout::kDimMajor, 64},
              {"v", DType::kF16, TileLayout::kTokenMajor, 64}};
  g.tokens_per_block = 16;
  return g;
}

TEST(StateGroup, AHeadsSliceOfAPageIsContiguous) {
  const StateGroup g = TwoLayerGroup();
  ASSERT_TRUE(g.Validate().ok());
  EXPECT_EQ(g.PlaneBytes(0), 16 * 64 * 2);
  EXPECT_EQ(g.BlockBytes(), 2 * 3 * 2 * 16 * 64 * 2);
  EXPECT_EQ(g.OffsetInBlock(0, 0, 1), g.PlaneBytes(0));
  EXPECT_EQ(g.OffsetInBlock(0, 1, 0), g.HeadBytes());
  EXPECT_EQ(g.OffsetInBlock(1, 0, 0), g.PageBytes());
  EXPECT_EQ(g.BlocksFor(0), 0);
  EXPECT_EQ(g.BlocksFor(16), 1);
  EXPECT_EQ(g.BlocksFor(17), 2);
}

TEST(StateGroup, NamesTheFieldThatMakesNoSense) {
  StateGroup g = TwoLayerGroup();
  g.kind = StateKind::kWindow;
  EXPECT_NE(g.Validate().message().find("window"), std::string::npos);
  g = TwoLayerGroup();
  g.planes[1].dims = 0;
  EXPECT_NE(g.Validate().message().find("plane 'v'"), std::string::npos);
  for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kMXFP4, DType::kBF16}) {
    g = TwoLayerGroup();
    g.planes[1].dtype = dtype;
    EXPECT_EQ(g.Validate().ok(), IsStateType(dtype)) << NameOf(dtype);
    if (IsStateType(dtype)) continue;
    EXPECT_NE(g.Validate().message().find("F32, F16, BF16 or Q8_0"), std::string::npos);
  }
}

TEST(StateGroup, OfQ8CountsCodesAndScales) {
  StateGroup g = TwoLayerGroup();
  for (StatePlane& plane : g.planes) plane.dtype = DType::kQ8_0;
  ASSERT_TRUE(g.Validate().ok());
  // 34 bytes for 32 values, as in a file.
  EXPECT_EQ(g.PlaneBytes(0), BytesOf(DType::kQ8_0, 16 * 64));
  EXPECT_EQ(g.ScalesOffset(0), 16 * 64);
  EXPECT_EQ(g.HeadBytes(), 2 * g.PlaneBytes(0));
  EXPECT_EQ(g.PageBytes(), 3 * g.HeadBytes());
  EXPECT_EQ(g.OffsetInBlock(1, 2, 1), g.PageBytes() + 2 * g.HeadBytes() + g.PlaneBytes(0));
  EXPECT_EQ(g.PlaneBytes(0) % 64, 0);  // tiles of the usual shape keep to cache lines
  // A last run of fewer dims has a scale as the others.
  for (StatePlane& plane : g.planes) plane.dims = 80;
  EXPECT_EQ(g.PlaneBytes(1), 16 * (80 + 3 * 2));
  // Scales stand at even offsets.
  g.tokens_per_block = 3;
  for (StatePlane& plane : g.planes) plane.dims = 5;
  EXPECT_EQ(g.ScalesOffset(1), 16);
  EXPECT_EQ(g.PlaneBytes(1), 16 + 3 * 2);
}

}  // namespace
}  // namespace tandem
