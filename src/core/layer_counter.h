// What: LayerCounter: how far the running step has come: one counter that the stream advances after
//   each layer's attention output projection and that another thread polls (spec H3). One 64-bit
//   value, so that a device can write it from a captured graph.
// Not here: who advances it (exec/), who waits for it (messenger/).
// Threads: one writer, any readers.
// Invariants: never decreases. A reader that sees (step, n) sees the state that layers [0, n) of
//   that step have stored, and all of the steps before. So an executor that fails a step in the
//   middle must not advance past it before the engine has called SendFailed for its sends.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/ids.h"

namespace tandem {

class LayerCounter {
 public:
  struct Progress {
    StepId step;
    int32_t layers = 0;  // complete
  };

  void Advance(StepId step, int32_t layers) {
    value_.store(step.value() << kLayerBits | static_cast<uint64_t>(layers),
                 std::memory_order_release);
  }
  Progress Read() const {
    const uint64_t value = value_.load(std::memory_order_acquire);
    return {StepId(value >> kLayerBits), static_cast<int32_t>(value & ((1u << kLayerBits) - 1))};
  }
  // Whether `layer` of `step` has stored its state.
  bool Reached(StepId step, int32_t layer) const {
    const Progress now = Read();
    return now.step > step || (now.step == step && now.layers > layer);
  }

 private:
  static constexpr int kLayerBits = 12;
  std::atomic<uint64_t> value_{0};
};

}  // namespace tandem
