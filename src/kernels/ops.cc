#include "kernels/ops.h"

#include "base/check.h"
#include "kernels/cpu/cpu_kernels.h"
#if defined(TANDEM_CUDA)
#include "kernels/cuda/ops_cuda.h"
#endif

namespace tandem {
namespace {

using internal::AvailableCpuKernels;
using internal::ChosenCpuKernels;
using internal::CpuKernels;

const CpuKernels& Kernels() {
  const Result<const CpuKernels*> chosen = ChosenCpuKernels();
  return chosen.ok() ? **chosen : *AvailableCpuKernels().front();
}

// The stream of an op that only the CPU has.
CpuStream& CpuOnly(Stream& stream, const char* op) {
  if (stream.kind() != DeviceKind::kCpu) {
    internal::CheckFailed(__FILE__, __LINE__, "stream.kind() == DeviceKind::kCpu", op);
  }
  return AsCpu(stream);
}

void CheckStoredAs(const StatePlane& plane, TileLayout tile, int32_t dims) {
  TANDEM_CHECK(IsStateType(plane.dtype));
  TANDEM_CHECK_EQ(plane.tile, tile);
  TANDEM_CHECK_EQ(plane.dims, dims);
}

void CheckState(const PagedStateView& state, int32_t num_kv_heads, int32_t head_dim) {
  const StateGroup& group = *state.group;
  TANDEM_CHECK_EQ(group.kind, StateKind::kPaged);
  TANDEM_CHECK_EQ(group.num_heads, num_kv_heads);
  TANDEM_CHECK_EQ(group.planes.size(), 2u);
  TANDEM_CHECK_LE(head_dim, kMaxHeadDim);
  TANDEM_CHECK_EQ(group.planes[0].dtype, group.planes[1].dtype);
  CheckStoredAs(group.planes[0], TileLayout::kDimMajor, head_dim);
  CheckStoredAs(group.planes[1], TileLayout::kTokenMajor, head_dim);
}

// The 8-bit form exists only for whole blocks.
void CheckForms(const Activation& a) {
  if (a.has_q8()) TANDEM_CHECK_EQ(a.cols % kActivationBlock, 0);
  TANDEM_CHECK(a.f32 != nullptr || a.has_q8());
}

bool IsQuantized(DType dtype) { return InfoOf(dtype).block_elements > 1; }

}  // namespace

void Embed(Stream& stream, const EmbedArgs& args) {
  if (args.num_tokens == 0) return;
  CpuOnly(stream, "Embed").Launch(Kernels().embed, args);
}

void GatherRows(Stream& stream, const GatherRowsArgs& args) {
  if (args.num_indices == 0) return;
  CpuOnly(stream, "GatherRows").Launch(Kernels().gather_rows, args);
}

void RmsNorm(Stream& stream, const RmsNormArgs& args) {
  if (args.rows == 0) return;
  CheckForms(args.out);
#if defined(TANDEM_CUDA)
  if (stream.kind() == DeviceKind::kCuda) return cuda::RmsNorm(stream, args);
#endif
  CpuOnly(stream, "RmsNorm").Launch(Kernels().rms_norm, args);
}

void MatMul(Stream& stream, const MatMulArgs& args) {
  if (args.rows == 0 || args.num_parts == 0) return;
  TANDEM_CHECK(args.num_parts >= 1 && args.num_parts <= 3);
  for (int32_t p = 0; p < args.num_parts; ++p) {
    const PackedMatrix& weight = args.parts[p].weight;
    TANDEM_CHECK_EQ(weight.cols, args.x.cols);
    TANDEM_CHECK(args.x.has_q8() && IsQuantized(weight.dtype) ? true : args.x.f32 != nullptr);
  }
  CpuOnly(stream, "MatMul").Launch(Kernels().mat_mul, args);
}

void RopeStore(Stream& stream, const RopeStoreArgs& args) {
  if (args.batch.num_tokens == 0) return;
  CheckState(args.state, args.num_kv_heads, args.head_dim);
  TANDEM_CHECK(args.rope_dims % 2 == 0 && args.rope_dims <= args.head_dim);
  CpuOnly(stream, "RopeStore").Launch(Kernels().rope_store, args);
}

void Attention(Stream& stream, const AttentionArgs& args) {
  if (args.batch.num_tokens == 0) return;
  CheckState(args.state, args.num_kv_heads, args.head_dim);
  CheckForms(args.out);
  TANDEM_CHECK_EQ(args.num_heads % args.num_kv_heads, 0);
  TANDEM_CHECK_EQ(args.out.cols, args.num_heads * args.head_dim);
  CpuStream& cpu = CpuOnly(stream, "Attention");
  cpu.Launch(Kernels().attend, args);
  cpu.Launch(Kernels().merge_attention, args);
}

void SiluMul(Stream& stream, const SiluMulArgs& args) {
  if (args.rows == 0) return;
  CheckForms(args.out);
  CpuOnly(stream, "SiluMul").Launch(Kernels().silu_mul, args);
}

void Add(Stream& stream, const AddArgs& args) {
  if (args.count == 0) return;
#if defined(TANDEM_CUDA)
  if (stream.kind() == DeviceKind::kCuda) return cuda::Add(stream, args);
#endif
  CpuOnly(stream, "Add").Launch(Kernels().add, args);
}

void CopyBlocks(Stream& stream, const CopyBlocksArgs& args) {
  if (args.num_copies == 0) return;
  CpuOnly(stream, "CopyBlocks").Launch(Kernels().copy_blocks, args);
}

const char* CpuIsaName() { return Kernels().name; }

Status CheckCpuIsa() { return ChosenCpuKernels().status(); }

}  // namespace tandem
