// What: a few threads for work that is too long for an I/O thread: parsing and tokenising a prompt.
// Not here: inference (the engine), order between tasks.
// Threads: every method from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace tandem {

class WorkerPool {
 public:
  // At most `queue_capacity` tasks wait.
  WorkerPool(int threads, size_t queue_capacity);
  // Tasks that wait are destroyed without running; the running ones are waited for.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full. `task` must not throw.
  [[nodiscard]] bool Submit(std::function<void()> task) { return queue_.TryPush(std::move(task)); }

 private:
  void Run();

  BoundedQueue<std::function<void()>> queue_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tandem
