// What: ByteRing: a bounded ring of bytes from one thread to another, without a lock and without a
//   system call, so that the writing thread never waits for the reading one.
// Not here: what the bytes are (event_recorder.h), waking the reader up: it looks by itself.
// Threads: TryWrite from one thread, ReadAll from one thread.
// Invariants: what one TryWrite put in is read whole, in order.
// Cost: one copy on each side.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace tandem {

class ByteRing {
 public:
  // Holds at least `capacity` bytes, which are allocated here.
  explicit ByteRing(size_t capacity)
      : capacity_(std::bit_ceil(capacity)),
        bytes_(std::make_unique_for_overwrite<char[]>(capacity_)) {}

  // All or nothing; false when there is too little room.
  [[nodiscard]] bool TryWrite(std::string_view bytes) {
    const uint64_t written = written_.load(std::memory_order_relaxed);
    const uint64_t read = read_.load(std::memory_order_acquire);
    if (bytes.size() > capacity_ - (written - read)) return false;
    const size_t at = written & (capacity_ - 1);
    const size_t first = std::min(bytes.size(), capacity_ - at);
    if (first > 0) std::memcpy(bytes_.get() + at, bytes.data(), first);
    if (first < bytes.size()) {
      std::memcpy(bytes_.get(), bytes.data() + first, bytes.size() - first);
    }
    written_.store(written + bytes.size(), std::memory_order_release);
    return true;
  }

  // Appends all there is to *out.
  void ReadAll(std::string* out) {
    const uint64_t read = read_.load(std::memory_order_relaxed);
    const uint64_t written = written_.load(std::memory_order_acquire);
    const auto size = static_cast<size_t>(written - read);
    const size_t at = read & (capacity_ - 1);
    const size_t first = std::min(size, capacity_ - at);
    out->append(bytes_.get() + at, first);
    out->append(bytes_.get(), size - first);
    read_.store(written, std::memory_order_release);
  }

 private:
  const size_t capacity_;
  const std::unique_ptr<char[]> bytes_;
  alignas(64) std::atomic<uint64_t> written_{0};  // since construction
  alignas(64) std::atomic<uint64_t> read_{0};
};

}  // namespace tandem
