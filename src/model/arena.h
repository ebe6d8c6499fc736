// What: ArenaLayout: hands out aligned pieces of one allocation in order; run once without memory
//   to learn the size, once with it to get the pointers.
// Not here: freeing; an arena lives as long as its owner.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "model/linear.h"

namespace tandem {

class ArenaLayout {
 public:
  // `base` may be null: then pieces are null and only bytes() counts.
  explicit ArenaLayout(std::byte* base) : base_(base) {}

  template <typename T>
  T* Take(int64_t count) {
    static constexpr size_t kAlignment = 64;  // a cache line and an AVX-512 register
    std::byte* piece = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(piece);
  }

  // With `refine`, the 8-bit form gets fine codes: for producers that see whole runs of a row.
  Activation TakeActivation(ActivationNeeds needs, int64_t rows, int32_t cols, bool refine) {
    Activation a;
    a.cols = cols;
    if (needs.f32) a.f32 = Take<float>(rows * cols);
    if (needs.q8) {
      const int64_t blocks = rows * (cols / kActivationBlock);
      a.q8.codes = Take<int8_t>(rows * cols);
      a.q8.scales = Take<float>(blocks);
      a.q8.sums = Take<int32_t>(blocks);
      if (refine) {
        a.q8.fine.codes = Take<int8_t>(rows * cols);
        a.q8.fine.sums = Take<int32_t>(blocks);
        a.q8.fine.refined = Take<uint8_t>(blocks);
      }
    }
    return a;
  }

  size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  size_t bytes_ = 0;
};

}  // namespace tandem
