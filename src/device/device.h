// What: Device, Stream and Event: memory, an in-order asynchronous queue of work, and a marker in
//   it that a host can ask for. The same on CPU and GPU.
// Not here: mathematics (kernels/).
// Threads: a Stream's methods are called by one thread at a time; Event::Done and Wait from any
//   thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/status.h"
#include "device/buffer.h"

namespace tandem {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// A point in a stream; reusable after it was waited for.
class Event {
 public:
  virtual ~Event() = default;
  // True when everything enqueued before the last Record has finished (and before the first
  // Record).
  virtual bool Done() const = 0;
  virtual void Wait() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual DeviceKind kind() const = 0;
  virtual void Record(Event& event) = 0;
  // Runs `fn` on a host thread when everything before it has finished; later work waits for it.
  // `fn` must be short and must not touch the stream. May allocate: for step borders, not for every
  // op.
  virtual void EnqueueHostCall(std::function<void()> fn) = 0;
  // Copies between host-visible memory or device memory in stream order.
  virtual void EnqueueCopy(void* to, const void* from, size_t bytes) = 0;
  // Waits until the stream is empty.
  virtual void Synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // 64-byte aligned (large buffers page aligned), not initialised. RESOURCE_EXHAUSTED names the
  // term and the size.
  virtual Result<Buffer> Allocate(size_t bytes, MemoryTerm term) = 0;
  virtual Result<std::unique_ptr<Stream>> NewStream() = 0;
  virtual std::unique_ptr<Event> NewEvent() = 0;
  virtual const MemoryAccount& memory() const = 0;
};

}  // namespace tandem
