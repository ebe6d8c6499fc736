// What: RopeStore: biases, norms and rotation of q and k, and the write of k and v into their
//   pages.
// Not here: reading pages (attention-inl.h).
// Threads: a task is a run of tokens; it writes their q and k and their slots of the pages.
// Invariants: as ref/ops_ref.h.
#pragma once

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"
#include "tensor/half.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// Tokens of one task: a tile's neighbouring tokens share cache lines, so one thread writes them.
inline constexpr int32_t kRopeTokens = 8;
inline constexpr int32_t kRopePairsMax = 512;

// sin and cos of one position for all pairs of a head.
struct Rotation {
  alignas(64) float sin[kRopePairsMax];
  alignas(64) float cos[kRopePairsMax];
};

inline void FillRotation(const RopeStoreArgs& args, int32_t position, Rotation* out) {
  const int32_t pairs = args.rope_dims / 2;
  for (int32_t i = 0; i < pairs; i += kLanes) {
    const int n = pairs - i < kLanes ? pairs - i : kLanes;
    const Vf frequency =
        n == kLanes ? Load(args.frequencies + i) : LoadFirst(args.frequencies + i, n);
    const SinCos value = SinCosOfProduct(static_cast<float>(position), frequency);
    Store(out->sin + i, value.sin);
    Store(out->cos + i, value.cos);
  }
}

// (a, b) -> (a cos - b sin, a sin + b cos): the second product is rounded, the first is not.
inline void RotateHead(const Rotation& rotation, int32_t rope_dims, bool interleaved, float* x) {
  const int32_t pairs = rope_dims / 2;
  const int32_t step = interleaved ? 2 : 1;
  const int32_t apart = interleaved ? 1 : pairs;
  if (!interleaved && pairs % kLanes == 0) {
    for (int32_t i = 0; i < pairs; i += kLanes) {
      const Vf sin = Load(rotation.sin + i), cos = Load(rotation.cos + i);
      const Vf a = Load(x + i), b = Load(x + i + pairs);
      Store(x + i, Fma(a, cos, Sub(Zero(), Mul(b, sin))));
      Store(x + i + pairs, Fma(a, sin, Mul(b, cos)));
    }
    return;
  }
  for (int32_t i = 0; i < pairs; ++i) {
    float& first = x[i * step];
    float& second = x[i * step + apart];
    const float a = first, b = second;
    first = std::fma(a, rotation.cos[i], 0.0f - b * rotation.sin[i]);
    second = std::fma(a, rotation.sin[i], b * rotation.cos[i]);
  }
}

inline void AddBias(const float* bias, int32_t head_dim, float* x) {
  int32_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) Store(x + d, Add(Load(x + d), Load(bias + d)));
  for (; d < head_dim; ++d) x[d] += bias[d];
}

// As RmsNormRow, in place.
inline void NormHead(const float* weight, float epsilon, int32_t head_dim, float* x) {
  const float mean = SumOfSquares(x, head_dim) / static_cast<float>(head_dim);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  int32_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    Store(x + d, Mul(Mul(Load(x + d), Set1(scale)), Load(weight + d)));
  }
  for (; d < head_dim; ++d) x[d] = x[d] * scale * weight[d];
}

// One head of q or k of one token.
struct HeadSteps {
  const float* bias;  // of all heads, or null
  const float* norm;  // or null
};
inline void FinishHead(const RopeStoreArgs& args, const Rotation& rotation, const HeadSteps& steps,
                       int32_t head, float* x) {
  if (steps.bias != nullptr) AddBias(steps.bias + head * args.head_dim, args.head_dim, x);
  if (steps.norm != nullptr) NormHead(steps.norm, args.norm_epsilon, args.head_dim, x);
  RotateHead(rotation, args.rope_dims, args.interleaved, x);
}

inline void StoreValue(float value, float* to) { *to = value; }
inline void StoreValue(float value, uint16_t* to) { *to = FloatToHalf(value); }
inline void StoreValue(float value, BFloat16* to) { to->bits = FloatToBFloat16(value); }

// One head's values of one token into its tile.
template <typename T>
inline void StoreToTile(const StatePlane& plane, const float* x, int32_t tokens_per_block,
                        int32_t slot, std::byte* tile) {
  T* to = reinterpret_cast<T*>(tile);
  int64_t step = 1;
  if (plane.tile == TileLayout::kTokenMajor) {
    to += int64_t{slot} * plane.dims;
  } else {
    to += slot;
    step = tokens_per_block;
  }
  int32_t d = 0;
  for (; d + kLanes <= plane.dims; d += kLanes) {
    alignas(64) T converted[kLanes];
    T* const at = step == 1 ? to + d : converted;
    Store(at, Load(x + d));
    if (step == 1) continue;
    for (int i = 0; i < kLanes; ++i) to[(d + i) * step] = converted[i];
  }
  for (; d < plane.dims; ++d) StoreValue(x[d], to + d * step);
}

