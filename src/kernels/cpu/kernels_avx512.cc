#if defined(__x86_64__)
#define TANDEM_ISA avx512
#define TANDEM_ISA_SIMD "kernels/cpu/simd_avx512-inl.h"
#define TANDEM_ISA_TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/rope-inl.h"

namespace tandem::avx512 {

extern const internal::CpuKernels kKernels;
const internal::CpuKernels kKernels = {
    "avx512-vnni", Embed,          GatherRows, RmsNorm, MatMul,     RopeStore,
    Attend,        MergeAttention, SiluMul,    Add,     CopyBlocks,
};

}  // namespace tandem::avx512
#endif
