// What: an NVIDIA GPU as a device: memory of the current CUDA device, streams and events of its
//   runtime.
// Not here: kernels (kernels/cuda/). CUDA headers appear only in this folder and in kernels/cuda.
// Threads: as device/device.h; host calls run on a thread of the CUDA runtime.
// Cost: as the CUDA runtime; a host call allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "base/status.h"
#include "device/device.h"

namespace tandem {

// GPU `ordinal`. UNAVAILABLE when the machine has no usable GPU of that number.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal = 0);

// The runtime's stream; requires kind() == kCuda.
cudaStream_t CudaStreamOf(Stream& stream);

// Aborts with the runtime's text: a failed launch or copy leaves the GPU's state undefined.
void CheckCuda(cudaError_t error, const char* what);

}  // namespace tandem
