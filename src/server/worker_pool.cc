#include "server/worker_pool.h"

#include "base/clock.h"

namespace tandem {

WorkerPool::WorkerPool(int threads, size_t queue_capacity) : queue_(queue_capacity) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

WorkerPool::~WorkerPool() {
  stop_.store(true);
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Run() {
  while (!stop_.load()) {
    // The queue wakes on a push and on its close; the time-out only bounds a wait nobody ends.
    if (auto task = queue_.PopFor(kNsPerS)) {
      if (!stop_.load()) (*task)();
    }
  }
}

}  // namespace tandem
