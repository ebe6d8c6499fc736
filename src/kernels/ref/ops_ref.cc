#include "kernels/ref/ops_ref.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/ref/math_ref.h"
#include "tensor/half.h"

namespace tandem::ref {
namespace {

constexpr int kLanes = 16;

// Refines those of blocks [first, first + count) whose squared scale is above their mean.
void RefineRun(const QuantizedRows& q8, int64_t first, int32_t count, const float* values) {
  float energy = 0;
  for (int32_t b = 0; b < count; ++b) energy += q8.scales[first + b] * q8.scales[first + b];
  for (int32_t b = 0; b < count; ++b) {
    const float scale = q8.scales[first + b];
    const bool refined = scale * scale * static_cast<float>(count) > energy;
    q8.fine.refined[first + b] = refined ? 1 : 0;
    if (!refined) continue;
    RefineBlock(values + b * kActivationBlock, scale,
                q8.fine.codes + (first + b) * kActivationBlock, q8.fine.sums + first + b);
  }
}

// Row `row` of `out` gets `values` in each form that it has.
void EmitRow(const Activation& out, int64_t row, const float* values) {
  const int64_t at = row * out.cols;
  if (out.f32 != nullptr) std::copy_n(values, out.cols, out.f32 + at);
  if (!out.has_q8()) return;
  for (int32_t c = 0; c < out.cols; c += kActivationBlock) {
    const int64_t block = (at + c) / kActivationBlock;
    QuantizeBlock(values + c, out.q8.codes + at + c, out.q8.scales + block, out.q8.sums + block);
  }
  if (out.q8.fine.codes == nullptr) return;
  const int32_t run = numerics::RunColumns(out.cols, kActivationBlock);
  for (int32_t begin = 0; begin < out.cols; begin += run) {
    RefineRun(out.q8, (at + begin) / kActivationBlock,
              std::min(run, out.cols - begin) / kActivationBlock, values + begin);
  }
}

bool IsQuantized(DType dtype) { return InfoOf(dtype).block_elements > 1; }

float HalfAt(const std::byte* p, int64_t i) {
  uint16_t half = 0;
  std::memcpy(&half, p + i * 2, 2);
  return HalfToFloat(half);
}

// acc + the columns [begin, end) of one block, which share a scale.
float AddPart(const PackedBlock& block, int32_t part, const QuantizedRows& x, int64_t at,
              float acc) {
  const int32_t columns = kPackColumns / block.num_scales;
  const int32_t begin = part * columns;
  const int8_t* codes = x.codes + at * kActivationBlock;
  int32_t dot = 0, sum = 0;
  for (int32_t i = begin; i < begin + columns; ++i) {
    dot += block.values[i] * codes[i];
    sum += codes[i];
  }
  float unit = x.scales[at];
  if (x.fine.codes != nullptr && x.fine.refined[at] != 0) {
    const int8_t* fine = x.fine.codes + at * kActivationBlock;
    dot *= 1 << numerics::kFineBits;
    sum *= 1 << numerics::kFineBits;
    for (int32_t i = begin; i < begin + columns; ++i) {
      dot += block.values[i] * fine[i];
      sum += fine[i];
    }
    unit = unit / numerics::kFineUnits;
  }
  const ScaleAndMinimum& of = block.scales[part];
  acc = std::fma(static_cast<float>(dot), of.scale * unit, acc);
  if (block.has_minimum) acc = std::fma(of.minimum, unit * static_cast<float>(sum), acc);
  return acc;
}

float DotQuantized(const std::vector<PackedBlock>& blocks, const QuantizedRows& x, int64_t row) {
  const auto row_blocks = static_cast<int64_t>(blocks.size());
  float acc = 0;
  for (int64_t b = 0; b < row_blocks; ++b) {
    const PackedBlock& block = blocks[static_cast<size_t>(b)];
    for (int32_t part = 0; part < block.num_scales; ++part) {
      acc = AddPart(block, part, x, row * row_blocks + b, acc);
    }
  }
  return acc;
}

std::vector<PackedBlock> BlocksOf(const PackedMatrix& w, int32_t row) {
  std::vector<PackedBlock> blocks(static_cast<size_t>(w.cols / kPackColumns));
  for (size_t b = 0; b < blocks.size(); ++b) {
    ReadPackedBlock(w, row, static_cast<int32_t>(b), &blocks[b]);
  }
  return blocks;
}

// Where value d of the token at `slot` lies in its tile.
int64_t IndexInTile(const StateGroup& group, size_t plane, int32_t slot, int32_t d) {
  return group.planes[plane].tile == TileLayout::kDimMajor
             ? int64_t{d} * group.tokens_per_block + slot
             : int64_t{slot} * group.planes[plane].dims + d;
}

// Value d of the token at `slot`; of kQ8_0, its code.
float LoadStored(const StateGroup& group, size_t plane, const std::byte* tile, int32_t slot,
                 int32_t d) {
  const int64_t index = IndexInTile(group, plane, slot, d);
  switch (group.planes[plane].dtype) {
    case DType::kF32: {
      float value = 0;
      std::memcpy(&value, tile + index * 4, 4);
      return value;
    }
    case DType::kF16: return HalfAt(tile, index);
    case DType::kBF16: {
      uint16_t bits = 0;
      std::memcpy(&bits, tile + index * 2, 2);
      return BFloat16ToFloat(bits);
    }
    default:
      TANDEM_CHECK_EQ(group.planes[plane].dtype, DType::kQ8_0);
      return static_cast<float>(static_cast<int8_t>(tile[index]));
  }
}

std::byte* ScaleAt(const StateGroup& group, size_t plane, std::byte* tile, int32_t slot,
                   int32_t run) {
  return tile + group.ScalesOffset(plane) + 2 * (int64_t{run} * group.tokens_per_block + slot);
}

// The scale that value d counts with; 1 for types without.
float ScaleOf(const StateGroup& group, size_t plane, std::byte* tile, int32_t slot, int32_t d) {
  if (group.planes[plane].dtype != DType::kQ8_0) return 1.0f;
  return HalfAt(ScaleAt(group, plane, tile, slot, d / kScaleDims), 0);
}

void StoreRun(const StateGroup& group, size_t plane, int32_t slot, int32_t run, const float* x,
              std::byte* tile) {
  const int32_t begin = run * kScaleDims;
  const int32_t count = std::min(kScaleDims, group.planes[plane].dims - begin);
  int8_t codes[kScaleDims];
  const uint16_t scale = QuantizeRun(x + begin, count, codes);
  std::memcpy(ScaleAt(group, plane, tile, slot, run), &scale, 2);
  for (int32_t i = 0; i < count; ++i) {
    tile[IndexInTile(group, plane, slot, begin + i)] = static_cast<std::byte>(codes[i]);
  }
}

std::byte* TileOf(const BatchView& batch, const PagedStateView& state, int32_t token,
                  int32_t position, int32_t layer, int32_t head, size_t plane) {
  const BatchRow& row = batch.rows[batch.row_of_token[token]];
  const int32_t entry = row.table_begin + position / state.group->tokens_per_block;
  return state.Tile(BlockId(batch.block_tables[entry]), layer, head, plane);
}

// 1 / sqrt(mean(x^2) + epsilon), the squares summed in sixteen lanes.
float RmsScale(const float* x, int32_t cols, float epsilon) {
  float lanes[kLanes] = {};
  for (int32_t c = 0; c < cols; ++c) lanes[c % kLanes] = std::fma(x[c], x[c], lanes[c % kLanes]);
  const float mean = SumLanes(lanes) / static_cast<float>(cols);
  return 1.0f / std::sqrt(mean + epsilon);
}

void AddBias(const float* bias, int32_t head, int32_t head_dim, float* x) {
  if (bias == nullptr) return;
  for (int32_t d = 0; d < head_dim; ++d) x[d] += bias[head * head_dim + d];
}

void NormHead(const float* weight, float epsilon, int32_t head_dim, float* x) {
  if (weight == nullptr) return;
  const float scale = RmsScale(x, head_dim, epsilon);
  for (int32_t d = 0; d < head_dim; ++d) x[d] = x[d] * scale * weight[d];
}

void Rotate(const RopeStoreArgs& args, float position, float* x) {
  const int32_t pairs = args.rope_dims / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    float sin = 0, cos = 0;
    SinCos(position, args.frequencies[i], &sin, &cos);
    float& first = x[args.interleaved ? 2 * i : i];
    float& second = x[args.interleaved ? 2 * i + 1 : i + pairs];
    const float a = first, b = second;
    first = std::fma(a, cos, 0.0f - b * sin);
    second = std::fma(a, sin, b * cos);
  }
}

// What one query head knows after some splits.
struct Partial {
  float max = 0;
  float sum = 0;
  std::vector<float> out;
};

// Of the query `q` with the key at `slot`.
float ScoreOf(const AttentionArgs& args, const float* q, std::byte* tile, int32_t slot) {
  const StateGroup& group = *args.state.group;
  float score = 0, run_score = 0;
  for (int32_t d = 0; d < args.head_dim; ++d) {
    run_score = std::fma(q[d] * args.scale, LoadStored(group, 0, tile, slot, d), run_score);
    if (d + 1 < args.head_dim && (d + 1) % kScaleDims != 0) continue;
    if (group.planes[0].dtype != DType::kQ8_0) continue;  // one run of all dimensions
    score = std::fma(run_score, ScaleOf(group, 0, tile, slot, d), score);
    run_score = 0;
  }
  return group.planes[0].dtype == DType::kQ8_0 ? score : run_score;
}

Partial ReduceSplit(const AttentionArgs& args, int32_t token, int32_t head, int32_t split) {
  const StateGroup& group = *args.state.group;
  const int32_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const float* q = args.q + token * args.q_stride + int64_t{head} * args.head_dim;
  const int32_t begin = split * kAttentionSplit;
  const int32_t end = std::min(begin + kAttentionSplit, args.batch.positions[token] + 1);
  std::vector<float> weights;
  Partial p;
  p.max = -std::numeric_limits<float>::infinity();
  for (int32_t position = begin; position < end; ++position) {
    std::byte* tile = TileOf(args.batch, args.state, token, position, args.layer, kv_head, 0);
    const float score = ScoreOf(args, q, tile, position % group.tokens_per_block);
    p.max = score > p.max ? score : p.max;
    weights.push_back(score);
  }
  float lanes[kLanes] = {};
  p.out.assign(static_cast<size_t>(args.head_dim), 0.0f);
  for (int32_t position = begin; position < end; ++position) {
    const float weight = Exp(weights[static_cast<size_t>(position - begin)] - p.max);
    lanes[position % kLanes] += weight;
    std::byte* tile = TileOf(args.batch, args.state, token, position, args.layer, kv_head, 1);
    const int32_t slot = position % group.tokens_per_block;
    for (int32_t d = 0; d < args.head_dim; ++d) {
      float& out = p.out[static_cast<size_t>(d)];
      out = std::fma(weight * ScaleOf(group, 1, tile, slot, d), LoadStored(group, 1, tile, slot, d),
                     out);
    }
  }
  p.sum = SumLanes(lanes);
  return p;
}

void Merge(const Partial& next, Partial* so_far) {
  const float top = next.max > so_far->max ? next.max : so_far->max;
  const float keep = Exp(so_far->max - top);
  const float join = Exp(next.max - top);
  so_far->max = top;
  so_far->sum = std::fma(next.sum, join, so_far->sum * keep);
  for (size_t d = 0; d < next.out.size(); ++d) {
    so_far->out[d] = std::fma(next.out[d], join, so_far->out[d] * keep);
  }
}

}  // namespace

