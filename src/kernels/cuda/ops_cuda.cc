#include "kernels/cuda/ops_cuda.h"

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/launches.h"

namespace tandem::cuda {

void RmsNorm(Stream& stream, const RmsNormArgs& args) {
  TANDEM_CHECK(!args.out.has_q8());
  CheckCuda(LaunchRmsNorm(args.x, args.weight, args.epsilon, args.rows, args.out.cols, args.out.f32,
                          CudaStreamOf(stream)),
            "launch RmsNorm");
}

void Add(Stream& stream, const AddArgs& args) {
  CheckCuda(LaunchAdd(args.x, args.out, args.count, CudaStreamOf(stream)), "launch Add");
}

}  // namespace tandem::cuda
