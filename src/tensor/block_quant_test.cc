#include "tensor/block_quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tensor/block_fields.h"
#include "tensor/half.h"

namespace tandem {
namespace {

#include "tensor/block_quant_vectors.inc"

constexpr DType kAll[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                          DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                          DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                          DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
constexpr DType kQuantised[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                                DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                                DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                DType::kMXFP4};

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
                        {DType::kQ5_0, kQ5_0Blocks, kQ5_0Values, kQ5_0Coded},
                        {DType::kQ5_1, kQ5_1Blocks, kQ5_1Values, kQ5_1Coded},
                        {DType::kQ8_0, kQ8_0Blocks, kQ8_0Values, kQ8_0Coded},
                        {DType::kIQ4_NL, kIQ4_NLBlocks, kIQ4_NLValues, {}},
                        {DType::kMXFP4, kMXFP4Blocks, kMXFP4Values, kMXFP4Coded}};

struct KnownSums {
  DType dtype;
  std::span<const uint8_t> blocks;
  std::span<const uint64_t> sums;  // of each block's values
};

const KnownSums kKnownSums[] = {
    {DType::kQ2_K, kQ2_KBlocks, kQ2_KSums}, {DType::kQ3_K, kQ3_KBlocks, kQ3_KSums},
    {DType::kQ4_K, kQ4_KBlocks, kQ4_KSums}, {DType::kQ5_K, kQ5_KBlocks, kQ5_KSums},
    {DType::kQ6_K, kQ6_KBlocks, kQ6_KSums}, {DType::kIQ4_XS, kIQ4_XSBlocks, kIQ4_XSSums}};

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

TEST(BlockQuant, DecodesBlocksOf256AsTheReferenceDoes) {
  for (const KnownSums& known : kKnownSums) {
    const std::vector<float> values = Decode(known.dtype, std::as_bytes(known.blocks));
    ASSERT_EQ(values.size(), known.sums.size() * 256);
    for (size_t b = 0; b < known.sums.size(); ++b) {
      uint64_t sum = 0xCBF29CE484222325;  // FNV-1a over words, any NaN as one
      for (const float v : std::span(values).subspan(b * 256, 256)) {
        sum = (sum ^ (std::isnan(v) ? 0x7FC00000u : std::bit_cast<uint32_t>(v))) * 0x100000001B3;
      }
      EXPECT_EQ(sum, known.sums[b]) << NameOf(known.dtype) << " block " << b;
    }
  }
}

TEST(BlockQuant, EncodesAsTheReferenceDoes) {
  std::vector<float> row(std::size(kRow));
  std::memcpy(row.data(), kRow, sizeof kRow);
  for (const Known& known : kKnown) {
    if (known.coded.empty()) continue;  // the reference has no quantiser
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
          extreme / 254 + field_error(extreme, 127), extreme / 16 + field_error(extreme, 16),
          (high - low) / 62 + field_error(high - low, 31) + field_error(std::fabs(low), 1)};
      constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kQ5_0,
                                  DType::kQ5_1};
      for (size_t t = 0; t < std::size(kTypes); ++t) {
        const std::vector<float> back = Decode(kTypes[t], Encode(kTypes[t], row));
        for (size_t i = 0; i < row.size(); ++i) {
          ASSERT_LE(std::fabs(back[i] - row[i]), bounds[t] * 1.0001f) << NameOf(kTypes[t]);
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
        std::vector<float> row(256, 1.0f);
        row[0] = a;
        row[31] = b;
        const std::vector<float> back = Decode(dtype, Encode(dtype, row));
        EXPECT_EQ(back.size(), row.size());
      }
    }
  }
}

TEST(BlockQuant, ValuesTooSmallForTheScaleBecomeZero) {
  std::vector<float> row(256, 1e-30f);
  row[5] = -1e-30f;
  for (const DType dtype : kQuantised) {
    if (dtype == DType::kMXFP4) continue;  // its exponents reach down to there
    for (const float v : Decode(dtype, Encode(dtype, row))) EXPECT_EQ(v, 0.0f) << NameOf(dtype);
  }
}

TEST(BlockQuant, ReadsUnalignedBytes) {
  SplitMix64 rng(9);
  const std::vector<float> row = RandomRow(rng, 512, 1.0);
  for (const DType dtype : kAll) {
    const std::vector<std::byte> coded = Encode(dtype, row);
    std::vector<std::byte> shifted(coded.size() + 1);
    std::memcpy(shifted.data() + 1, coded.data(), coded.size());
    EXPECT_EQ(Decode(dtype, std::span(shifted).subspan(1)), Decode(dtype, coded)) << NameOf(dtype);
  }
}

// Root of the mean squared error of a normal row, relative to its own size.
double RelativeError(DType dtype) {
  SplitMix64 rng(11);
  std::vector<float> row(256 * 64);
  for (float& v : row) {
    v = 0;
    for (int i = 0; i < 12; ++i) v += static_cast<float>(rng.NextDouble() - 0.5);
  }
  const std::vector<float> back = Decode(dtype, Encode(dtype, row));
  double error = 0, size = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    error += (back[i] - row[i]) * (back[i] - row[i]);
    size += row[i] * row[i];
  }
  return std::sqrt(error / size);
}

// Of the reference quantisers, on a row of the same distribution: PyPI libgguf 0.2.2, 131,072
// values.
TEST(BlockQuant, ErrorsAreNoLargerThanTheReferences) {
  constexpr std::pair<DType, double> kReference[] = {
      {DType::kQ4_0, 0.08452}, {DType::kQ4_1, 0.07718},   {DType::kQ5_0, 0.04208},
      {DType::kQ5_1, 0.03738}, {DType::kQ8_0, 0.00526},   {DType::kQ2_K, 0.29400},
      {DType::kQ3_K, 0.14974}, {DType::kQ4_K, 0.07040},   {DType::kQ5_K, 0.03566},
      {DType::kQ6_K, 0.01750}, {DType::kIQ4_NL, 0.07529}, {DType::kIQ4_XS, 0.07585},
      {DType::kMXFP4, 0.11483}};
  for (const auto& [dtype, reference] : kReference) {
    const double error = RelativeError(dtype);
    EXPECT_LE(error, reference * 1.01) << NameOf(dtype);
    EXPECT_GE(error, reference * 0.85) << NameOf(dtype);  // too good to be true
  }
}

TEST(BlockQuant, TakesFieldsApartAndTogether) {
  SplitMix64 rng(10);
  for (const DType dtype : kQuantised) {
    std::vector<std::byte> block(static_cast<size_t>(InfoOf(dtype).block_bytes)), again(block);
    for (int trial = 0; trial < 20; ++trial) {
      for (std::byte& b : block) b = static_cast<std::byte>(rng.Below(256));
      BlockFields fields;
      ReadBlock(dtype, block.data(), &fields);
      WriteBlock(dtype, fields, again.data());
      ASSERT_EQ(block, again) << NameOf(dtype);
    }
  }
}

TEST(BlockQuantDeathTest, RefusesPartOfABlock) {
  std::vector<float> row(40);
  std::vector<std::byte> out(100);
  EXPECT_DEATH(QuantizeRow(DType::kQ4_0, row.data(), 40, out.data()), "block_elements");
}

}  // namespace
}  // namespace tandem