void Embed(const EmbedArgs& args) {
  for (int32_t i = 0; i < args.num_tokens; ++i) {
    UnpackRow(args.table, args.token_table[args.token_index[i]],
              args.out + int64_t{i} * args.table.cols);
  }
}

void GatherRows(const GatherRowsArgs& args) {
  for (int32_t i = 0; i < args.num_indices; ++i) {
    std::copy_n(args.rows + int64_t{args.indices[i]} * args.cols, args.cols,
                args.out + int64_t{i} * args.cols);
  }
}

void RmsNorm(const RmsNormArgs& args) {
  const int32_t cols = args.out.cols;
  std::vector<float> row(static_cast<size_t>(cols));
  for (int32_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + int64_t{r} * cols;
    const float scale = RmsScale(x, cols, args.epsilon);
    for (int32_t c = 0; c < cols; ++c) row[static_cast<size_t>(c)] = x[c] * scale * args.weight[c];
    EmitRow(args.out, r, row.data());
  }
}

void MatMul(const MatMulArgs& args) {
  std::vector<float> weights(static_cast<size_t>(args.x.cols));
  for (int32_t p = 0; p < args.num_parts; ++p) {
    const MatMulPart& part = args.parts[p];
    const bool fast = args.x.has_q8() && IsQuantized(part.weight.dtype);
    for (int32_t n = 0; n < part.weight.rows; ++n) {
      std::vector<PackedBlock> blocks;
      if (fast) {
        blocks = BlocksOf(part.weight, n);
      } else {
        UnpackRow(part.weight, n, weights.data());
      }
      for (int64_t r = 0; r < args.rows; ++r) {
        float sum = 0;
        if (fast) {
          sum = DotQuantized(blocks, args.x.q8, r);
        } else {
          const float* x = args.x.f32 + r * args.x.cols;
          for (int32_t k = 0; k < args.x.cols; ++k) {
            sum = std::fma(x[k], weights[static_cast<size_t>(k)], sum);
          }
        }
        float& out = part.out[r * part.out_stride + n];
        out = part.accumulate ? out + sum : sum;
      }
    }
  }
}

