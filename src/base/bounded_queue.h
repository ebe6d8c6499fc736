// What: a bounded many-producer queue: how anything crosses from one owning thread to another.
// Not here: ordering by priority; the order is the order of successful pushes.
// Threads: every method from any thread.
// Cost: one mutex; capacity is allocated at construction.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/thread_annotations.h"

namespace tandem {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { TANDEM_CHECK_GT(capacity, 0u); }

  // False when the queue is full or closed; `item` is then untouched.
  [[nodiscard]] bool TryPush(T&& item) TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  std::optional<T> TryPop() TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return PopLocked();
  }

  // Waits at most `timeout_ns` for an item; none on time-out, or when closed and empty.
  std::optional<T> PopFor(long long timeout_ns) TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (items_.empty() && !closed_) not_empty_.WaitFor(mutex_, timeout_ns);
    return PopLocked();
  }

  // No push succeeds from now on; what is inside can still be popped.
  void Close() TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    closed_ = true;
    not_empty_.NotifyAll();
  }

  bool closed() const TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return closed_;
  }

  size_t size() const TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> PopLocked() TANDEM_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> out(std::move(items_.front()));
    items_.pop_front();
    return out;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar not_empty_;
  std::deque<T> items_ TANDEM_GUARDED_BY(mutex_);
  bool closed_ TANDEM_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
