#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/ref/math_ref.h"
#include "kernels/ref/ops_ref.h"
#include "kernels/testing.h"

namespace tandem {
namespace {

using testing_kernels::IsaTest;
using testing_kernels::RandomFloats;
using testing_kernels::SameBits;
using testing_kernels::StreamOf;
using testing_kernels::TestActivation;
using testing_kernels::TestMatrix;

using testing_kernels::ColumnUnit;
using testing_kernels::kAllTypes;
using testing_kernels::kQuantizedTypes;

bool IsQuantized(DType dtype) { return InfoOf(dtype).block_elements > 1; }

// Random rows in both forms; magnitudes differ from row to row and block to block.
void Fill(SplitMix64& rng, int32_t rows, TestActivation* x) {
  const int32_t cols = x->view.cols;
  for (int64_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < cols; ++c) {
      const float scale = static_cast<float>(1 + r % 5) * static_cast<float>(1 + c / 32 % 3);
      x->f32[static_cast<size_t>(r * cols + c)] = testing_kernels::RandomFloat(rng, scale);
    }
  }
  if (!x->view.has_q8()) return;
  for (size_t b = 0; b < x->scales.size(); ++b) {
    ref::QuantizeBlock(&x->f32[b * 32], &x->codes[b * 32], &x->scales[b], &x->sums[b]);
    if (x->refined.empty()) continue;
    x->refined[b] = rng.Below(4) == 0 ? 1 : 0;
    if (x->refined[b] == 0) continue;  // whatever the fine codes hold must not count
    ref::RefineBlock(&x->f32[b * 32], x->scales[b], &x->fine_codes[b * 32], &x->fine_sums[b]);
  }
}

// Rows for extreme blocks: row r has magnitudes from about 2^exponents[r] on, up to 2^12 above.
void FillExtreme(SplitMix64& rng, std::span<const int> exponents, TestActivation* x) {
  const int32_t cols = x->view.cols;
  for (size_t r = 0; r < exponents.size(); ++r) {
    for (int32_t b = 0; b < cols / 32; ++b) {
      const size_t block = r * static_cast<size_t>(cols / 32) + static_cast<size_t>(b);
      const float size = std::ldexp(1.0f, exponents[r] + static_cast<int>(rng.Below(12)));
      for (size_t i = 0; i < 32; ++i) {
        x->f32[block * 32 + i] = testing_kernels::RandomFloat(rng, size);
      }
      ref::QuantizeBlock(&x->f32[block * 32], &x->codes[block * 32], &x->scales[block],
                         &x->sums[block]);
      // Rows take turns: every block is refined in some rows and plain in others.
      x->refined[block] = x->scales[block] != 0 && (r + static_cast<size_t>(b)) % 3 == 0 ? 1 : 0;
      if (x->refined[block] == 0) continue;
      ref::RefineBlock(&x->f32[block * 32], x->scales[block], &x->fine_codes[block * 32],
                       &x->fine_sums[block]);
    }
  }
}

MatMulArgs RowsOf(const TestActivation& x, const TestMatrix& w, int64_t first, int32_t rows,
                  bool with_q8, std::vector<float>* out) {
  const int64_t at = first * x.view.cols, block = at / 32;
  MatMulArgs args;
  args.x.cols = x.view.cols;
  args.x.f32 = x.view.f32 + at;
  if (with_q8) {
    const QuantizedRows& q8 = x.view.q8;
    args.x.q8 = {q8.codes + at,
                 q8.scales + block,
                 q8.sums + block,
                 {q8.fine.codes + at, q8.fine.sums + block, q8.fine.refined + block}};
  }
  args.rows = rows;
  args.num_parts = 1;
  out->assign(static_cast<size_t>(rows * w.packed.rows), 0.0f);
  args.parts[0] = {w.packed, out->data(), w.packed.rows, false};
  return args;
}

class MatMulTest : public IsaTest {
 protected:
  // One part against the reference, with and without accumulation.
  void Compare(SplitMix64& rng, DType dtype, int32_t rows, int32_t n, int32_t k, bool with_q8,
               int threads) {
    CompareForm(rng, dtype, rows, n, k, with_q8, /*with_fine=*/false, threads);
    if (with_q8) CompareForm(rng, dtype, rows, n, k, with_q8, /*with_fine=*/true, threads);
  }