void RopeStore(const RopeStoreArgs& args) {
  const StateGroup& group = *args.state.group;
  for (int32_t token = 0; token < args.batch.num_tokens; ++token) {
    const int32_t position = args.batch.positions[token];
    for (int32_t h = 0; h < args.num_heads; ++h) {
      float* q = args.q + token * args.q_stride + int64_t{h} * args.head_dim;
      AddBias(args.q_bias, h, args.head_dim, q);
      NormHead(args.q_norm, args.norm_epsilon, args.head_dim, q);
      Rotate(args, static_cast<float>(position), q);
    }
    for (int32_t h = 0; h < args.num_kv_heads; ++h) {
      float* k = args.k + token * args.k_stride + int64_t{h} * args.head_dim;
      float* v = args.v + token * args.v_stride + int64_t{h} * args.head_dim;
      AddBias(args.k_bias, h, args.head_dim, k);
      AddBias(args.v_bias, h, args.head_dim, v);
      NormHead(args.k_norm, args.norm_epsilon, args.head_dim, k);
      Rotate(args, static_cast<float>(position), k);
      const float* const values[2] = {k, v};
      for (size_t plane = 0; plane < 2; ++plane) {
        StoreState(group, plane, position % group.tokens_per_block, values[plane],
                   TileOf(args.batch, args.state, token, position, args.layer, h, plane));
      }
    }
  }
}

