// What: launches of the CUDA kernels, in terms of pointers and a runtime stream.
// Not here: op arguments (ops_cuda.cc). This header and launches.cu include nothing of ours: nvcc
//   does not take the formatting library that base/ uses.
// Threads: as the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::cuda {

// [rows, cols], rows > 0. The returned error is that of the launch.
cudaError_t LaunchRmsNorm(const float* x, const float* weight, float epsilon, int rows, int cols,
                          float* out, cudaStream_t stream);

// count > 0.
cudaError_t LaunchAdd(const float* x, float* out, long long count, cudaStream_t stream);

}  // namespace tandem::cuda
