#include "device/cpu_stream.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"

namespace tandem::internal {
namespace {

// Enough for two steps of a 60-layer model before the host has to wait.
constexpr uint32_t kRingSlots = 1024;
// A waiting host is woken when this much of the ring is free, not at every command.
constexpr uint32_t kWakeHostFree = kRingSlots / 4;
// How long an idle thread watches the word before it sleeps: longer than the gaps inside a step,
// shorter than what a wake-up costs twice over.
constexpr TimeNs kSpinNs = 40 * kNsPerUs;
constexpr int kSpinsPerClock = 32;
// Per task: large enough to stream, small enough to share.
constexpr size_t kCopyTaskBytes = size_t{256} << 10;

// The word: sequence number (32 bits) | closed (1) | threads inside (10) | next task (21).
constexpr int kNextBits = 21;
constexpr int kInsideBits = 10;
constexpr uint64_t kNextMask = (uint64_t{1} << kNextBits) - 1;
constexpr uint64_t kInsideOne = uint64_t{1} << kNextBits;
constexpr uint64_t kInsideMask = ((uint64_t{1} << kInsideBits) - 1) << kNextBits;
constexpr uint64_t kClosed = uint64_t{1} << (kNextBits + kInsideBits);
// Each thread overshoots the number of tasks at most twice: once when it enters, once at the end.
static_assert(CpuStream::kMaxTasks + 2 * CpuStream::kMaxThreads <= static_cast<int64_t>(kNextMask));
static_assert(CpuStream::kMaxThreads < (1 << kInsideBits));

constexpr uint32_t SequenceOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr uint64_t OpenWord(uint32_t sequence) { return static_cast<uint64_t>(sequence) << 32; }

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

TimeNs Now() { return SteadyClock().Now(); }

}  // namespace

bool CpuEvent::Done() const {
  MutexLock lock(mutex_);
  return pending_ == 0;
}

void CpuEvent::Wait() {
  MutexLock lock(mutex_);
  while (pending_ != 0) signalled_.Wait(mutex_);
}

void CpuEvent::AddPending() {
  MutexLock lock(mutex_);
  ++pending_;
}

void CpuEvent::Signal() {
  MutexLock lock(mutex_);
  if (--pending_ == 0) signalled_.NotifyAll();
}

class TeamStream::TaskContext final : public CpuTaskContext {
 public:
  TaskContext(TeamStream& stream, int index) : stream_(stream) {
    thread = index;
    num_threads = stream.num_threads_;
  }

  void Enter(uint64_t first_task) { entered_with_ = static_cast<int64_t>(first_task); }

  int64_t NextTask(int64_t num_tasks) override {
    TANDEM_CHECK_LE(num_tasks, kMaxTasks);
    int64_t task = entered_with_;
    entered_with_ = -1;
    if (task < 0) {
      task = static_cast<int64_t>(stream_.current_.fetch_add(1, std::memory_order_acq_rel) &
                                  kNextMask);
    }
    return task < num_tasks ? task : -1;
  }

 private:
  TeamStream& stream_;
  int64_t entered_with_ = -1;  // the task claimed by entering, until it is taken
};

TeamStream::TeamStream(int num_threads) : num_threads_(num_threads), slots_(new Slot[kRingSlots]) {}

Result<std::unique_ptr<Stream>> TeamStream::Start(int num_threads, const std::vector<int>& pin_to) {
  std::unique_ptr<TeamStream> stream(new TeamStream(num_threads));
  TANDEM_RETURN_IF_ERROR(stream->StartThreads(pin_to));
  return std::unique_ptr<Stream>(std::move(stream));
}

Status TeamStream::StartThreads(const std::vector<int>& pin_to) {
  for (int i = 0; i < num_threads_; ++i) {
    try {
      threads_.emplace_back([this, i] { WorkerMain(i); });
    } catch (const std::system_error& error) {
      return ResourceExhaustedError("cannot start worker thread {} of {}: {}", i + 1, num_threads_,
                                    error.what());
    }
    pthread_setname_np(threads_.back().native_handle(), "tandem-cpu");
    if (pin_to.empty()) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(pin_to[static_cast<size_t>(i)]), &set);
    if (pthread_setaffinity_np(threads_.back().native_handle(), sizeof(set), &set) != 0) {
      return InvalidArgumentError("cannot pin a worker thread to processor {}",
                                  pin_to[static_cast<size_t>(i)]);
    }
  }
  return OkStatus();
}

void TeamStream::Stop() {
  MutexLock lock(mutex_);
  stop_.store(true, std::memory_order_seq_cst);
  work_.NotifyAll();
}

