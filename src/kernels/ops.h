// What: the operations of a forward pass. Each enqueues work on a stream and returns; no op waits
//   for the device.
// Not here: layer names, files, batching decisions. Ops never fail: callers have checked shapes
//   when the model loaded.
// Threads: as the stream.
// Invariants: every output row depends on its own input row (and, for attention, its stored state)
//   and the numerics alone: never on the number of rows, threads, neighbours or the instruction set
//   (docs/decisions/001). ref/ops_ref.h defines the values; the fast bodies agree with it bit for
//   bit unless a comment here gives a tolerance.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/activation.h"
#include "kernels/packed_matrix.h"
#include "tensor/state_group.h"

namespace tandem {

// Rows of a batch on the device: which tokens belong to which sequence, where they stand, and which
// blocks hold their state. Rows are in the order of their tokens. All pointers are device memory
// that stays unchanged until the step has finished.
struct BatchRow {
  int32_t first_token = 0;  // index into the step's tokens
  int32_t num_tokens = 0;
  int32_t position = 0;     // of the first token
  int32_t table_begin = 0;  // into block_tables: entry i holds positions [i * p, (i + 1) * p)
};
struct BatchView {
  int32_t num_tokens = 0;
  int32_t num_rows = 0;
  const int32_t* positions = nullptr;     // [num_tokens]
  const int32_t* row_of_token = nullptr;  // [num_tokens]
  const BatchRow* rows = nullptr;         // [num_rows]
  const int32_t* block_tables = nullptr;  // physical blocks of the state group, row after row
};

// out[i] = row t of table, dequantised, with t = token_table[token_index[i]]: so a token may be one
// that an earlier step of the stream has sampled into the table. [num_tokens, table.cols]
struct EmbedArgs {
  PackedMatrix table;
  const int32_t* token_table = nullptr;
  const int32_t* token_index = nullptr;  // [num_tokens]
  int32_t num_tokens = 0;
  float* out = nullptr;
};
void Embed(Stream& stream, const EmbedArgs& args);

// out[i] = rows[indices[i]]. [num_indices, cols]
struct GatherRowsArgs {
  const float* rows = nullptr;
  const int32_t* indices = nullptr;
  int32_t num_indices = 0;
  int32_t cols = 0;
  float* out = nullptr;
};
void GatherRows(Stream& stream, const GatherRowsArgs& args);

// out = x / sqrt(mean(x^2) + epsilon) * weight, per row; written in each form that `out` has.
struct RmsNormArgs {
  const float* x = nullptr;  // [rows, out.cols]
  const float* weight = nullptr;
  float epsilon = 0;
  int32_t rows = 0;
  Activation out;
};
void RmsNorm(Stream& stream, const RmsNormArgs& args);

// out[i, n] (+)= sum over k of x[i, k] * w[n, k], for up to three matrices that read the same rows.
// Quantised weights with x.has_q8() ("fast"), for blocks b = 0, 1, 2 ... of 32 columns:
//   acc = fma(float(dot_b), scale_w[n, b] * scale_x[i, b], acc), dot_b the exact integer product of
//   the codes (Q4_0: q - 8); then, where the type has a minimum,
//   acc = fma(minimum_w[n, b], scale_x[i, b] * float(sum_x[i, b]), acc).
// Otherwise x.f32 ("exact", and unquantised weights), for k = 0, 1, 2 ...:
//   acc = fma(x[i, k], w[n, k], acc), w as the scalar codec decodes it.
struct MatMulPart {
  PackedMatrix weight;
  float* out = nullptr;     // [rows, out_stride]
  int64_t out_stride = 0;   // in floats
  bool accumulate = false;  // out = out + sum, one addition (residual connections)
};
struct MatMulArgs {
  Activation x;
  int32_t rows = 0;
  int32_t num_parts = 0;
  MatMulPart parts[3];
};
void MatMul(Stream& stream, const MatMulArgs& args);

// What lies between the projections and attention, in place: adds the biases; normalises each head
// of q and k as RmsNorm; rotates q and k by their positions; then writes k and v to the pages of
// `layer` in their stored format (planes 0 and 1, of one IsStateType). Null: without that bias or
// norm. Positions below 2^24, rope_dims even and at most kMaxHeadDim.
// kF16 and kBF16 round to nearest even. A run of kQ8_0 depends on its own values alone: scale =
// f16(max|x| / 127), at most kStateScaleMax; code = x / scale rounded to nearest even, clamped to
// +-127 (0 when the scale is 0). A NaN does not count for the scale and becomes the lowest code.
struct RopeStoreArgs {
  BatchView batch;
  PagedStateView state;
  int32_t layer = 0;  // within the group
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rope_dims = 0;     // the first rope_dims values of a head are rotated
  bool interleaved = false;  // pairs (2i, 2i+1); otherwise (i, i + rope_dims / 2)
  const float* frequencies =
      nullptr;         // [rope_dims / 2] radians per position, host-computed in double
  float* q = nullptr;  // [num_tokens, q_stride]
  float* k = nullptr;  // [num_tokens, k_stride]
  float* v = nullptr;  // [num_tokens, v_stride]
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  const float* q_bias = nullptr;  // [num_heads * head_dim]
  const float* k_bias = nullptr;  // [num_kv_heads * head_dim]
  const float* v_bias = nullptr;
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
};
void RopeStore(Stream& stream, const RopeStoreArgs& args);

// Causal attention of each token over its sequence's stored state, positions 0 .. own; q stays f32.
// The positions of a sequence are reduced in splits of kAttentionSplit at fixed absolute borders:
// in a split, scores (dimension by dimension), their maximum, exp(score - maximum), its sum, and
// the weighted sum of v (position by position), all in f32; splits are then merged in order. So the
// numbers depend neither on how the work is divided nor on the block size. Of kQ8_0 keys, q times
// the codes are summed run by run of kScaleDims dimensions, and each sum joins those before as
// fma(sum, scale, score); a code of kQ8_0 values counts with weight * scale, rounded once. Requires
// plane 0 = k in kDimMajor and plane 1 = v in kTokenMajor tiles, of one IsStateType; head_dim <=
// kMaxHeadDim. Query heads h * num_heads / num_kv_heads and the following share KV head h. Fastest
// when tokens_per_block is a multiple of 16 and head_dim of 64.
inline constexpr int32_t kAttentionSplit = 512;
inline constexpr int32_t kMaxHeadDim = 256;
struct AttentionArgs {
  BatchView batch;
  PagedStateView state;
  int32_t layer = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 0;
  const float* q = nullptr;  // [num_tokens, q_stride]
  int64_t q_stride = 0;
  Activation out;            // [num_tokens, num_heads * head_dim], each form that it has
  float* scratch = nullptr;  // AttentionScratchFloats(...)
};
// Floats of scratch that any batch of at most `max_tokens` tokens over at most `max_context`
// positions needs.
int64_t AttentionScratchFloats(int32_t max_tokens, int32_t max_context, int32_t num_heads,
                               int32_t head_dim, int32_t num_threads);
void Attention(Stream& stream, const AttentionArgs& args);

// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)); written in each form that `out` has.
struct SiluMulArgs {
  const float* gate = nullptr;  // [rows, out.cols]
  const float* up = nullptr;
  int32_t rows = 0;
  Activation out;
};
void SiluMul(Stream& stream, const SiluMulArgs& args);

// out += x, elementwise.
struct AddArgs {
  const float* x = nullptr;
  float* out = nullptr;
  int64_t count = 0;
};
void Add(Stream& stream, const AddArgs& args);

// Copies whole blocks of a state group.
struct CopyBlocksArgs {
  PagedStateView state;
  const int32_t* from = nullptr;  // [num_copies]
  const int32_t* to = nullptr;
  int32_t num_copies = 0;
};
void CopyBlocks(Stream& stream, const CopyBlocksArgs& args);

// The kernels that this process has chosen: "avx512-vnni", "avx2" or "scalar". TANDEM_CPU_ISA
// overrides the choice (an unavailable or unknown name is an error that CheckCpuIsa reports; the
// ops then use the best there is).
const char* CpuIsaName();
Status CheckCpuIsa();

}  // namespace tandem
