#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/ref/ops_ref.h"
#include "kernels/testing.h"
#include "tensor/half.h"

namespace tandem {
namespace {

using testing_kernels::IsaTest;
using testing_kernels::RandomFloats;
using testing_kernels::SameBits;
using testing_kernels::SameForms;
using testing_kernels::StreamOf;
using testing_kernels::TestActivation;

struct Geometry {
  int32_t num_heads = 9;
  int32_t num_kv_heads = 3;
  int32_t head_dim = 64;
  int32_t tokens_per_block = 16;
  DType dtype = DType::kF16;
  int32_t cols() const { return num_heads * head_dim; }
};

constexpr DType kStateTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0};

// Half a code of the largest magnitude, whose scale is rounded to f16.
constexpr float kRoundingOfQ8 = 0.5f / 127 * (1 + 0x1p-11f) * (1 + 0x1p-20f);

// How far a stored value is from the one that came, relative to the largest magnitude around it.
float RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1p-11f;
    case DType::kBF16: return 0x1p-8f;
    case DType::kQ8_0: return kRoundingOfQ8;
    default: return 0;
  }
}

StateGroup GroupOf(const Geometry& g) {
  StateGroup group;
  group.layers = {0, 1};
  group.num_heads = g.num_kv_heads;
  group.planes = {{"k", g.dtype, TileLayout::kDimMajor, g.head_dim},
                  {"v", g.dtype, TileLayout::kTokenMajor, g.head_dim}};
  group.tokens_per_block = g.tokens_per_block;
  return group;
}

// Sequences of given lengths whose last tokens form a batch. The pool starts full of NaN, blocks
// lie scattered, and positions before the batch are written by the reference.
class World {
 public:
  struct Row {
    int32_t position;
    int32_t num_tokens;
  };

  World(SplitMix64& rng, const Geometry& g, const std::vector<Row>& rows)
      : geometry_(g), group_(GroupOf(g)), rows_in_(rows) {
    int32_t blocks = 0;
    for (const Row& row : rows) {
      blocks += static_cast<int32_t>(group_.BlocksFor(row.position + row.num_tokens));
    }
    pool_.resize(static_cast<size_t>(group_.BlockBytes()) * static_cast<size_t>(blocks));
    Poison();
    // Physical blocks in an order without pattern.
    std::vector<int32_t> physical(static_cast<size_t>(blocks));
    for (int32_t b = 0; b < blocks; ++b) physical[static_cast<size_t>(b)] = b;
    SplitMix64 order(17);  // its own: the values do not depend on the number of blocks
    for (size_t b = physical.size(); b > 1; --b) {
      std::swap(physical[b - 1], physical[order.Below(b)]);
    }
    tables_ = physical;
    int32_t begin = 0;
    for (const Row& row : rows) {
      Prefill(rng, begin, row.position);
      begin += static_cast<int32_t>(group_.BlocksFor(row.position + row.num_tokens));
    }
    MakeBatch(rng);
  }

  BatchView batch() const {
    return {static_cast<int32_t>(positions_.size()),
            static_cast<int32_t>(batch_rows_.size()),
            positions_.data(),
            row_of_token_.data(),
            batch_rows_.data(),
            tables_.data()};
  }
  PagedStateView state() { return {pool_.data(), &group_, static_cast<int32_t>(tables_.size())}; }
  RopeStoreArgs rope(std::vector<float>* q, std::vector<float>* k) {
    RopeStoreArgs args;
    args.batch = batch();
    args.state = state();
    args.layer = 1;
    args.num_heads = geometry_.num_heads;
    args.num_kv_heads = geometry_.num_kv_heads;
    args.head_dim = geometry_.head_dim;
    args.rope_dims = geometry_.head_dim;
    args.frequencies = frequencies_.data();
    args.q = q->data();
    args.k = k->data();
    args.v = v_.data();
    args.q_stride = geometry_.cols();
    args.k_stride = args.v_stride = geometry_.num_kv_heads * geometry_.head_dim;
    return args;
  }
  AttentionArgs attention(const std::vector<float>& q, const Activation& out,
                          std::vector<float>* scratch, int threads) {
    AttentionArgs args;
    args.batch = batch();
    args.state = state();
    args.layer = 1;
    args.num_heads = geometry_.num_heads;
    args.num_kv_heads = geometry_.num_kv_heads;
    args.head_dim = geometry_.head_dim;
    args.scale = 1.0f / std::sqrt(static_cast<float>(geometry_.head_dim));
    args.q = q.data();
    args.q_stride = geometry_.cols();
    args.out = out;
    int32_t context = 0;
    for (const Row& row : rows_in_) context = std::max(context, row.position + row.num_tokens);
    scratch->assign(static_cast<size_t>(AttentionScratchFloats(
                        args.batch.num_tokens, context, args.num_heads, args.head_dim, threads)),
                    std::numeric_limits<float>::quiet_NaN());
    args.scratch = scratch->data();
    return args;
  }

