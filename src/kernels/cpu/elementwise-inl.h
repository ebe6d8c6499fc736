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
  const int32_t run = numerics::RunColumns(cols, kActivationBlock);
  RunBuffer buffer;
  for (int32_t begin = 0; begin < cols; begin += run) {
    const int32_t count = cols - begin < run ? cols - begin : run;
    float* values = buffer.At(args.out, row, begin);
    for (int32_t i = 0; i < count; i += kLanes) {
      const int32_t c = begin + i;
      if (count - i >= kLanes) {
        Store(values + i, Mul(Mul(Load(x + c), scale), Load(args.weight + c)));
      } else {
        const int n = count - i;
        StoreFirst(values + i, Mul(Mul(LoadFirst(x + c, n), scale), LoadFirst(args.weight + c, n)),
                   n);
      }
    }
    EmitRun(args.out, row, begin, count, values);
  }
}

inline void RmsNorm(CpuTaskContext& context, const RmsNormArgs& args) {
  for (int64_t t; (t = context.NextTask(args.rows)) >= 0;) RmsNormRow(args, t);
}

inline void SiluMulRun(const SiluMulArgs& args, int64_t row, int32_t begin, int32_t count) {
  const float* gate = args.gate + row * args.out.cols + begin;
  const float* up = args.up + row * args.out.cols + begin;
  RunBuffer buffer;
  float* values = buffer.At(args.out, row, begin);
  for (int32_t i = 0; i < count; i += kLanes) {
    if (count - i >= kLanes) {
      Store(values + i, Mul(Silu(Load(gate + i)), Load(up + i)));
    } else {
      const int n = count - i;
      StoreFirst(values + i, Mul(Silu(LoadFirst(gate + i, n)), LoadFirst(up + i, n)), n);
    }
  }
  EmitRun(args.out, row, begin, count, values);
}

// A run is a task: about a microsecond of work, so that a single row is shared.
inline void SiluMul(CpuTaskContext& context, const SiluMulArgs& args) {
  const int32_t cols = args.out.cols;
  const int32_t run = numerics::RunColumns(cols, kActivationBlock);
  const int32_t runs = (cols + run - 1) / run;
  for (int64_t t; (t = context.NextTask(int64_t{args.rows} * runs)) >= 0;) {
    const auto begin = static_cast<int32_t>(t % runs) * run;
    SiluMulRun(args, t / runs, begin, cols - begin < run ? cols - begin : run);
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
