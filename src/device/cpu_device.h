// What: the CPU as a device: a stream is a command ring that its own team of worker threads runs in order, each
//   command split over the team.
// Not here: kernels; thread pools for host work.
// Threads: Launch from one thread at a time per stream; commands run on the team.
// Invariants: command i+1 starts on any thread only after command i has finished on every thread (a barrier), so ops
//   see each other's results; a command's tasks may run on any thread of the team in any order.
// Cost: a launch copies its arguments (at most kMaxArgumentBytes) into the ring and allocates nothing; a barrier costs
//   about a microsecond while threads are awake. Waiting threads spin briefly, then sleep: a core that another process
//   takes must not cost more than its share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace tandem {

// What a kernel sees of the thread it runs on.
class CpuTaskContext {
 public:
  virtual ~CpuTaskContext() = default;
  int thread = 0;
  int num_threads = 1;
  // The next unclaimed task of the running command, or -1 when all `num_tasks` are claimed. Every thread of the team
  // calls this with the same num_tasks. Tasks are handed out dynamically: what a task computes must not depend on who runs it.
  virtual int64_t NextTask(int64_t num_tasks) = 0;
};

class CpuStream : public Stream {
 public:
  static constexpr size_t kMaxArgumentBytes = 512;
  // Runs on every thread of the team at once; `args` is the ring's copy.
  using Kernel = void (*)(CpuTaskContext& context, const void* args);

  template <typename Args>
  void Launch(void (*kernel)(CpuTaskContext&, const Args&), const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgumentBytes &&
                  alignof(Args) <= 64);
    LaunchBytes(reinterpret_cast<const void*>(kernel),
                [](CpuTaskContext& c, const void* fn, const void* a) {
                  reinterpret_cast<void (*)(CpuTaskContext&, const Args&)>(const_cast<void*>(fn))(
                      c, *static_cast<const Args*>(a));
                },
                &args, sizeof(Args));
  }

  // Time on the clock (SteadyClock ns) when the last command before a Record finished is the host's business: read a
  // clock in EnqueueHostCall.
  virtual int num_threads() const = 0;

 protected:
  using Trampoline = void (*)(CpuTaskContext&, const void* fn, const void* args);
  // Blocks while the ring is full.
  virtual void LaunchBytes(const void* fn, Trampoline trampoline, const void* args, size_t bytes) = 0;
};

struct CpuDeviceOptions {
  int num_threads = 0;            // team size of each stream; 0: the processors this process may use (affinity and cgroup quota)
  std::vector<int> pin_to;        // CPU numbers, one a thread, or empty: not pinned
};

std::unique_ptr<Device> MakeCpuDevice(const CpuDeviceOptions& options);

// The stream as a CPU stream; requires kind() == kCpu.
CpuStream& AsCpu(Stream& stream);

}  // namespace tandem
