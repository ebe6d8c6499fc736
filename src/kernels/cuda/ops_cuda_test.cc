#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "kernels/ref/ops_ref.h"
#include "kernels/testing.h"

namespace tandem {
namespace {

using testing_kernels::RandomFloats;
using testing_kernels::SameBits;
using testing_kernels::TestActivation;

class CudaOpsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeCudaDevice();
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = std::move(device).value();
    stream_ = std::move(device_->NewStream()).value();
  }
  float* ToDevice(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    buffers_.push_back(std::move(device_->Allocate(bytes, MemoryTerm::kActivations)).value());
    stream_->EnqueueCopy(buffers_.back().data(), values.data(), bytes);
    return buffers_.back().As<float>();
  }
  std::vector<float> ToHost(const float* values, size_t count) {
    std::vector<float> out(count);
    stream_->EnqueueCopy(out.data(), values, count * sizeof(float));
    stream_->Synchronize();
    return out;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
};

TEST_F(CudaOpsTest, RmsNormEqualsTheReference) {
  SplitMix64 rng(1);
  for (const int32_t cols : {1, 33, 576, 4096}) {
    for (const int32_t rows : {1, 17}) {
      const auto x = RandomFloats(rng, int64_t{rows} * cols, 10.0f);
      const auto weight = RandomFloats(rng, cols);
      TestActivation expected(rows, cols, true, false);
      ref::RmsNorm({x.data(), weight.data(), 1e-5f, rows, expected.view});
      Activation out;
      out.cols = cols;
      out.f32 = ToDevice(x);
      RmsNorm(*stream_, {ToDevice(x), ToDevice(weight), 1e-5f, rows, out});
      EXPECT_TRUE(SameBits(ToHost(out.f32, x.size()), expected.f32)) << rows << " x " << cols;
    }
  }
}

TEST_F(CudaOpsTest, AddEqualsTheReference) {
  SplitMix64 rng(2);
  for (const int64_t count : {1, 127, 1 << 20}) {
    const auto x = RandomFloats(rng, count);
    auto expected = RandomFloats(rng, count);
    float* out = ToDevice(expected);
    Add(*stream_, {ToDevice(x), out, count});
    ref::Add({x.data(), expected.data(), count});
    EXPECT_TRUE(SameBits(ToHost(out, expected.size()), expected));
  }
}

}  // namespace
}  // namespace tandem