  const Geometry& geometry() const { return geometry_; }
  int32_t num_tokens() const { return static_cast<int32_t>(positions_.size()); }
  std::vector<float> q_, k_, v_;
  std::vector<std::byte> pool_;
  std::vector<int32_t> tables_;

 private:
  void Poison() {
    // NaN in every type; of kQ8_0, the scales.
    for (auto& b : pool_) b = std::byte{0x7F};
  }

  void Prefill(SplitMix64& rng, int32_t table_begin, int32_t count) {
    for (int32_t p = 0; p < count; ++p) {
      const BlockId block(tables_[static_cast<size_t>(table_begin + p / group_.tokens_per_block)]);
      for (int32_t h = 0; h < geometry_.num_kv_heads; ++h) {
        for (size_t plane = 0; plane < 2; ++plane) {
          const std::vector<float> x = RandomFloats(rng, geometry_.head_dim, 2.0f);
          ref::StoreState(group_, plane, p % group_.tokens_per_block, x.data(),
                          state().Tile(block, 1, h, plane));
        }
      }
    }
  }

  void MakeBatch(SplitMix64& rng) {
    int32_t table_begin = 0;
    for (size_t r = 0; r < rows_in_.size(); ++r) {
      const Row& row = rows_in_[r];
      batch_rows_.push_back(
          {static_cast<int32_t>(positions_.size()), row.num_tokens, row.position, table_begin});
      for (int32_t t = 0; t < row.num_tokens; ++t) {
        positions_.push_back(row.position + t);
        row_of_token_.push_back(static_cast<int32_t>(r));
      }
      table_begin += static_cast<int32_t>(group_.BlocksFor(row.position + row.num_tokens));
    }
    const auto tokens = static_cast<int64_t>(positions_.size());
    q_ = RandomFloats(rng, tokens * geometry_.cols(), 3.0f);
    k_ = RandomFloats(rng, tokens * geometry_.num_kv_heads * geometry_.head_dim, 3.0f);
    v_ = RandomFloats(rng, tokens * geometry_.num_kv_heads * geometry_.head_dim, 3.0f);
    for (int32_t i = 0; i < geometry_.head_dim / 2; ++i) {
      frequencies_.push_back(static_cast<float>(
          std::pow(10000.0, -2.0 * i / static_cast<double>(geometry_.head_dim))));
    }
  }

  Geometry geometry_;
  StateGroup group_;
  std::vector<Row> rows_in_;
  std::vector<int32_t> positions_, row_of_token_;
  std::vector<BatchRow> batch_rows_;
  std::vector<float> frequencies_;
};

