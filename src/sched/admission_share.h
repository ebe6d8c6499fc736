// What: AdmissionShare: keeps overload from becoming a preference. When more requests with
//   deadlines come than can be met, those with much slack (as a rule the long ones) find a place
//   more easily than the others; fewer answers then get done, and the short ones are shut out. So a
//   class of requests that gets more than its share accepted is held back while the engine is
//   loaded.
// Not here: whether a request can be met at all (finish_predictor.h).
// Threads: the engine's thread. A function of its calls.
// Cost: O(classes) per arrival with a deadline.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace tandem {

class AdmissionShare {
 public:
  // Whether a request that takes `alone` by itself belongs to a class that has its share already.
  bool Exceeded(TimeNs alone) const;
  // A request that could be met if it were alone has been accepted or refused.
  void Observe(TimeNs alone, bool accepted);

 private:
  static constexpr size_t kClasses = 64;
  struct Class {
    double arrived = 0;
    double accepted = 0;
  };
  static size_t ClassOf(TimeNs alone);

  std::array<Class, kClasses> classes_{};  // fading
};

}  // namespace tandem