 private:
  void CompareForm(SplitMix64& rng, DType dtype, int32_t rows, int32_t n, int32_t k, bool with_q8,
                   bool with_fine, int threads) {
    SCOPED_TRACE(testing::Message() << NameOf(dtype) << " M=" << rows << " N=" << n << " K=" << k
                                    << (with_q8 ? " q8" : " f32") << (with_fine ? " refined" : "")
                                    << " threads=" << threads);
    const TestMatrix w(rng, dtype, n, k);
    TestActivation x(rows, k, true, with_q8, with_fine);
    Fill(rng, rows, &x);
    const auto start = RandomFloats(rng, int64_t{rows} * n);
    for (const bool accumulate : {false, true}) {
      std::vector<float> expected = start, actual = start;
      MatMulArgs args;
      args.x = x.view;
      if (with_q8 && IsQuantized(dtype)) args.x.f32 = nullptr;  // must not be needed
      args.rows = rows;
      args.num_parts = 1;
      args.parts[0] = {w.packed, expected.data(), n, accumulate};
      ref::MatMul(args);
      args.parts[0].out = actual.data();
      MatMul(StreamOf(threads), args);
      StreamOf(threads).Synchronize();
      ASSERT_TRUE(SameBits(actual, expected));
    }
  }
};

TEST_P(MatMulTest, EqualsTheReference) {
  SplitMix64 rng(1);
  for (const DType dtype : kAllTypes) {
    for (const bool with_q8 : {false, true}) {
      if (with_q8 && !IsQuantized(dtype)) continue;
      const int32_t unit = ColumnUnit(dtype);
      if (unit == 256) {  // dear to make: the shapes that differ by type
        for (const int32_t rows : {1, 3, 8, 33}) {
          for (const int32_t n : {5, 36}) Compare(rng, dtype, rows, n, 256, with_q8, 2);
        }
        Compare(rng, dtype, 1, 80, 512, with_q8, 3);
        Compare(rng, dtype, 27, 18, 1280, with_q8, 1);  // several sweeps of columns
        Compare(rng, dtype, 1, 16, 2304, with_q8, 2);   // several panels of columns
        Compare(rng, dtype, 3, 16, 2304, with_q8, 2);
        continue;
      }
      for (const int32_t rows : {1, 2, 3, 5, 8, 9, 33}) {
        for (const int32_t n : {1, 15, 16, 17, 100}) Compare(rng, dtype, rows, n, 96, with_q8, 2);
      }
      for (const int32_t k : {32, 64, 160, 576, 1536}) {
        Compare(rng, dtype, 1, 80, k, with_q8, 2);
        Compare(rng, dtype, 4, 48, k, with_q8, 1);
      }
      for (int32_t rows = 1; rows <= 17; ++rows) Compare(rng, dtype, rows, 36, 64, with_q8, 3);
      Compare(rng, dtype, 300, 40, 64, with_q8, 2);   // several runs of rows
      Compare(rng, dtype, 27, 40, 1120, with_q8, 2);  // several sweeps of columns
      Compare(rng, dtype, 1, 16, 4160, with_q8, 2);   // several panels of columns
      Compare(rng, dtype, 3, 16, 4160, with_q8, 2);
    }
  }
}

TEST_P(MatMulTest, PlainTypesTakeAnyNumberOfColumns) {
  SplitMix64 rng(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int32_t k : {1, 7, 31, 33, 100}) {
      Compare(rng, dtype, 1, 70, k, false, 2);
      Compare(rng, dtype, 6, 20, k, false, 2);
    }
  }
}

