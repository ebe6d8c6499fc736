// What: the command ring and worker team behind CpuStream, and the CPU's Event.
// Not here: memory (cpu_device.cc); kernels.
// Threads: as device.h; the team is private.
// Invariants: at any moment one command is current. One 64-bit word says which, how many threads
//   are inside it, which task comes next, and whether it is closed (a thread has seen the end of
//   its tasks). The thread that leaves a closed command last makes the next one current, with the
//   same atomic operation, and usually goes on with it at once.
//   A ring slot is rewritten only after its command is over and nobody is inside.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread_annotations.h"
#include "device/cpu_device.h"

namespace tandem::internal {

class CpuEvent final : public Event {
 public:
  bool Done() const override TANDEM_EXCLUDES(mutex_);
  void Wait() override TANDEM_EXCLUDES(mutex_);
  // One more Signal will come.
  void AddPending() TANDEM_EXCLUDES(mutex_);
  void Signal() TANDEM_EXCLUDES(mutex_);

 private:
  // A mutex, not an atomic flag: after Wait the owner may destroy the event, also while the
  // signalling thread has just woken it.
  mutable Mutex mutex_;
  CondVar signalled_;
  int pending_ TANDEM_GUARDED_BY(mutex_) = 0;
};

class TeamStream final : public CpuStream {
 public:
  // Requires 1 <= num_threads <= kMaxThreads and pin_to empty or of that size.
  static Result<std::unique_ptr<Stream>> Start(int num_threads, const std::vector<int>& pin_to);
  ~TeamStream() override;  // waits for what was enqueued

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  void Record(Event& event) override;
  void EnqueueHostCall(std::function<void()> fn) override;
  void EnqueueCopy(void* to, const void* from, size_t bytes) override;
  void Synchronize() override;
  int num_threads() const override { return num_threads_; }

 protected:
  void LaunchBytes(const void* fn, Trampoline trampoline, const void* args, size_t bytes) override;

 private:
  class TaskContext;
  struct alignas(64) Slot {
    Trampoline trampoline = nullptr;
    const void* fn = nullptr;
    alignas(64) std::byte args[kMaxArgumentBytes];
  };

  explicit TeamStream(int num_threads);
  Status StartThreads(const std::vector<int>& pin_to);
  void Stop();

  void WorkerMain(int thread);
  // Whether `word`'s command has been enqueued and takes more threads.
  bool Runnable(uint64_t word) const;
  // Spins, then sleeps, until a command is runnable (true) or the stream stops (false).
  bool WaitForWork(uint64_t* word) TANDEM_EXCLUDES(mutex_);
  // Leaves the current command; returns the word afterwards.
  uint64_t Leave() TANDEM_EXCLUDES(mutex_);
  bool RingFull(uint32_t keep_free) const;
  void WaitForSpace() TANDEM_EXCLUDES(mutex_);

  const int num_threads_;
  std::unique_ptr<Slot[]> slots_;

  // Each on its own cache line: the word is written by the team, `published_` by the host.
  alignas(64) std::atomic<uint64_t> current_{0};
  alignas(64) std::atomic<uint32_t> published_{0};  // commands enqueued so far, modulo 2^32
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> host_waits_{false};
  std::atomic<bool> stop_{false};

  Mutex mutex_;    // only for sleeping and waking
  CondVar work_;   // workers sleep here
  CondVar space_;  // the host sleeps here while the ring is full
  std::vector<std::thread> threads_;
};

}  // namespace tandem::internal