class AttentionTest : public IsaTest {
 protected:
  // RopeStore and Attention of the batch against the reference; returns the f32 output.
  std::vector<float> Compare(World& world, int threads, bool with_q8) {
    auto q = world.q_, k = world.k_;
    const auto pool = world.pool_;
    ref::RopeStore(world.rope(&q, &k));
    std::vector<float> scratch;
    TestActivation expected(world.num_tokens(), world.geometry().cols(), true, with_q8, with_q8);
    ref::Attention(world.attention(q, expected.view, &scratch, threads));

    const auto expected_q = q, expected_k = k;
    auto expected_pool = world.pool_;
    world.pool_ = pool;
    q = world.q_;
    k = world.k_;
    Stream& stream = StreamOf(threads);
    RopeStore(stream, world.rope(&q, &k));
    TestActivation actual(world.num_tokens(), world.geometry().cols(), true, with_q8, with_q8);
    Attention(stream, world.attention(q, actual.view, &scratch, threads));
    stream.Synchronize();
    EXPECT_TRUE(SameBits(q, expected_q));
    EXPECT_TRUE(SameBits(k, expected_k));
    EXPECT_EQ(world.pool_, expected_pool);
    EXPECT_TRUE(SameForms(actual, expected));
    for (const float x : actual.f32) EXPECT_FALSE(std::isnan(x));
    if (with_q8) {  // without the f32 form
      TestActivation codes(world.num_tokens(), world.geometry().cols(), false, true, true);
      Attention(stream, world.attention(q, codes.view, &scratch, threads));
      stream.Synchronize();
      EXPECT_TRUE(SameBits(codes.codes, expected.codes));
    }
    return actual.f32;
  }
};

TEST_P(AttentionTest, DecodeRowsEqualTheReference) {
  SplitMix64 rng(1);
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    for (const int threads : {1, 2, 3}) {
      World one(rng, {.dtype = dtype}, {{0, 1}});
      Compare(one, threads, true);
      World few(rng, {.dtype = dtype}, {{5, 1}, {15, 1}, {16, 1}, {530, 1}, {100, 1}});
      Compare(few, threads, true);
    }
  }
}

TEST_P(AttentionTest, LongContextsSplitAndMergeAsTheReference) {
  SplitMix64 rng(2);
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    for (const int32_t position : {510, 511, 512, 513, 1023, 1600}) {
      World world(rng, {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .dtype = dtype},
                  {{position, 1}});
      for (const int threads : {1, 2}) Compare(world, threads, true);
    }
  }
}

TEST_P(AttentionTest, ChunksEqualTheReference) {
  SplitMix64 rng(3);
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    const Geometry small{.num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .dtype = dtype};
    for (const int32_t tokens : {2, 3, 7, 40}) {
      for (const int32_t position : {0, 1, 17, 500}) {
        World world(rng, small, {{position, tokens}});
        Compare(world, 2, true);
      }
    }
    World mixed(rng, small, {{30, 1}, {0, 37}, {509, 9}, {700, 1}, {1020, 12}});
    Compare(mixed, 2, true);
    // Tiles of one query head each, and of full rows.
    for (const int32_t heads : {1, 8}) {
      World world(rng, {.num_heads = heads, .num_kv_heads = 1, .dtype = dtype}, {{490, 40}});
      Compare(world, 2, true);
    }
  }
}

TEST_P(AttentionTest, OddShapesEqualTheReference) {
  SplitMix64 rng(4);
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    for (const int32_t per_block : {1, 3, 8, 16, 32, 48, 100}) {
      World world(rng,
                  {.num_heads = 4,
                   .num_kv_heads = 2,
                   .head_dim = 48,
                   .tokens_per_block = per_block,
                   .dtype = dtype},
                  {{50, 1}, {3, 20}, {515, 1}});
      Compare(world, 2, true);
    }
    // Whole runs of 32, and of 2, 8, 16, 20 and 28 behind them.
    for (const int32_t head_dim : {2, 8, 16, 20, 34, 60, 80, 128, 256}) {
      for (const int32_t per_block : {16, 5}) {
        World world(rng,
                    {.num_heads = 2,
                     .num_kv_heads = 1,
                     .head_dim = head_dim,
                     .tokens_per_block = per_block,
                     .dtype = dtype},
                    {{20, 5}});
        Compare(world, 2, 2 * head_dim % 32 == 0);
      }
    }
  }
  // One KV head for all; more query heads than a tile has rows; one query head for each.
  for (const auto& [heads, kv] : {std::pair{8, 1}, {40, 1}, {32, 2}, {3, 3}}) {
    World world(rng, {.num_heads = heads, .num_kv_heads = kv, .head_dim = 16}, {{20, 1}, {9, 18}});
    Compare(world, 2, heads % 2 == 0);
  }
}

