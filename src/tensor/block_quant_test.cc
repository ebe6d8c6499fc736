#include "tensor/block_quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"

namespace tandem {
namespace {

#include "tensor/block_quant_vectors.inc"

constexpr DType kAll[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                          DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr DType kQuantised[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

std::vector<float> Decode(DType dtype, std::span<const std::byte> bytes) {
  const DTypeInfo& info = InfoOf(dtype);
  std::vector<float> out(bytes.size() / static_cast<size_t>(info.block_bytes) *
                         static_cast<size_t>(info.block_elements));
  DequantizeRow(dtype, bytes.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

std::vector<std::byte> Encode(DType dtype, std::span<const float> row) {
  const auto n = static_cast<int64_t>(row.size());
  std::vector<std::byte> out(static_cast<size_t>(BytesOf(dtype, n)));
  QuantizeRow(dtype, row.data(), n, out.data());
  return out;
}

std::vector<float> RandomRow(SplitMix64& rng, size_t n, double scale) {
  std::vector<float> row(n);
  for (float& v : row) v = static_cast<float>((rng.NextDouble() * 2 - 1) * scale);
  return row;
}

struct Known {
  DType dtype;
  std::span<const uint8_t> blocks;   // random and remarkable
  std::span<const uint32_t> values;  // bits of their f32 values
  std::span<const uint8_t> coded;    // kRow in this type
};

const Known kKnown[] = {{DType::kQ4_0, kQ4_0Blocks, kQ4_0Values, kQ4_0Coded},
                        {DType::kQ4_1, kQ4_1Blocks, kQ4_1Values, kQ4_1Coded},
                        {DType::kQ8_0, kQ8_0Blocks, kQ8_0Values, kQ8_0Coded}};

// Expected values come from another implementation: block_quant_vectors.py. Equal to the bit,
// except that any NaN equals any other.
TEST(BlockQuant, DecodesAsTheReferenceDoes) {
  for (const Known& known : kKnown) {
    const std::vector<float> values = Decode(known.dtype, std::as_bytes(known.blocks));
    ASSERT_EQ(values.size(), known.values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = std::bit_cast<float>(known.values[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[i])) << NameOf(known.dtype) << " value " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), known.values[i])
            << NameOf(known.dtype) << " value " << i << ": " << values[i] << " vs " << expected;
      }
    }
  }
}

TEST(BlockQuant, EncodesAsTheReferenceDoes) {
  std::vector<float> row(std::size(kRow));
  std::memcpy(row.data(), kRow, sizeof kRow);
  for (const Known& known : kKnown) {
    const std::vector<std::byte> coded = Encode(known.dtype, row);
    ASSERT_EQ(coded.size(), known.coded.size());
    for (size_t i = 0; i < coded.size(); ++i) {
      ASSERT_EQ(static_cast<int>(coded[i]), known.coded[i]) << NameOf(known.dtype) << " byte " << i;
    }
  }
}

// Half a step of the block's codes plus the rounding of the f16 fields, derived from the block's
// own extremes.
TEST(BlockQuant, RoundTripErrorIsHalfAStep) {
  SplitMix64 rng(7);
  for (const double scale : {1e-3, 1.0, 300.0}) {
    for (int trial = 0; trial < 50; ++trial) {
      const std::vector<float> row = RandomRow(rng, 32, scale);
      float low = row[0], high = row[0], extreme = 0;
      for (const float v : row) {
        low = std::min(low, v);
        high = std::max(high, v);
        extreme = std::max(extreme, std::fabs(v));
      }
      // The f16 scale is off by half a unit: relative, or 2^-25 below the normal range, times the
      // largest code.
      const auto field_error = [](float magnitude, float largest_code) {
        return std::max(magnitude * 0x1.0p-11f, largest_code * 0x1.0p-25f);
      };
      // Q4_0 spans -8..7 steps: the end opposite to the extreme may lie a whole step outside.
      const float bounds[] = {
          extreme / 8 + field_error(extreme, 8),
          (high - low) / 30 + field_error(high - low, 15) + field_error(std::fabs(low), 1),
          extreme / 254 + field_error(extreme, 127)};
      for (size_t t = 0; t < 3; ++t) {
        const std::vector<float> back = Decode(kQuantised[t], Encode(kQuantised[t], row));
        for (size_t i = 0; i < row.size(); ++i) {
          ASSERT_LE(std::fabs(back[i] - row[i]), bounds[t] * 1.0001f) << NameOf(kQuantised[t]);
        }
      }
    }
  }
}

TEST(BlockQuant, ExtremeValuesKeepTheirPlace) {
  std::vector<float> row(32, 0.0f);
  row[3] = -8.0f;
  row[20] = 7.0f;
  const std::vector<float> q4 = Decode(DType::kQ4_0, Encode(DType::kQ4_0, row));
  EXPECT_EQ(q4, row);  // steps of 1: every value is a code
  row[20] = 4.0f;
  row[21] = 7.0f;
  EXPECT_EQ(Decode(DType::kQ4_1, Encode(DType::kQ4_1, row)), row);
}

TEST(BlockQuant, PlainTypesRoundEachValue) {
  SplitMix64 rng(8);
  const std::vector<float> row = RandomRow(rng, 37, 10.0);  // no block: any length
  EXPECT_EQ(Decode(DType::kF32, Encode(DType::kF32, row)), row);
  const std::vector<float> half = Decode(DType::kF16, Encode(DType::kF16, row));
  const std::vector<float> brain = Decode(DType::kBF16, Encode(DType::kBF16, row));
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(half[i], HalfToFloat(FloatToHalf(row[i])));
    EXPECT_LE(std::fabs(brain[i] - row[i]), std::fabs(row[i]) * 0x1.0p-8f);
  }
}

TEST(BlockQuant, HostileValuesEncodeWithoutUndefinedBehaviour) {
  const float inf = std::numeric_limits<float>::infinity();
  const float hostile[] = {inf,
                           -inf,
                           std::nanf(""),
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::denorm_min(),
                           -0.0f,
                           1e-42f};
  for (const DType dtype : kAll) {
    for (const float a : hostile) {
      for (const float b : hostile) {
        std::vector<float> row(32, 1.0f);
        row[0] = a;
        row[31] = b;
        const std::vector<float> back = Decode(dtype, Encode(dtype, row));
        EXPECT_EQ(back.size(), row.size());
      }
    }
  }
}

TEST(BlockQuant, ValuesTooSmallForTheScaleBecomeZero) {
  std::vector<float> row(32, 1e-30f);
  row[5] = -1e-30f;
  for (const DType dtype : kQuantised) {
    for (const float v : Decode(dtype, Encode(dtype, row))) EXPECT_EQ(v, 0.0f) << NameOf(dtype);
  }
}

TEST(BlockQuant, ReadsUnalignedBytes) {
  SplitMix64 rng(9);
  const std::vector<float> row = RandomRow(rng, 64, 1.0);
  for (const DType dtype : kAll) {
    const std::vector<std::byte> coded = Encode(dtype, row);
    std::vector<std::byte> shifted(coded.size() + 1);
    std::memcpy(shifted.data() + 1, coded.data(), coded.size());
    EXPECT_EQ(Decode(dtype, std::span(shifted).subspan(1)), Decode(dtype, coded)) << NameOf(dtype);
  }
}

TEST(BlockQuantDeathTest, RefusesPartOfABlock) {
  std::vector<float> row(40);
  std::vector<std::byte> out(100);
  EXPECT_DEATH(QuantizeRow(DType::kQ4_0, row.data(), 40, out.data()), "block_elements");
}

}  // namespace
}  // namespace tandem