TeamStream::~TeamStream() {
  if (static_cast<int>(threads_.size()) == num_threads_) Synchronize();
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

bool TeamStream::Runnable(uint64_t word) const {
  return (word & kClosed) == 0 && published_.load(std::memory_order_seq_cst) != SequenceOf(word);
}

bool TeamStream::WaitForWork(uint64_t* word) {
  const TimeNs give_up = Now() + kSpinNs;
  for (int spins = 1;; ++spins) {
    *word = current_.load(std::memory_order_acquire);
    if (Runnable(*word)) return true;
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (spins % kSpinsPerClock == 0 && Now() >= give_up) break;
    CpuRelax();
  }
  // Announce, then look again: whoever makes a command runnable writes first and then looks for
  // sleepers, so one of the two sees the other.
  MutexLock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  bool runnable = false;
  while (true) {
    *word = current_.load(std::memory_order_seq_cst);
    runnable = Runnable(*word);
    if (runnable || stop_.load(std::memory_order_relaxed)) break;
    work_.Wait(mutex_);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return runnable;
}

void TeamStream::WorkerMain(int thread) {
  TaskContext context(*this, thread);
  uint64_t word = current_.load(std::memory_order_acquire);
  while (true) {
    if (!Runnable(word)) {
      if (!WaitForWork(&word)) return;
      continue;
    }
    if (!current_.compare_exchange_weak(word, word + kInsideOne + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      continue;
    }
    context.Enter(word & kNextMask);
    const Slot& slot = slots_[SequenceOf(word) % kRingSlots];
    slot.trampoline(context, slot.fn, slot.args);
    word = Leave();
  }
}

uint64_t TeamStream::Leave() {
  uint64_t word = current_.load(std::memory_order_relaxed);
  uint64_t after = 0;
  do {
    after = (word | kClosed) - kInsideOne;
    if ((after & kInsideMask) == 0) after = OpenWord(SequenceOf(word) + 1);
  } while (!current_.compare_exchange_weak(word, after, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
  if ((after & kClosed) != 0) return after;
  const bool wake_workers = sleepers_.load(std::memory_order_seq_cst) > 0 && Runnable(after);
  const bool wake_host = host_waits_.load(std::memory_order_seq_cst) && !RingFull(kWakeHostFree);
  if (wake_workers || wake_host) {
    MutexLock lock(mutex_);
    if (wake_workers) work_.NotifyAll();
    if (wake_host) space_.NotifyOne();
  }
  return after;
}

bool TeamStream::RingFull(uint32_t keep_free) const {
  const uint32_t over = SequenceOf(current_.load(std::memory_order_seq_cst));
  const uint32_t used = published_.load(std::memory_order_seq_cst) - over;
  return used + keep_free > kRingSlots;
}

void TeamStream::WaitForSpace() {
  MutexLock lock(mutex_);
  host_waits_.store(true, std::memory_order_seq_cst);
  while (RingFull(kWakeHostFree)) space_.Wait(mutex_);
  host_waits_.store(false, std::memory_order_relaxed);
}

void TeamStream::LaunchBytes(const void* fn, Trampoline trampoline, const void* args,
                             size_t bytes) {
  if (RingFull(1)) WaitForSpace();
  const uint32_t sequence = published_.load(std::memory_order_relaxed);
  Slot& slot = slots_[sequence % kRingSlots];
  slot.trampoline = trampoline;
  slot.fn = fn;
  std::memcpy(slot.args, args, bytes);
  published_.store(sequence + 1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    MutexLock lock(mutex_);
    work_.NotifyAll();
  }
}

void TeamStream::Record(Event& event) {
  struct Args {
    CpuEvent* event;
  };
  auto& cpu_event = static_cast<CpuEvent&>(event);
  cpu_event.AddPending();
  Launch<Args>(
      [](CpuTaskContext& context, const Args& args) {
        while (context.NextTask(1) >= 0) args.event->Signal();
      },
      Args{&cpu_event});
}

void TeamStream::EnqueueHostCall(std::function<void()> fn) {
  struct Args {
    std::function<void()>* fn;
  };
  Launch<Args>(
      [](CpuTaskContext& context, const Args& args) {
        while (context.NextTask(1) >= 0) {
          const std::unique_ptr<std::function<void()>> call(args.fn);
          (*call)();
        }
      },
      Args{new std::function<void()>(std::move(fn))});
}

void TeamStream::EnqueueCopy(void* to, const void* from, size_t bytes) {
  struct Args {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
    size_t task_bytes;
  };
  if (bytes == 0) return;
  const size_t task_bytes = std::max(kCopyTaskBytes, bytes / static_cast<size_t>(kMaxTasks) + 1);
  Launch<Args>(
      [](CpuTaskContext& context, const Args& args) {
        const size_t tasks = (args.bytes + args.task_bytes - 1) / args.task_bytes;
        int64_t task = 0;
        while ((task = context.NextTask(static_cast<int64_t>(tasks))) >= 0) {
          const size_t begin = static_cast<size_t>(task) * args.task_bytes;
          std::memcpy(args.to + begin, args.from + begin,
                      std::min(args.task_bytes, args.bytes - begin));
        }
      },
      Args{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, task_bytes});
}

void TeamStream::Synchronize() {
  CpuEvent event;
  Record(event);
  event.Wait();
}

}  // namespace tandem::internal
