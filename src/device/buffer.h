// What: Buffer: memory of a device with one owner, counted under the term of the memory budget it
//   belongs to.
// Not here: what the bytes mean; mapped files (os/).
// Threads: values that move; MemoryAccount from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace tandem {

// The terms of M_w + M_KV + M_a + M_u <= C (spec S5).
enum class MemoryTerm : uint8_t { kWeights, kKv, kActivations, kRuntime };
inline constexpr size_t kNumMemoryTerms = 4;
// "M_KV (KV cache)": as budgets and refusals print it.
std::string_view NameOf(MemoryTerm term);

// Bytes in use per term, as allocated on one device.
class MemoryAccount {
 public:
  void Add(MemoryTerm term, int64_t bytes) {
    bytes_[static_cast<size_t>(term)].fetch_add(bytes, std::memory_order_relaxed);
  }
  int64_t bytes(MemoryTerm term) const {
    return bytes_[static_cast<size_t>(term)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<int64_t>, kNumMemoryTerms> bytes_{};
};

class Buffer {
 public:
  // Frees a device allocation; `context` is the allocator's own.
  using Deleter = void (*)(void* data, size_t size, void* context);

  Buffer() = default;
  Buffer(void* data, size_t size, MemoryTerm term, MemoryAccount* account, Deleter deleter,
         void* context)
      : data_(data),
        size_(size),
        term_(term),
        account_(account),
        deleter_(deleter),
        context_(context) {
    account_->Add(term_, static_cast<int64_t>(size_));
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(term_, other.term_);
    std::swap(account_, other.account_);
    std::swap(deleter_, other.deleter_);
    std::swap(context_, other.context_);
    return *this;
  }
  ~Buffer() {
    if (data_ == nullptr) return;
    account_->Add(term_, -static_cast<int64_t>(size_));
    deleter_(data_, size_, context_);
  }

  std::byte* data() { return static_cast<std::byte*>(data_); }
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }
  size_t size() const { return size_; }
  template <typename T>
  T* As() {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  MemoryTerm term_ = MemoryTerm::kRuntime;
  MemoryAccount* account_ = nullptr;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace tandem