TEST_P(AttentionTest, TheBlockSizeDoesNotChangeTheNumbers) {
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    std::vector<float> first;
    for (const int32_t per_block : {16, 5, 64}) {
      SplitMix64 rng(5);  // the same state and queries
      World world(rng,
                  {.num_heads = 2,
                   .num_kv_heads = 1,
                   .head_dim = 32,
                   .tokens_per_block = per_block,
                   .dtype = dtype},
                  {{500, 40}});
      const auto out = Compare(world, 2, true);
      EXPECT_TRUE(first.empty() || SameBits(out, first));
      first = out;
    }
  }
}

// The same sequence in one chunk, and token by token with the state of the earlier ones in place.
void ExpectTokensOfAChunkStandAlone(DType dtype) {
  SplitMix64 rng(6);
  const Geometry g{.num_heads = 6, .num_kv_heads = 2, .head_dim = 32, .dtype = dtype};
  World world(rng, g, {{505, 14}});
  auto q = world.q_, k = world.k_;
  RopeStore(StreamOf(2), world.rope(&q, &k));
  std::vector<float> scratch;
  TestActivation whole(14, g.cols(), true, true, true);
  Attention(StreamOf(2), world.attention(q, whole.view, &scratch, 2));
  StreamOf(2).Synchronize();
  for (int32_t t = 0; t < 14; ++t) {
    const int32_t position = 505 + t, row_of = 0;
    const BatchRow row{0, 1, position, 0};
    TestActivation alone(1, g.cols(), true, true, true);
    AttentionArgs args = world.attention(q, alone.view, &scratch, 2);
    args.batch = {1, 1, &position, &row_of, &row, world.tables_.data()};
    args.q += int64_t{t} * g.cols();
    Attention(StreamOf(2), args);
    StreamOf(2).Synchronize();
    const std::vector<float> expected(whole.f32.begin() + t * g.cols(),
                                      whole.f32.begin() + (t + 1) * g.cols());
    ASSERT_TRUE(SameBits(alone.f32, expected)) << "token " << t;
  }
}

TEST_P(AttentionTest, ATokenDoesNotDependOnItsChunk) {
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    ExpectTokensOfAChunkStandAlone(dtype);
  }
}

// Numbers of every kind: ties, beyond the largest of the type, subnormal, infinite, NaN.
TEST_P(AttentionTest, UnusualNumbersAreStoredAsTheReference) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> unusual = {
      0.0f,   -0.0f,     1.0f + 0x1p-8f, 1.0f + 0x1.8p-7f, 65504.0f,         65520.0f, 3e38f,
      -3e38f, 0x1p-126f, 0x1.8p-140f,    0x1p-149f,        0x1.8p-25f,       63.5f,    62.5f,
      -0.5f,  127.0f,    0x1.fffp+15f,   -8.4e6f,          0x1.fffffep+127f, kInf,     -kInf,
      nan,    -nan};
  for (const DType dtype : kStateTypes) {
    SCOPED_TRACE(NameOf(dtype));
    for (const size_t longest : {size_t{6}, size_t{15}, size_t{18}, unusual.size()}) {
      SplitMix64 rng(13);
      World world(rng, {.head_dim = 48, .dtype = dtype}, {{3, 12}});
      auto q = world.q_, k = world.k_, v = world.v_;
      for (float& x : v) x = unusual[rng.Below(longest)];
      for (float& x : k) x = unusual[rng.Below(longest)];
      auto args = world.rope(&q, &k);
      args.v = v.data();
      args.rope_dims = 0;
      const auto pool = world.pool_;
      ref::RopeStore(args);
      const auto expected = world.pool_;
      world.pool_ = pool;
      RopeStore(StreamOf(2), args);
      StreamOf(2).Synchronize();
      EXPECT_EQ(world.pool_, expected) << "of the first " << longest;
    }
  }
}

