#include "kernels/packed_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/testing.h"

namespace tandem {
namespace {

using testing_kernels::SameBits;
using testing_kernels::TestMatrix;

TEST(PackedMatrix, UnpacksToExactlyTheSourcesValues) {
  SplitMix64 rng(1);
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (const int32_t rows : {1, 16, 37}) {
      for (const int32_t cols : {32, 96, 576}) {
        const TestMatrix m(rng, dtype, rows, cols);
        std::vector<float> expected(static_cast<size_t>(cols)), actual(expected);
        for (int32_t r = 0; r < rows; ++r) {
          DequantizeRow(dtype, m.source.data() + BytesOf(dtype, int64_t{r} * cols), cols,
                        expected.data());
          UnpackRow(m.packed, r, actual.data());
          ASSERT_TRUE(SameBits(actual, expected)) << NameOf(dtype) << " row " << r;
        }
      }
    }
  }
}

TEST(PackedMatrix, IsAsLargeAsItsSourceUpToPadding) {
  for (const DType dtype : {DType::kF32, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    EXPECT_EQ(PackedBytes(dtype, 64, 576), BytesOf(dtype, 64 * 576));
    EXPECT_EQ(PackedBytes(dtype, 65, 576), BytesOf(dtype, 80 * 576));
  }
  EXPECT_EQ(PackedGroupBytes(DType::kQ8_0, 32), 576);  // 544, rounded to whole cache lines
}

TEST(PackedMatrix, MissingRowsAreZeros) {
  SplitMix64 rng(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const TestMatrix m(rng, dtype, 3, 64);
    PackedMatrix whole = m.packed;
    whole.rows = 16;
    std::vector<float> row(64);
    for (int32_t r = 3; r < 16; ++r) {
      UnpackRow(whole, r, row.data());
      EXPECT_THAT(row, testing::Each(0.0f));
    }
  }
}

TEST(PackedMatrix, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(CanPack(DType::kQ4_1, 576, 1536).ok());
  EXPECT_TRUE(CanPack(DType::kF32, 3, 5).ok());
  EXPECT_EQ(CanPack(DType::kQ4_1, 576, 100).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(DType::kF32, 0, 32).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(DType::kF32, 32, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(DType::kF32, int64_t{1} << 40, 32).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(static_cast<DType>(200), 32, 32).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tandem
