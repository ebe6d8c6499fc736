#define TANDEM_ISA scalar
#define TANDEM_ISA_SIMD "kernels/cpu/simd_scalar-inl.h"

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/rope-inl.h"

namespace tandem::scalar {

extern const internal::CpuKernels kKernels;
const internal::CpuKernels kKernels = {
    "scalar", Embed,          GatherRows, RmsNorm, MatMul,     RopeStore,
    Attend,   MergeAttention, SiluMul,    Add,     CopyBlocks,
};

}  // namespace tandem::scalar