TEST_P(AttentionTest, PartialAndSplitHalfRotationEqualTheReference) {
  SplitMix64 rng(7);
  for (const bool interleaved : {false, true}) {
    for (const int32_t rope_dims : {0, 2, 24, 32, 64}) {
      World world(rng, {}, {{7, 3}, {8000, 1}});
      auto q = world.q_, k = world.k_;
      const auto pool = world.pool_;
      auto args = world.rope(&q, &k);
      args.interleaved = interleaved;
      args.rope_dims = rope_dims;
      ref::RopeStore(args);
      const auto expected_q = q, expected_k = k;
      const auto expected_pool = world.pool_;
      q = world.q_;
      k = world.k_;
      world.pool_ = pool;
      RopeStore(StreamOf(2), args);
      StreamOf(2).Synchronize();
      EXPECT_TRUE(SameBits(q, expected_q));
      EXPECT_TRUE(SameBits(k, expected_k));
      EXPECT_EQ(world.pool_, expected_pool);
    }
  }
}

TEST_P(AttentionTest, BiasesAndHeadNormsEqualTheReference) {
  SplitMix64 rng(9);
  for (const int32_t head_dim : {2, 8, 16, 20, 36, 64, 80, 128}) {
    const Geometry g{.num_heads = 6, .num_kv_heads = 2, .head_dim = head_dim};
    const auto q_bias = RandomFloats(rng, int64_t{6} * head_dim);
    const auto k_bias = RandomFloats(rng, int64_t{2} * head_dim);
    const auto v_bias = RandomFloats(rng, int64_t{2} * head_dim);
    const auto q_norm = RandomFloats(rng, head_dim), k_norm = RandomFloats(rng, head_dim);
    for (const int parts : {1, 2, 3}) {
      World world(rng, g, {{7, 3}, {30, 1}, {4, 17}});
      auto q = world.q_, k = world.k_, v = world.v_;
      const auto pool = world.pool_;
      auto args = world.rope(&q, &k);
      args.v = v.data();
      if (parts & 1) {
        args.q_bias = q_bias.data();
        args.k_bias = k_bias.data();
        args.v_bias = v_bias.data();
      }
      if (parts & 2) {
        args.q_norm = q_norm.data();
        args.k_norm = k_norm.data();
        args.norm_epsilon = 1e-6f;
      }
      ref::RopeStore(args);
      const auto expected_q = q, expected_k = k;
      const auto expected_pool = world.pool_;
      q = world.q_;
      k = world.k_;
      v = world.v_;
      world.pool_ = pool;
      RopeStore(StreamOf(2), args);
      StreamOf(2).Synchronize();
      EXPECT_TRUE(SameBits(q, expected_q)) << head_dim << " parts " << parts;
      EXPECT_TRUE(SameBits(k, expected_k)) << head_dim << " parts " << parts;
      EXPECT_EQ(world.pool_, expected_pool) << head_dim << " parts " << parts;
    }
  }
}

TANDEM_INSTANTIATE_ISAS(AttentionTest);

// What the bytes of a tile mean, written without the library's own readers.
TEST(StoredState, OfQ8IsCodesInTheOrderOfTheTileThenScales) {
  SplitMix64 rng(14);
  constexpr int32_t kDims = 80, kTokens = 5;  // runs of 32, 32 and 16 dims
  StateGroup group = GroupOf(
      {.num_kv_heads = 1, .head_dim = kDims, .tokens_per_block = kTokens, .dtype = DType::kQ8_0});
  ASSERT_EQ(group.PlaneBytes(0), kTokens * (kDims + 2 * 3));
  std::vector<std::byte> tiles[2];
  std::vector<float> x;
  for (size_t plane = 0; plane < 2; ++plane) {
    tiles[plane].resize(static_cast<size_t>(group.PlaneBytes(plane)));
  }
  for (int32_t slot = 0; slot < kTokens; ++slot) {
    const auto token = RandomFloats(rng, kDims, 1.0f + static_cast<float>(slot));
    x.insert(x.end(), token.begin(), token.end());
    for (size_t plane = 0; plane < 2; ++plane) {
      ref::StoreState(group, plane, slot, token.data(), tiles[plane].data());
    }
  }
  for (int32_t slot = 0; slot < kTokens; ++slot) {
    for (int32_t d = 0; d < kDims; ++d) {
      const int32_t run = d / 32;
      const auto stored = [&](size_t plane, int32_t code_at, int32_t scale_at) {
        const auto code = static_cast<int8_t>(tiles[plane][static_cast<size_t>(code_at)]);
        uint16_t scale = 0;
        std::memcpy(&scale, &tiles[plane][static_cast<size_t>(kTokens * kDims + 2 * scale_at)], 2);
        return static_cast<float>(code) * HalfToFloat(scale);
      };
      float largest = 0;
      for (int32_t i = run * 32; i < std::min(kDims, run * 32 + 32); ++i) {
        largest = std::max(largest, std::fabs(x[static_cast<size_t>(slot * kDims + i)]));
      }
      const float tolerance = largest * kRoundingOfQ8;
      const float value = x[static_cast<size_t>(slot * kDims + d)];
      EXPECT_NEAR(stored(0, d * kTokens + slot, run * kTokens + slot), value, tolerance);
      EXPECT_NEAR(stored(1, slot * kDims + d, run * kTokens + slot), value, tolerance);
    }
  }
}

TEST(RopeStoreReference, IsBiasThenNormThenRotation) {
  SplitMix64 rng(10);
  const Geometry g{.num_heads = 2, .num_kv_heads = 1, .head_dim = 4, .dtype = DType::kF32};
  World world(rng, g, {{3, 1}});
  auto q = world.q_, k = world.k_;
  const auto v = world.v_;
  const std::vector<float> q_bias = {1, -2, 3, 0.5f, 0, 1, -1, 4}, q_norm = {0.5f, 2, -1, 3};
  const std::vector<float> k_bias = {-1, 0.25f, 2, 1}, k_norm = {1, 0.5f, 3, -2};
  const std::vector<float> v_bias = {1, 2, 3, 4};
  auto args = world.rope(&q, &k);
  args.q_bias = q_bias.data();
  args.k_bias = k_bias.data();
  args.v_bias = v_bias.data();
  args.q_norm = q_norm.data();
  args.k_norm = k_norm.data();
  args.norm_epsilon = 0.125f;
  ref::RopeStore(args);
  const auto expect = [&](const float* x, const float* bias, const float* norm, const float* got) {
    double y[4], squares = 0;
    for (int d = 0; d < 4; ++d) {
      y[d] = double{x[d]} + bias[d];
      squares += y[d] * y[d];
    }
    for (int d = 0; d < 4; ++d) y[d] *= norm[d] / std::sqrt(squares / 4 + 0.125);
    for (int i = 0; i < 2; ++i) {  // frequencies 1 and 0.01, position 3, pairs (i, i + 2)
      const double angle = 3 * (i == 0 ? 1.0 : 0.01);
      EXPECT_NEAR(got[i], y[i] * std::cos(angle) - y[i + 2] * std::sin(angle), 1e-5);
      EXPECT_NEAR(got[i + 2], y[i] * std::sin(angle) + y[i + 2] * std::cos(angle), 1e-5);
    }
  };
  expect(world.q_.data(), q_bias.data(), q_norm.data(), q.data());
  expect(world.q_.data() + 4, q_bias.data() + 4, q_norm.data(), q.data() + 4);
  expect(world.k_.data(), k_bias.data(), k_norm.data(), k.data());
  const std::byte* tile = world.state().Tile(BlockId(world.tables_[0]), 1, 0, 1);
  for (int d = 0; d < 4; ++d) {
    float stored = 0;
    std::memcpy(&stored, tile + 4 * (3 * 4 + d), 4);
    EXPECT_EQ(stored, v[static_cast<size_t>(d)] + v_bias[static_cast<size_t>(d)]);
  }
}