TEST_P(MatMulTest, ARowDoesNotDependOnItsNeighboursNorOnThreads) {
  SplitMix64 rng(3);
  constexpr int32_t kRows = 21, kN = 100, kK = 512;
  for (const DType dtype : kAllTypes) {
    const TestMatrix w(rng, dtype, kN, kK);
    TestActivation x(kRows, kK, true, true, true);
    Fill(rng, kRows, &x);
    for (const bool with_q8 : {false, true}) {
      const auto run = [&](int64_t first, int32_t rows, int threads) {
        std::vector<float> out;
        MatMul(StreamOf(threads), RowsOf(x, w, first, rows, with_q8, &out));
        StreamOf(threads).Synchronize();
        return out;
      };
      const auto together = run(0, kRows, 2);
      EXPECT_TRUE(SameBits(run(0, kRows, 1), together));
      EXPECT_TRUE(SameBits(run(0, kRows, 3), together));
      for (int32_t r = 0; r < kRows; ++r) {
        const std::vector<float> part(together.begin() + r * kN, together.begin() + (r + 1) * kN);
        ASSERT_TRUE(SameBits(run(r, 1, 2), part)) << NameOf(dtype) << " row " << r;
      }
    }
  }
}

TEST_P(MatMulTest, ThreePartsWithStridesWriteOnlyTheirOwnColumns) {
  SplitMix64 rng(4);
  constexpr int32_t kRows = 5, kK = 64, kStride = 200;
  const TestMatrix a(rng, DType::kQ4_1, 48, kK), b(rng, DType::kQ8_0, 17, kK),
      c(rng, DType::kF16, 33, kK);
  TestActivation x(kRows, kK, true, true);
  Fill(rng, kRows, &x);
  std::vector<float> expected(kRows * kStride, -3.0f), actual(expected);
  const auto args_into = [&](std::vector<float>& out) {
    MatMulArgs args;
    args.x = x.view;
    args.rows = kRows;
    args.num_parts = 3;
    args.parts[0] = {a.packed, out.data(), kStride, false};
    args.parts[1] = {b.packed, out.data() + 60, kStride, true};
    args.parts[2] = {c.packed, out.data() + 100, kStride, false};
    return args;
  };
  ref::MatMul(args_into(expected));
  MatMul(StreamOf(2), args_into(actual));
  StreamOf(2).Synchronize();
  EXPECT_TRUE(SameBits(actual, expected));
  EXPECT_EQ(actual[48], -3.0f);
  EXPECT_EQ(actual[kStride - 1], -3.0f);
}

TEST_P(MatMulTest, ExtremeCodesDoNotSaturate) {
  // Largest codes with equal signs everywhere: 16-bit intermediate sums would overflow.
  constexpr int32_t kK = 256;
  SplitMix64 rng(5);
  for (const DType dtype : kQuantizedTypes) {
    for (const int fill : {0x00, 0x7F, 0x80, 0xFF}) {
      TestMatrix w(rng, dtype, 16, kK);
      // Every code byte of the packed form; the scales behind them stay.
      const auto code_bytes = static_cast<size_t>(kK * FormatOf(dtype).code_bits / 8 * kPackRows);
      std::memset(const_cast<std::byte*>(w.packed.data), fill, code_bytes);
      for (const int8_t code : {int8_t{127}, int8_t{-127}}) {
        TestActivation x(1, kK, false, true);
        for (auto& q : x.codes) q = code;
        for (auto& s : x.scales) s = 0.5f;
        for (auto& s : x.sums) s = 32 * code;
        std::vector<float> expected(16), actual(16);
        MatMulArgs args;
        args.x = x.view;
        args.rows = 1;
        args.num_parts = 1;
        args.parts[0] = {w.packed, expected.data(), 16, false};
        ref::MatMul(args);
        args.parts[0].out = actual.data();
        MatMul(StreamOf(1), args);
        StreamOf(1).Synchronize();
        EXPECT_TRUE(SameBits(actual, expected)) << NameOf(dtype) << " " << fill << " " << +code;
      }
    }
  }
}

