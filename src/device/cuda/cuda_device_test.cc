#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeCudaDevice();
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = std::move(device).value();
    stream_ = std::move(device_->NewStream()).value();
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaDeviceTest, CopiesThroughDeviceMemoryInOrder) {
  std::vector<int> in(100000), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 7);
  const size_t bytes = in.size() * sizeof(int);
  auto a = std::move(device_->Allocate(bytes, MemoryTerm::kActivations)).value();
  auto b = std::move(device_->Allocate(bytes, MemoryTerm::kActivations)).value();
  stream_->EnqueueCopy(a.data(), in.data(), bytes);
  stream_->EnqueueCopy(b.data(), a.data(), bytes);
  stream_->EnqueueCopy(out.data(), b.data(), bytes);
  stream_->Synchronize();
  EXPECT_EQ(in, out);
  EXPECT_GE(device_->memory().bytes(MemoryTerm::kActivations), static_cast<int64_t>(2 * bytes));
}

TEST_F(CudaDeviceTest, EventsAndHostCallsFollowTheStream) {
  auto event = device_->NewEvent();
  EXPECT_TRUE(event->Done());
  std::vector<int> order;
  for (int i = 0; i < 10; ++i) stream_->EnqueueHostCall([&order, i] { order.push_back(i); });
  stream_->Record(*event);
  event->Wait();
  EXPECT_TRUE(event->Done());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(CudaDeviceTest, RefusesWhatDoesNotFitByName) {
  const auto buffer = device_->Allocate(size_t{1} << 50, MemoryTerm::kKv);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(buffer.status().message(), testing::HasSubstr("M_KV"));
}

TEST(CudaDevice, AGpuThatIsNotThereIsUnavailable) {
  EXPECT_EQ(MakeCudaDevice(1000).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(MakeCudaDevice(-1).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem
