// What: the memory that the writer of a same-host link shares with its receiver: a ring of requests
//   "read these bytes of mine into that region of yours", and who sleeps.
// Not here: who copies and what is checked (incoming_link.h), who asks (outgoing_link.h).
// Threads: one writer and one receiver, in different processes of one user. Either may be wrong,
//   stopped or dead at any point: each reads a field once, and believes nothing.
// Invariants: the state of an entry goes kPosted -> kTaken -> kDone or kNoRegion or kNoBytes, and
//   from kPosted or kTaken to kWithdrawn: by compare-and-swap, so that a write which the writer has
//   given up is never counted. An entry is used again once the writer has seen its end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace tandem {

struct SharedRing {
  enum State : uint32_t {
    kFree,
    kPosted,     // by the writer
    kTaken,      // by the receiver: it reads
    kDone,       // the bytes are in the region
    kNoRegion,   // no such key, closed, or outside
    kNoBytes,    // the writer's memory cannot be read
    kWithdrawn,  // by the writer
  };
  struct alignas(64) Entry {
    std::atomic<uint32_t> state;
    uint32_t bytes;
    uint32_t immediate;
    uint64_t source;  // address in the writer's process
    uint64_t key;
    uint64_t offset;  // into the region
  };
  static constexpr uint64_t kEntries = 256;  // a power of two

  alignas(64) std::atomic<uint64_t> head;  // entries ever posted; by the writer
  alignas(64) std::atomic<uint32_t> receiver_asleep;
  alignas(64) std::atomic<uint32_t> writer_asleep;
  Entry entries[kEntries];

  Entry& at(uint64_t number) { return entries[number % kEntries]; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// An open file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd();
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A mapped SharedRing.
class RingMapping {
 public:
  // A new one, in memory that nobody can shrink; *fd is for the receiver.
  static Result<RingMapping> Create(Fd* fd);
  // One of another process: INVALID_ARGUMENT when it is none or could be taken away under us.
  static Result<RingMapping> Open(int fd);
  RingMapping() = default;
  ~RingMapping();
  RingMapping(RingMapping&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)) {}
  RingMapping& operator=(RingMapping&& other) noexcept {
    std::swap(ring_, other.ring_);
    return *this;
  }
  SharedRing* operator->() const { return ring_; }

 private:
  explicit RingMapping(SharedRing* ring) : ring_(ring) {}
  static Result<RingMapping> Map(int fd);

  SharedRing* ring_ = nullptr;
};

// Wakes the other side if it says that it sleeps; after what it shall see was stored.
void RingBell(std::atomic<uint32_t>* asleep, int bell_fd);

}  // namespace tandem
