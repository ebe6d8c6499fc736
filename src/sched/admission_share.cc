#include "sched/admission_share.h"

#include <bit>
#include <cstdint>

namespace tandem {
namespace {

// A request's weight halves in about 350 later ones.
constexpr double kFade = 0.998;
// How much more than the mean a class may get: less would refuse whole classes by chance.
constexpr double kTolerance = 1.05;
// Below it a class is too rare to be judged.
constexpr double kLeastArrived = 4;

}  // namespace

// One class per power of two.
size_t AdmissionShare::ClassOf(TimeNs alone) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(alone))) % kClasses;
}

bool AdmissionShare::Exceeded(TimeNs alone) const {
  // The mean over classes, not over requests: a class that is mostly shut out counts in full.
  double sum = 0;
  int judged = 0;
  for (const Class& c : classes_) {
    if (c.arrived < kLeastArrived) continue;
    sum += c.accepted / c.arrived;
    ++judged;
  }
  const Class& own = classes_[ClassOf(alone)];
  if (judged < 2 || own.arrived < kLeastArrived) return false;
  return own.accepted / own.arrived > kTolerance * sum / judged;
}

void AdmissionShare::Observe(TimeNs alone, bool accepted) {
  for (Class& c : classes_) {
    c.arrived *= kFade;
    c.accepted *= kFade;
  }
  Class& own = classes_[ClassOf(alone)];
  own.arrived += 1;
  own.accepted += accepted;
}

}  // namespace tandem
