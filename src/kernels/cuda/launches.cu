#include "kernels/cuda/launches.h"

namespace tandem::cuda {
namespace {

constexpr int kLanes = 16;  // partial sums of the definition: column index modulo 16
constexpr int kThreads = 128;

// One block a row. The _rn intrinsics keep the compiler from fusing what the definition rounds.
__global__ void RmsNormKernel(const float* x, const float* weight, float epsilon, int cols,
                              float* out) {
  __shared__ float lanes[kLanes];
  const float* row = x + static_cast<size_t>(blockIdx.x) * cols;
  if (threadIdx.x < kLanes) {
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kLanes) sum = __fmaf_rn(row[c], row[c], sum);
    lanes[threadIdx.x] = sum;
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      lanes[threadIdx.x] = __fadd_rn(lanes[threadIdx.x], lanes[threadIdx.x + width]);
    }
  }
  __syncthreads();
  const float mean = __fdiv_rn(lanes[0], static_cast<float>(cols));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
  float* to = out + static_cast<size_t>(blockIdx.x) * cols;
  for (int c = threadIdx.x; c < cols; c += kThreads) {
    to[c] = __fmul_rn(__fmul_rn(row[c], scale), weight[c]);
  }
}

__global__ void AddKernel(const float* x, float* out, long long count) {
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    out[i] = __fadd_rn(out[i], x[i]);
  }
}

}  // namespace

cudaError_t LaunchRmsNorm(const float* x, const float* weight, float epsilon, int rows, int cols,
                          float* out, cudaStream_t stream) {
  RmsNormKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(x, weight, epsilon, cols,
                                                                      out);
  return cudaGetLastError();
}

cudaError_t LaunchAdd(const float* x, float* out, long long count, cudaStream_t stream) {
  constexpr long long kBlocksMax = 4096;
  const long long wanted = (count + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kBlocksMax ? wanted : kBlocksMax);
  AddKernel<<<blocks, kThreads, 0, stream>>>(x, out, count);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
