#if defined(__x86_64__)
#define TANDEM_ISA avx2
#define TANDEM_ISA_SIMD "kernels/cpu/simd_avx2-inl.h"
#define TANDEM_ISA_TARGET "avx2,fma,f16c"

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/rope-inl.h"

namespace tandem::avx2 {

extern const internal::CpuKernels kKernels;
const internal::CpuKernels kKernels = {
    "avx2", Embed,          GatherRows, RmsNorm, MatMul,     RopeStore,
    Attend, MergeAttention, SiluMul,    Add,     CopyBlocks,
};

}  // namespace tandem::avx2
#endif
