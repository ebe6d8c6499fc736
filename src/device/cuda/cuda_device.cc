#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent() {
    CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync),
              "create an event");
  }
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }

  bool Done() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    CheckCuda(state, "query an event");
    return true;
  }
  void Wait() override { CheckCuda(cudaEventSynchronize(event_), "wait for an event"); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  ~CudaStream() override {
    Synchronize();
    (void)cudaStreamDestroy(stream_);
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  void Record(Event& event) override {
    CheckCuda(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_), "record an event");
  }
  void EnqueueHostCall(std::function<void()> fn) override {
    auto call = std::make_unique<std::function<void()>>(std::move(fn));
    const auto run = [](void* context) {
      const std::unique_ptr<std::function<void()>> owned(
          static_cast<std::function<void()>*>(context));
      (*owned)();
    };
    CheckCuda(cudaLaunchHostFunc(stream_, run, call.get()), "enqueue a host call");
    (void)call.release();  // the call owns itself now
  }
  void EnqueueCopy(void* to, const void* from, size_t bytes) override {
    CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "enqueue a copy");
  }
  void Synchronize() override { CheckCuda(cudaStreamSynchronize(stream_), "wait for a stream"); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }

  Result<Buffer> Allocate(size_t bytes, MemoryTerm term) override {
    CheckCuda(cudaSetDevice(ordinal_), "select the device");
    void* data = nullptr;
    const size_t size = std::max<size_t>(bytes, 1);
    if (cudaMalloc(&data, size) != cudaSuccess) {
      (void)cudaGetLastError();  // the failure is reported here, not by the next call
      return ResourceExhaustedError("cannot allocate {} bytes for {} on GPU {}", bytes,
                                    NameOf(term), ordinal_);
    }
    return Buffer(data, size, term, &memory_, Free, nullptr);
  }

  Result<std::unique_ptr<Stream>> NewStream() override {
    CheckCuda(cudaSetDevice(ordinal_), "select the device");
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
      return ResourceExhaustedError("cannot create a stream on GPU {}: {}", ordinal_,
                                    cudaGetErrorString(error));
    }
    return std::unique_ptr<Stream>(std::make_unique<CudaStream>(stream));
  }

  std::unique_ptr<Event> NewEvent() override {
    CheckCuda(cudaSetDevice(ordinal_), "select the device");
    return std::make_unique<CudaEvent>();
  }
  const MemoryAccount& memory() const override { return memory_; }

 private:
  static void Free(void* data, size_t /*size*/, void* /*context*/) { (void)cudaFree(data); }

  const int ordinal_;
  MemoryAccount memory_;
};

}  // namespace

Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return UnavailableError("no GPU: {}", cudaGetErrorString(error));
  }
  if (ordinal < 0 || ordinal >= count) {
    return UnavailableError("no GPU {}; this machine has {}", ordinal, count);
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(ordinal));
}

cudaStream_t CudaStreamOf(Stream& stream) {
  TANDEM_CHECK_EQ(stream.kind(), DeviceKind::kCuda);
  return static_cast<CudaStream&>(stream).get();
}

void CheckCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  internal::CheckFailed(__FILE__, __LINE__, what, cudaGetErrorString(error));
}

}  // namespace tandem