TEST(AttentionReference, IsSoftmaxOfScaledScores) {
  SplitMix64 rng(8);
  const Geometry g{.num_heads = 2, .num_kv_heads = 1, .head_dim = 8, .dtype = DType::kF32};
  World world(rng, g, {{700, 1}});
  auto q = world.q_, k = world.k_;
  ref::RopeStore(world.rope(&q, &k));
  std::vector<float> scratch;
  TestActivation out(1, g.cols(), true, false);
  const auto args = world.attention(q, out.view, &scratch, 1);
  ref::Attention(args);
  const auto value = [&](size_t plane, int32_t p, int32_t d) {
    const BlockId block(world.tables_[static_cast<size_t>(p / g.tokens_per_block)]);
    const int32_t slot = p % g.tokens_per_block;
    float x = 0;
    std::memcpy(&x,
                world.state().Tile(block, 1, 0, plane) +
                    4 * (plane == 0 ? d * g.tokens_per_block + slot : slot * g.head_dim + d),
                4);
    return static_cast<double>(x);
  };
  for (int32_t h = 0; h < 2; ++h) {
    std::vector<double> weights;
    double sum = 0;
    for (int32_t p = 0; p <= 700; ++p) {
      double score = 0;
      for (int32_t d = 0; d < 8; ++d) score += q[static_cast<size_t>(h * 8 + d)] * value(0, p, d);
      weights.push_back(std::exp(score / std::sqrt(8.0)));
      sum += weights.back();
    }
    for (int32_t d = 0; d < 8; ++d) {
      double expected = 0;
      for (int32_t p = 0; p <= 700; ++p) {
        expected += weights[static_cast<size_t>(p)] * value(1, p, d) / sum;
      }
      EXPECT_NEAR(out.f32[static_cast<size_t>(h * 8 + d)], expected, 1e-5);
    }
  }
}

// Against the same state in f32. With keys wrong by at most e, scores are by at most s = scale *
// |q|_1 * e, so each weight by a factor of at most exp(2 s); and the output is a mean of values
// wrong by e.
TEST(AttentionReference, OfAStoredTypeIsWithinItsRounding) {
  const auto run = [](DType dtype) {
    SplitMix64 rng(15);
    const Geometry g{.num_heads = 6, .num_kv_heads = 2, .dtype = dtype};
    World world(rng, g, {{600, 3}});
    auto q = world.q_, k = world.k_;
    ref::RopeStore(world.rope(&q, &k));
    std::vector<float> scratch;
    TestActivation out(3, g.cols(), true, false);
    ref::Attention(world.attention(q, out.view, &scratch, 1));
    return std::pair{out.f32, q};
  };
  const auto [expected, q] = run(DType::kF32);
  // Of keys and values in `world`; rotation makes at most sqrt(2) of them.
  constexpr float kLargest = 3 * 1.42f;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const auto found = run(dtype).first;
    const float error = RoundingOf(dtype) * kLargest;
    double squares = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      float sum_q = 0;  // of the value's head
      for (size_t d = i / 64 * 64; d < i / 64 * 64 + 64; ++d) sum_q += std::fabs(q[d]);
      const float weights = std::exp(2 * sum_q / 8 * error) - 1;
      EXPECT_NEAR(found[i], expected[i], error + weights * kLargest + 1e-5f) << NameOf(dtype);
      squares += std::pow(found[i] - expected[i], 2.0);
    }
    // The bound is of the worst case; errors of both signs make far less, but something.
    const double typical = std::sqrt(squares / static_cast<double>(found.size()));
    EXPECT_LT(typical, 0.5 * error) << NameOf(dtype);
    EXPECT_GT(typical, 1e-3 * error) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace tandem
