// What: the CPU as a device: a stream is a command ring that its own team of worker threads runs in
//   order, each command split over the team.
// Not here: kernels; thread pools for host work.
// Threads: Launch from one thread at a time per stream; commands run on the team.
// Invariants: command i+1 starts on any thread only after every task of command i has finished, so
//   ops see each other's results; a command's tasks may run on any thread of the team in any order.
//   A thread that is late (asleep, or off its core) is not waited for: a command is over when its
//   tasks are, whoever ran them.
// Cost: a launch copies its arguments (at most kMaxArgumentBytes) into the ring and allocates
//   nothing; passing from one command to the next costs well under a microsecond while threads are
//   awake. Waiting threads spin briefly, then sleep: a core that another process takes must not
//   cost more than its share, and an idle stream costs nothing.
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
  // The next unclaimed task of the running command, in ascending order, or -1 when all `num_tasks`
  // (at most kMaxTasks) are claimed. Every thread calls this with the same num_tasks until it
  // returns -1. Tasks are handed out dynamically: what a task computes must not depend on who runs
  // it.
  virtual int64_t NextTask(int64_t num_tasks) = 0;
};

class CpuStream : public Stream {
 public:
  static constexpr size_t kMaxArgumentBytes = 512;
  static constexpr int64_t kMaxTasks = int64_t{1} << 20;
  static constexpr int kMaxThreads = 512;

  // Runs `kernel(context, args)` at once on the threads of the team that are free while tasks
  // remain (at least one); `args` is the ring's copy. Every effect of a kernel belongs to a task
  // that it got from context.NextTask.
  template <typename Args>
  void Launch(void (*kernel)(CpuTaskContext&, const Args&), const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgumentBytes &&
                  alignof(Args) <= 64);
    LaunchBytes(
        reinterpret_cast<const void*>(kernel),
        [](CpuTaskContext& c, const void* fn, const void* a) {
          reinterpret_cast<void (*)(CpuTaskContext&, const Args&)>(const_cast<void*>(fn))(
              c, *static_cast<const Args*>(a));
        },
        &args, sizeof(Args));
  }

  virtual int num_threads() const = 0;

 protected:
  using Trampoline = void (*)(CpuTaskContext&, const void* fn, const void* args);
  // Blocks while the ring is full.
  virtual void LaunchBytes(const void* fn, Trampoline trampoline, const void* args,
                           size_t bytes) = 0;
};

struct CpuDeviceOptions {
  // Team size of each stream; 0: the processors this process may use (affinity and cgroup quota).
  int num_threads = 0;
  // CPU numbers, one a thread, or empty: not pinned.
  std::vector<int> pin_to;
};

// NewStream fails with INVALID_ARGUMENT when the options do not fit this machine, and with
// RESOURCE_EXHAUSTED when a thread cannot be started.
std::unique_ptr<Device> MakeCpuDevice(const CpuDeviceOptions& options);

// The stream as a CPU stream; requires kind() == kCpu.
CpuStream& AsCpu(Stream& stream);

}  // namespace tandem