// Blocks of random bytes have every scale there is: subnormal, huge, infinite, NaN; with the least
// and the largest activations their products leave the normal numbers on both sides.
TEST_P(MatMulTest, RowsOfExtremeBlocksDependOnThemselvesAlone) {
  SplitMix64 rng(7);
  constexpr int32_t kN = 40, kK = 256;
  constexpr int kExponents[] = {-80, -40, -81, 0,  100, -78, 115, -60, 20, 110, -79, -70, 50, -75,
                                -80, -90, -80, 60, -80, 90,  -80, -80, 0,  0,   80,  -80, 118};
  constexpr auto kRows = static_cast<int32_t>(std::size(kExponents));
  for (const DType dtype : kQuantizedTypes) {
    std::vector<std::byte> bytes(static_cast<size_t>(BytesOf(dtype, int64_t{kN} * kK)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.Below(256));
    if (dtype == DType::kMXFP4) {
      // Every other row has low exponents only, where products with the least activations are
      // subnormal: nothing else would show in a sum.
      const auto size = static_cast<size_t>(InfoOf(dtype).block_bytes);
      for (size_t at = 0; at < bytes.size(); at += size) {
        if (at / size / (kK / 32) % 2 == 0) bytes[at] = static_cast<std::byte>(rng.Below(100));
      }
    }
    const TestMatrix w(std::move(bytes), dtype, kN, kK);
    TestActivation x(kRows, kK, true, true, true);
    FillExtreme(rng, kExponents, &x);
    for (const bool with_q8 : {false, true}) {
      std::vector<float> expected, together;
      ref::MatMul(RowsOf(x, w, 0, kRows, with_q8, &expected));
      for (const int32_t tile : {kRows, 5, 1}) {  // a wide tile, small ones, none
        std::vector<float> all;
        for (int32_t r = 0; r < kRows; r += tile) {
          MatMul(StreamOf(2), RowsOf(x, w, r, std::min(tile, kRows - r), with_q8, &together));
          StreamOf(2).Synchronize();
          all.insert(all.end(), together.begin(), together.end());
        }
        EXPECT_TRUE(testing_kernels::SameBitsOrNan(all, expected))
            << NameOf(dtype) << (with_q8 ? " q8" : " f32") << " in tiles of " << tile;
      }
    }
  }
}

TANDEM_INSTANTIATE_ISAS(MatMulTest);

// The reference itself against arithmetic in double: 8-bit activations cost precision, not
// correctness.
TEST(MatMulReference, FastIsCloseToTheExactProduct) {
  SplitMix64 rng(6);
  constexpr int32_t kRows = 3, kN = 20, kK = 256;
  for (const DType dtype : kQuantizedTypes) {
    const TestMatrix w(rng, dtype, kN, kK);
    TestActivation x(kRows, kK, true, true, true);
    Fill(rng, kRows, &x);
    for (const bool with_q8 : {false, true}) {
      std::vector<float> out(kRows * kN), row(kK);
      MatMulArgs args;
      args.x = x.view;
      if (!with_q8) args.x.q8 = {};
      args.rows = kRows;
      args.num_parts = 1;
      args.parts[0] = {w.packed, out.data(), kN, false};
      ref::MatMul(args);
      for (int32_t n = 0; n < kN; ++n) {
        DequantizeRow(dtype, w.source.data() + BytesOf(dtype, int64_t{n} * kK), kK, row.data());
        for (int32_t r = 0; r < kRows; ++r) {
          double sum = 0, norm_w = 0, norm_x = 0;
          for (size_t k = 0; k < kK; ++k) {
            const double xk = x.f32[static_cast<size_t>(r) * kK + k];
            sum += row[k] * xk;
            norm_w += row[k] * row[k];
            norm_x += xk * xk;
          }
          // A code is off by at most half a step of 1/127 of a block's maximum, rms 1/sqrt(12)
          // steps; f32 by 2^-24.
          const double size = std::sqrt(norm_w * norm_x);
          const double tolerance = with_q8 ? size * 0.01 : size * 1e-6;
          EXPECT_NEAR(out[static_cast<size_t>(r * kN + n)], sum, tolerance);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