// A run of n <= kScaleDims values to codes [kScaleDims] and their scale.
inline uint16_t QuantizeRun(const float* x, int n, int8_t* codes) {
  const Vf a = n >= kLanes ? Load(x) : LoadFirst(x, n);
  Vf b = Zero();
  if (n > kLanes) b = n == kScaleDims ? Load(x + kLanes) : LoadFirst(x + kLanes, n - kLanes);
  const float wanted = ReduceMax(Max(Abs(b), Max(Abs(a), Zero()))) / numerics::kMaxCode;
  const uint16_t half =
      FloatToHalf(wanted < numerics::kStateScaleMax ? wanted : numerics::kStateScaleMax);
  const float scale = HalfToFloat(half);
  const Vf divisor = Set1(scale == 0.0f ? 1.0f : scale);
  const Vf limit = Set1(numerics::kMaxCode), lowest = Set1(-numerics::kMaxCode);
  StoreBytes(codes, ToInt(Min(Max(Div(a, divisor), lowest), limit)));
  StoreBytes(codes + kLanes, ToInt(Min(Max(Div(b, divisor), lowest), limit)));
  return half;
}

inline void StoreQuantized(const StateGroup& group, size_t plane, const float* x, int32_t slot,
                           std::byte* tile) {
  const bool token_major = group.planes[plane].tile == TileLayout::kTokenMajor;
  const int32_t dims = group.planes[plane].dims;
  const int64_t step = token_major ? 1 : group.tokens_per_block;  // from a code to the next
  auto* codes = reinterpret_cast<int8_t*>(tile) + (token_major ? int64_t{slot} * dims : slot);
  auto* scales = reinterpret_cast<uint16_t*>(tile + group.ScalesOffset(plane)) + slot;
  for (int32_t run = 0; run < ScaleRuns(dims); ++run) {
    const int32_t begin = run * kScaleDims;
    const int32_t n = dims - begin < kScaleDims ? dims - begin : kScaleDims;
    alignas(64) int8_t all[kScaleDims];
    scales[int64_t{run} * group.tokens_per_block] = QuantizeRun(x + begin, n, all);
    for (int32_t i = 0; i < n; ++i) codes[(begin + i) * step] = all[i];
  }
}

inline void StoreToTile(const StateGroup& group, size_t plane, const float* x, int32_t slot,
                        std::byte* tile) {
  const StatePlane& as = group.planes[plane];
  switch (as.dtype) {
    case DType::kF32: return StoreToTile<float>(as, x, group.tokens_per_block, slot, tile);
    case DType::kF16: return StoreToTile<uint16_t>(as, x, group.tokens_per_block, slot, tile);
    case DType::kBF16: return StoreToTile<BFloat16>(as, x, group.tokens_per_block, slot, tile);
    default: return StoreQuantized(group, plane, x, slot, tile);
  }
}

inline void RopeStoreToken(const RopeStoreArgs& args, int32_t token) {
  const BatchView& batch = args.batch;
  const StateGroup& group = *args.state.group;
  const int32_t position = batch.positions[token];
  Rotation rotation;
  FillRotation(args, position, &rotation);
  for (int32_t h = 0; h < args.num_heads; ++h) {
    FinishHead(args, rotation, {args.q_bias, args.q_norm}, h,
               args.q + token * args.q_stride + int64_t{h} * args.head_dim);
  }
  const BatchRow& row = batch.rows[batch.row_of_token[token]];
  const int32_t per_block = group.tokens_per_block;
  const BlockId block(batch.block_tables[row.table_begin + position / per_block]);
  for (int32_t h = 0; h < args.num_kv_heads; ++h) {
    float* k = args.k + token * args.k_stride + int64_t{h} * args.head_dim;
    float* v = args.v + token * args.v_stride + int64_t{h} * args.head_dim;
    FinishHead(args, rotation, {args.k_bias, args.k_norm}, h, k);
    if (args.v_bias != nullptr) AddBias(args.v_bias + h * args.head_dim, args.head_dim, v);
    std::byte* const head = args.state.Tile(block, args.layer, h, 0);
    StoreToTile(group, 0, k, position % per_block, head);
    StoreToTile(group, 1, v, position % per_block, head + group.PlaneBytes(0));
  }
}

inline void RopeStore(CpuTaskContext& context, const RopeStoreArgs& args) {
  const int32_t tokens = args.batch.num_tokens;
  for (int64_t t; (t = context.NextTask((tokens + kRopeTokens - 1) / kRopeTokens)) >= 0;) {
    const auto begin = static_cast<int32_t>(t) * kRopeTokens;
    const int32_t end = tokens - begin < kRopeTokens ? tokens : begin + kRopeTokens;
    for (int32_t token = begin; token < end; ++token) RopeStoreToken(args, token);
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
