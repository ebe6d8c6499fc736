#include "kernels/packed_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/testing.h"

namespace tandem {
namespace {

using testing_kernels::SameBits;
using testing_kernels::TestMatrix;

TEST(PackedMatrix, UnpacksToExactlyTheSourcesValues) {
  SplitMix64 rng(1);
  for (const DType dtype : testing_kernels::kAllTypes) {
    for (const int32_t rows : {1, 16, 37}) {
      for (const int32_t blocks : {1, 3, 18}) {
        const int32_t cols = blocks * testing_kernels::ColumnUnit(dtype);
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

// Sources of random bytes: every pattern of scales and codes, also those that no quantiser writes.
TEST(PackedMatrix, KeepsTheValuesOfAnyBytes) {
  SplitMix64 rng(3);
  for (const DType dtype : testing_kernels::kQuantizedTypes) {
    const int32_t cols = 512;
    TestMatrix m(rng, dtype, 16, cols);
    for (std::byte& b : m.source) b = static_cast<std::byte>(rng.Below(256));
    PackGroup({m.source.data(), dtype, Shape::Of(16, cols)}, 0,
              {const_cast<std::byte*>(m.packed.data),
               static_cast<size_t>(PackedGroupBytes(dtype, cols))});
    std::vector<float> expected(cols), actual(cols);
    for (int32_t r = 0; r < 16; ++r) {
      DequantizeRow(dtype, m.source.data() + BytesOf(dtype, int64_t{r} * cols), cols,
                    expected.data());
      UnpackRow(m.packed, r, actual.data());
      for (size_t c = 0; c < expected.size(); ++c) {
        if (std::isnan(expected[c])) {
          ASSERT_TRUE(std::isnan(actual[c]));
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(actual[c]), std::bit_cast<uint32_t>(expected[c]))
              << NameOf(dtype) << " row " << r << " column " << c;
        }
      }
    }
  }
}

TEST(PackedMatrix, IsAsLargeAsItsSourceUpToPaddingAndSixBitScales) {
  for (const DType dtype : testing_kernels::kAllTypes) {
    int64_t more = 0;  // bytes per 256 columns
    if (dtype == DType::kQ3_K || dtype == DType::kQ4_K || dtype == DType::kQ5_K) more = 4;
    if (dtype == DType::kIQ4_XS) more = 2;
    EXPECT_EQ(PackedBytes(dtype, 64, 1024), BytesOf(dtype, 64 * 1024) + 64 * 4 * more);
    EXPECT_EQ(PackedBytes(dtype, 65, 1024), BytesOf(dtype, 80 * 1024) + 80 * 4 * more);
  }
  EXPECT_EQ(PackedGroupBytes(DType::kQ8_0, 32), 576);  // 544, rounded to whole cache lines
}

TEST(PackedMatrix, MissingRowsAreZeros) {
  SplitMix64 rng(2);
  for (const DType dtype : testing_kernels::kAllTypes) {
    const TestMatrix m(rng, dtype, 3, 256);
    PackedMatrix whole = m.packed;
    whole.rows = 16;
    std::vector<float> row(256);
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
  EXPECT_EQ(CanPack(DType::kQ4_K, 16, 576).code(), StatusCode::kInvalidArgument);  // not whole 256s
  EXPECT_EQ(CanPack(DType::kF32, 0, 32).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(DType::kF32, 32, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(DType::kF32, int64_t{1} << 40, 32).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanPack(static_cast<DType>(200), 32, 32).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tandem
