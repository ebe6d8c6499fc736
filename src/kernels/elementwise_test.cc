#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/math_ref.h"
#include "kernels/ref/ops_ref.h"
#include "kernels/testing.h"

namespace tandem {
namespace {

using testing_kernels::IsaTest;
using testing_kernels::RandomFloats;
using testing_kernels::SameBits;
using testing_kernels::SameForms;
using testing_kernels::StreamOf;
using testing_kernels::TestActivation;
using testing_kernels::TestMatrix;

class ElementwiseTest : public IsaTest {};

TEST_P(ElementwiseTest, RmsNormEqualsTheReferenceInEachForm) {
  SplitMix64 rng(1);
  for (const int32_t cols : {1, 5, 16, 32, 33, 47, 64, 100, 576, 1536}) {
    for (const int32_t rows : {1, 2, 9}) {
      const auto x = RandomFloats(rng, int64_t{rows} * cols, 10.0f);
      const auto weight = RandomFloats(rng, cols);
      for (const int forms : {1, 2, 3, 6, 7}) {  // f32: 1, codes: 2, fine codes: 4
        const bool q8 = (forms & 2) != 0, fine = (forms & 4) != 0;
        if (q8 && cols % kActivationBlock != 0) continue;
        TestActivation expected(rows, cols, forms & 1, q8, fine);
        TestActivation actual(rows, cols, forms & 1, q8, fine);
        RmsNormArgs args{x.data(), weight.data(), 1e-5f, rows, expected.view};
        ref::RmsNorm(args);
        args.out = actual.view;
        RmsNorm(StreamOf(2), args);
        StreamOf(2).Synchronize();
        ASSERT_TRUE(SameForms(actual, expected)) << rows << " x " << cols << " forms " << forms;
      }
    }
  }
}

// Two blocks of large values among small ones, as a norm's outlier channels make them.
TEST_P(ElementwiseTest, RefinesTheBlocksWhereTheErrorGathers) {
  constexpr int32_t kCols = 320;
  SplitMix64 rng(7);
  std::vector<float> x = RandomFloats(rng, kCols, 1.0f);
  for (const size_t outlier : {40u, 300u}) x[outlier] = 30.0f;
  const std::vector<float> weight(kCols, 1.0f);
  TestActivation out(1, kCols, true, true, true);
  RmsNorm(StreamOf(1), {x.data(), weight.data(), 1e-5f, 1, out.view});
  StreamOf(1).Synchronize();
  for (size_t b = 0; b < out.refined.size(); ++b) {
    EXPECT_EQ(out.refined[b], b == 1 || b == 9 ? 1 : 0) << b;
    for (size_t i = b * 32; i < b * 32 + 32; ++i) {
      float code = out.codes[i];
      if (out.refined[b] != 0) code += static_cast<float>(out.fine_codes[i]) / 256;
      const float bound = out.scales[b] * (out.refined[b] != 0 ? 0.003f : 0.501f);
      EXPECT_NEAR(code * out.scales[b], out.f32[i], bound);
    }
  }
}

TEST_P(ElementwiseTest, SiluMulEqualsTheReferenceInEachForm) {
  SplitMix64 rng(2);
  for (const int32_t cols : {1, 16, 31, 64, 100, 512, 1536, 1568}) {
    for (const int32_t rows : {1, 3}) {
      const auto gate = RandomFloats(rng, int64_t{rows} * cols, 20.0f);
      const auto up = RandomFloats(rng, int64_t{rows} * cols, 3.0f);
      for (const int forms : {1, 2, 3, 6, 7}) {  // f32: 1, codes: 2, fine codes: 4
        const bool q8 = (forms & 2) != 0, fine = (forms & 4) != 0;
        if (q8 && cols % kActivationBlock != 0) continue;
        TestActivation expected(rows, cols, forms & 1, q8, fine);
        TestActivation actual(rows, cols, forms & 1, q8, fine);
        SiluMulArgs args{gate.data(), up.data(), rows, expected.view};
        ref::SiluMul(args);
        args.out = actual.view;
        SiluMul(StreamOf(2), args);
        StreamOf(2).Synchronize();
        ASSERT_TRUE(SameForms(actual, expected)) << rows << " x " << cols << " forms " << forms;
      }
    }
  }
}

TEST_P(ElementwiseTest, SiluTakesExtremeValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> gate = {0.0f,  -0.0f,  1e-40f, -1e-40f, 87.0f,  -87.0f, 88.5f, -88.5f,
                             1e30f, -1e30f, kInf,   3e38f,   -3e38f, 126.0f, 1.0f,  -1.0f};
  const std::vector<float> up(gate.size(), 1.0f);
  const auto cols = static_cast<int32_t>(gate.size());
  TestActivation expected(1, cols, true, false), actual(1, cols, true, false);
  SiluMulArgs args{gate.data(), up.data(), 1, expected.view};
  ref::SiluMul(args);
  args.out = actual.view;
  SiluMul(StreamOf(1), args);
  StreamOf(1).Synchronize();
  EXPECT_TRUE(SameForms(actual, expected));
  for (const float x : actual.f32) EXPECT_FALSE(std::isnan(x));
}

TEST_P(ElementwiseTest, QuantisationTakesExtremeBlocks) {
  // One block each: zeros, one denormal, scale that underflows, huge, halves between codes, NaN,
  // infinity.
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> x(7 * 32, 0.0f);
  x[32] = kTiny;
  for (size_t i = 0; i < 32; ++i) {
    x[2 * 32 + i] = kTiny * static_cast<float>(i * 6);
    x[3 * 32 + i] = 3e38f * (i % 2 == 0 ? 1.0f : -1.0f);
    x[4 * 32 + i] = static_cast<float>(i) * 0.5f + 111.5f;
    x[5 * 32 + i] = i == 7 ? kNaN : static_cast<float>(i);
    x[6 * 32 + i] = i == 9 ? -std::numeric_limits<float>::infinity() : 1.0f;
  }
  x[4 * 32] = -127.0f;
  const auto cols = static_cast<int32_t>(x.size());
  // silu(88) = 88 within rounding, so gate * up hands x / 88 * 88 on; unlike RmsNorm blocks stay
  // apart.
  const std::vector<float> gate(x.size(), 88.0f);
  TestActivation expected(1, cols, false, true), actual(1, cols, false, true);
  SiluMulArgs args{gate.data(), x.data(), 1, expected.view};
  ref::SiluMul(args);
  args.out = actual.view;
  SiluMul(StreamOf(2), args);
  StreamOf(2).Synchronize();
  EXPECT_TRUE(SameForms(actual, expected));
  for (const int8_t code : actual.codes) EXPECT_GE(code, -127);
  EXPECT_EQ(actual.scales[0], 0.0f);
  EXPECT_EQ(actual.sums[0], 0);
}

TEST_P(ElementwiseTest, AddGatherEmbedAndCopyEqualTheReference) {
  SplitMix64 rng(3);
  for (const int64_t count : {1, 15, 4096, 10001}) {
    const auto x = RandomFloats(rng, count);
    auto expected = RandomFloats(rng, count), actual = expected;
    ref::Add({x.data(), expected.data(), count});
    Add(StreamOf(2), {x.data(), actual.data(), count});
    StreamOf(2).Synchronize();
    EXPECT_TRUE(SameBits(actual, expected));
  }
  const std::vector<int32_t> indices = {3, 0, 3, 6};
  const auto rows = RandomFloats(rng, 7 * 33);
  std::vector<float> expected(4 * 33), actual(expected);
  ref::GatherRows({rows.data(), indices.data(), 4, 33, expected.data()});
  GatherRows(StreamOf(2), {rows.data(), indices.data(), 4, 33, actual.data()});
  StreamOf(2).Synchronize();
  EXPECT_TRUE(SameBits(actual, expected));

  const std::vector<int32_t> tokens = {36, 0, 17, 5, 30, 31, 1};  // token_table[indices[i]]
  for (const DType dtype : {DType::kQ8_0, DType::kF16}) {
    const TestMatrix table(rng, dtype, 37, 64);
    std::vector<float> e(4 * 64), a(e);
    ref::Embed({table.packed, tokens.data(), indices.data(), 4, e.data()});
    Embed(StreamOf(2), {table.packed, tokens.data(), indices.data(), 4, a.data()});
    StreamOf(2).Synchronize();
    EXPECT_TRUE(SameBits(a, e));
  }

  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    StateGroup group;
    group.layers = {0, 1};
    group.num_heads = 1;
    group.planes = {{"k", dtype, TileLayout::kDimMajor, 40},
                    {"v", dtype, TileLayout::kTokenMajor, 40}};
    group.tokens_per_block = 4;
    std::vector<std::byte> pool(static_cast<size_t>(group.BlockBytes()) * 4);
    for (auto& b : pool) b = static_cast<std::byte>(rng.Below(256));
    auto pool_ref = pool;
    const std::vector<int32_t> from = {0, 3}, to = {1, 2};
    ref::CopyBlocks({{pool_ref.data(), &group, 4}, from.data(), to.data(), 2});
    CopyBlocks(StreamOf(2), {{pool.data(), &group, 4}, from.data(), to.data(), 2});
    StreamOf(2).Synchronize();
    EXPECT_EQ(pool, pool_ref) << NameOf(dtype);
    // The copy says what the original said, to the last byte of its scales.
    const auto block = static_cast<std::ptrdiff_t>(group.BlockBytes());
    EXPECT_TRUE(std::equal(pool.begin() + 3 * block, pool.end(), pool.begin() + 2 * block));
  }
}

TANDEM_INSTANTIATE_ISAS(ElementwiseTest);

TEST(MathReference, ExpIsAccurate) {
  for (double x = -87; x <= 88; x += 0.00171) {
    const auto f = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(f));
    ASSERT_NEAR(ref::Exp(f) / exact, 1.0, 2e-7) << f;
  }
  EXPECT_EQ(ref::Exp(0.0f), 1.0f);
  EXPECT_EQ(ref::Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isfinite(ref::Exp(1e30f)));
  EXPECT_TRUE(std::isnan(ref::Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(MathReference, SinCosIsAccurateAtLargePositions) {
  SplitMix64 rng(4);
  for (int i = 0; i < 200000; ++i) {
    const auto position = static_cast<float>(rng.Below(i % 2 == 0 ? 10000 : (1 << 20)));
    const auto frequency = static_cast<float>(std::pow(10.0, -4.0 * rng.NextDouble()));
    float sin = 0, cos = 0;
    ref::SinCos(position, frequency, &sin, &cos);
    const double angle = static_cast<double>(position) * static_cast<double>(frequency);
    ASSERT_NEAR(sin, std::sin(angle), 2e-7) << position << " * " << frequency;
    ASSERT_NEAR(cos, std::cos(angle), 2e-7) << position << " * " << frequency;
  }
}

TEST(CpuIsa, TheChoiceIsAvailableAndNamed) {
  EXPECT_TRUE(CheckCpuIsa().ok());
  bool found = false;
  for (const auto* kernels : internal::AvailableCpuKernels()) {
    found = found || std::string(kernels->name) == CpuIsaName();
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace tandem
