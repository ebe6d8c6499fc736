// What: clang's thread-safety attributes, and Mutex / MutexLock / CondVar that carry them.
// Not here: anything lock-free.
// Threads: that is the subject.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TANDEM_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TANDEM_THREAD_ATTRIBUTE(x)
#endif

#define TANDEM_GUARDED_BY(x) TANDEM_THREAD_ATTRIBUTE(guarded_by(x))
#define TANDEM_REQUIRES(...) TANDEM_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TANDEM_EXCLUDES(...) TANDEM_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace tandem {

class TANDEM_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void Lock() TANDEM_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() TANDEM_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class TANDEM_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TANDEM_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() TANDEM_THREAD_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Requires `mutex` held; it is released while waiting. May wake without cause: loop on the
  // condition.
  void Wait(Mutex& mutex) TANDEM_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // As Wait, at most `timeout_ns`.
  void WaitFor(Mutex& mutex, long long timeout_ns) TANDEM_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait_for(lock, std::chrono::nanoseconds(timeout_ns));
    lock.release();
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace tandem
