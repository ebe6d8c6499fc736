// What: the ops that pass over their data once: Embed, GatherRows, RmsNorm, SiluMul, Add,
//   CopyBlocks.
// Not here: matrix products, attention.
// Threads: as CpuStream kernels: each task writes its own part of the output.
// Invariants: as ref/ops_ref.h.
#pragma once

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa_region-inl.h"
#include "kernels/cpu/math-inl.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

// Columns of one task where a single row is split: about a microsecond of work.
inline constexpr int32_t kColumnsPerTask = 512;

inline void Embed(CpuTaskContext& context, const EmbedArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_tokens)) >= 0;) {
    UnpackRow(args.table, args.token_table[args.token_index[t]], args.out + t * args.table.cols);
  }
}

inline void GatherRows(CpuTaskContext& context, const GatherRowsArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_indices)) >= 0;) {
    std::memcpy(args.out + t * args.cols, args.rows + int64_t{args.indices[t]} * args.cols,
                static_cast<size_t>(args.cols) * sizeof(float));
  }
}

inline float SumOfSquares(const float* x, int32_t cols) {
  Vf sum = Zero();
  int32_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) {
    const Vf v = Load(x + c);
    sum = Fma(v, v, sum);
  }
  if (c < cols) {
    const Vf v = LoadFirst(x + c, cols - c);
    sum = Fma(v, v, sum);
  }
  return ReduceAdd(sum);
}

inline void RmsNormRow(const RmsNormArgs& args, int64_t row) {
  const int32_t cols = args.out.cols;
  const float* x = args.x + row * cols;
  const float mean = SumOfSquares(x, cols) / static_cast<float>(cols);
  const Vf scale = Set1(1.0f / std::sqrt(mean + args.epsilon));
  int32_t c = 0;
  for (; c + kActivationBlock <= cols; c += kActivationBlock) {
    const Vf a = Mul(Mul(Load(x + c), scale), Load(args.weight + c));
    const Vf b = Mul(Mul(Load(x + c + kLanes), scale), Load(args.weight + c + kLanes));
    EmitBlock(args.out, row, c, a, b);
  }
  for (; c < cols; c += kLanes) {  // no 8-bit form: cols is not a multiple of its block
    const int n = cols - c < kLanes ? cols - c : kLanes;
    const Vf v = Mul(Mul(LoadFirst(x + c, n), scale), LoadFirst(args.weight + c, n));
    StoreFirst(args.out.f32 + row * cols + c, v, n);
  }
}

inline void RmsNorm(CpuTaskContext& context, const RmsNormArgs& args) {
  for (int64_t t; (t = context.NextTask(args.rows)) >= 0;) RmsNormRow(args, t);
}

inline void SiluMulColumns(const SiluMulArgs& args, int64_t row, int32_t begin, int32_t end) {
  const float* gate = args.gate + row * args.out.cols;
  const float* up = args.up + row * args.out.cols;
  int32_t c = begin;
  for (; c + kActivationBlock <= end; c += kActivationBlock) {
    const Vf a = Mul(Silu(Load(gate + c)), Load(up + c));
    const Vf b = Mul(Silu(Load(gate + c + kLanes)), Load(up + c + kLanes));
    EmitBlock(args.out, row, c, a, b);
  }
  for (; c < end; c += kLanes) {
    const int n = end - c < kLanes ? end - c : kLanes;
    const Vf v = Mul(Silu(LoadFirst(gate + c, n)), LoadFirst(up + c, n));
    StoreFirst(args.out.f32 + row * args.out.cols + c, v, n);
  }
}

inline void SiluMul(CpuTaskContext& context, const SiluMulArgs& args) {
  const int32_t cols = args.out.cols;
  const int32_t pieces = (cols + kColumnsPerTask - 1) / kColumnsPerTask;
  for (int64_t t; (t = context.NextTask(int64_t{args.rows} * pieces)) >= 0;) {
    const auto begin = static_cast<int32_t>(t % pieces) * kColumnsPerTask;
    const int32_t end = cols - begin < kColumnsPerTask ? cols : begin + kColumnsPerTask;
    SiluMulColumns(args, t / pieces, begin, end);
  }
}

inline void Add(CpuTaskContext& context, const AddArgs& args) {
  constexpr int64_t kPerTask = 4096;
  for (int64_t t; (t = context.NextTask((args.count + kPerTask - 1) / kPerTask)) >= 0;) {
    const int64_t end = args.count < (t + 1) * kPerTask ? args.count : (t + 1) * kPerTask;
    for (int64_t i = t * kPerTask; i < end; ++i) args.out[i] += args.x[i];
  }
}

inline void CopyBlocks(CpuTaskContext& context, const CopyBlocksArgs& args) {
  const int64_t bytes = args.state.group->BlockBytes();
  for (int64_t t; (t = context.NextTask(args.num_copies)) >= 0;) {
    std::memcpy(args.state.base + args.to[t] * bytes, args.state.base + args.from[t] * bytes,
                static_cast<size_t>(bytes));
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