void StoreState(const StateGroup& group, size_t plane, int32_t slot, const float* x,
                std::byte* tile) {
  const StatePlane& p = group.planes[plane];
  if (p.dtype == DType::kQ8_0) {
    for (int32_t run = 0; run < ScaleRuns(p.dims); ++run)
      StoreRun(group, plane, slot, run, x, tile);
    return;
  }
  for (int32_t d = 0; d < p.dims; ++d) {
    const int64_t index = IndexInTile(group, plane, slot, d);
    if (p.dtype == DType::kF32) {
      std::memcpy(tile + index * 4, x + d, 4);
    } else {
      TANDEM_CHECK(p.dtype == DType::kF16 || p.dtype == DType::kBF16);
      const uint16_t bits = p.dtype == DType::kF16 ? FloatToHalf(x[d]) : FloatToBFloat16(x[d]);
      std::memcpy(tile + index * 2, &bits, 2);
    }
  }
}

void Attention(const AttentionArgs& args) {
  std::vector<float> row(static_cast<size_t>(args.out.cols));
  for (int32_t token = 0; token < args.batch.num_tokens; ++token) {
    for (int32_t head = 0; head < args.num_heads; ++head) {
      Partial all = ReduceSplit(args, token, head, 0);
      for (int32_t s = 1; s <= args.batch.positions[token] / kAttentionSplit; ++s) {
        Merge(ReduceSplit(args, token, head, s), &all);
      }
      const float scale = 1.0f / all.sum;
      for (int32_t d = 0; d < args.head_dim; ++d) {
        row[static_cast<size_t>(head * args.head_dim + d)] =
            all.out[static_cast<size_t>(d)] * scale;
      }
    }
    EmitRow(args.out, token, row.data());
  }
}

void SiluMul(const SiluMulArgs& args) {
  std::vector<float> row(static_cast<size_t>(args.out.cols));
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int32_t c = 0; c < args.out.cols; ++c) {
      const int64_t at = r * args.out.cols + c;
      row[static_cast<size_t>(c)] = Silu(args.gate[at]) * args.up[at];
    }
    EmitRow(args.out, r, row.data());
  }
}

void Add(const AddArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) args.out[i] += args.x[i];
}

void CopyBlocks(const CopyBlocksArgs& args) {
  const int64_t bytes = args.state.group->BlockBytes();
  for (int32_t i = 0; i < args.num_copies; ++i) {
    std::memcpy(args.state.base + args.to[i] * bytes, args.state.base + args.from[i] * bytes,
                static_cast<size_t>(bytes));
  }
}

}  // namespace tandem::ref
