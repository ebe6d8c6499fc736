#include "fabric/expectation_table.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tandem {
namespace {

constexpr uint32_t kOrdinalBits = 12;
constexpr uint32_t kSlotBits = 12;
static_assert(kMaxExpectedPieces == 1u << kOrdinalBits && kMaxExpectations == 1u << kSlotBits);

uint32_t OrdinalOf(Immediate immediate) { return immediate & (kMaxExpectedPieces - 1); }
uint32_t SlotOf(Immediate immediate) { return immediate >> kOrdinalBits & (kMaxExpectations - 1); }
uint8_t GenerationOf(Immediate immediate) {
  return static_cast<uint8_t>(immediate >> (kOrdinalBits + kSlotBits));
}

}  // namespace

ExpectationTable::ExpectationTable(uint32_t num_slots) : slots_(num_slots), free_(num_slots) {
  TANDEM_CHECK(num_slots >= 1 && num_slots <= kMaxExpectations);
  std::iota(free_.begin(), free_.end(), 0u);
}

Result<Expectation> ExpectationTable::Expect(uint32_t pieces, TimeNs deadline) {
  if (pieces == 0 || pieces > kMaxExpectedPieces) {
    return InvalidArgumentError("an expectation has 1 to {} pieces, not {}", kMaxExpectedPieces,
                                pieces);
  }
  if (taken_ == slots_.size()) {
    return ResourceExhaustedError("all {} expectations are taken", slots_.size());
  }
  const uint32_t index = free_[free_head_];
  free_head_ = (free_head_ + 1) % free_.size();
  ++taken_;
  Slot& slot = slots_[index];
  if (slot.used) ++slot.generation;
  slot.used = true;
  slot.state = State::kWaiting;
  slot.pieces = pieces;
  slot.missing = pieces;
  slot.deadline = deadline;
  slot.come.assign((pieces + 63) / 64, 0);
  const uint32_t tag = uint32_t{slot.generation} << kSlotBits | index;
  return Expectation{tag << kOrdinalBits, pieces};
}

ExpectationTable::Seen ExpectationTable::Count(Immediate immediate) {
  const uint32_t index = SlotOf(immediate);
  if (index >= slots_.size()) return Seen::kUnknown;
  Slot& slot = slots_[index];
  if (!slot.used) return Seen::kUnknown;
  const auto age = static_cast<uint8_t>(slot.generation - GenerationOf(immediate));
  // Half of the circle lies behind, the other half has not begun.
  if (age != 0) return age < 128 ? Seen::kStale : Seen::kUnknown;
  const uint32_t ordinal = OrdinalOf(immediate);
  if (ordinal >= slot.pieces) return Seen::kUnknown;
  if (slot.state == State::kFree || slot.state == State::kOver) return Seen::kStale;
  uint64_t& word = slot.come[ordinal / 64];
  const uint64_t bit = uint64_t{1} << ordinal % 64;
  if ((word & bit) != 0) return Seen::kDuplicate;
  word |= bit;
  if (--slot.missing > 0) return Seen::kCounted;
  slot.state = State::kMet;
  return Seen::kMet;
}

ExpectationTable::Slot* ExpectationTable::Live(Immediate first) {
  const uint32_t index = SlotOf(first);
  if (index >= slots_.size() || OrdinalOf(first) != 0) return nullptr;
  Slot& slot = slots_[index];
  const bool live = slot.state != State::kFree && slot.generation == GenerationOf(first);
  return live ? &slot : nullptr;
}

void ExpectationTable::Abandon(Immediate first) {
  if (Slot* slot = Live(first)) slot->state = State::kOver;
}

void ExpectationTable::Drained(Immediate first) {
  Slot* slot = Live(first);
  if (slot == nullptr) return;
  slot->state = State::kFree;
  slot->come.clear();
  free_[(free_head_ + (slots_.size() - taken_)) % free_.size()] = SlotOf(first);
  --taken_;
}

std::optional<ExpectationEnded> ExpectationTable::TakeLate(TimeNs now) {
  for (uint32_t i = 0; i < slots_.size() && taken_ > 0; ++i) {
    Slot& slot = slots_[i];
    if (slot.state != State::kWaiting || slot.deadline > now) continue;
    slot.state = State::kOver;
    const uint32_t tag = uint32_t{slot.generation} << kSlotBits | i;
    return ExpectationEnded{
        tag << kOrdinalBits,
        UnavailableError("{} of {} writes have not come in time", slot.missing, slot.pieces),
        slot.missing};
  }
  return std::nullopt;
}

std::optional<TimeNs> ExpectationTable::next_deadline() const {
  std::optional<TimeNs> next;
  for (const Slot& slot : slots_) {
    if (slot.state != State::kWaiting) continue;
    next = next ? std::min(*next, slot.deadline) : slot.deadline;
  }
  return next;
}

}  // namespace tandem
