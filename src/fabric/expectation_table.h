// What: ExpectationTable: which writes a receiver waits for, and which have come: a bitmap per
//   slot, {generation 8 | slot 12 | ordinal 12} in the immediate of each write.
// Not here: threads, networks, what is written (transfer_engine.h).
// Threads: one owner.
// Invariants: a slot is free, waiting, over (met, late or abandoned: pieces may still come) and
//   only after Drained free again, under the next generation. Free slots are taken in the order in
//   which they were freed, so a generation comes back only after 256 uses of every slot in turn.
// Cost: Count is O(1); memory for the bitmaps of live slots.
// Based on: the immediate counters of fabric-lib; a bitmap, since a page that comes twice and one
//   that never comes have the right count.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/transfer_engine.h"

namespace tandem {

class ExpectationTable {
 public:
  enum class Seen : uint8_t {
    kCounted,    // one of those waited for
    kMet,        // the last of them
    kStale,      // of an expectation that is late or abandoned, or of an earlier generation
    kDuplicate,  // it has come already
    kUnknown,    // no such slot or ordinal, or a generation that has not begun
  };

  // Lower limits than kMaxExpectations are for tests.
  explicit ExpectationTable(uint32_t num_slots = kMaxExpectations);

  // RESOURCE_EXHAUSTED when no slot is free, INVALID_ARGUMENT for 0 or too many pieces.
  Result<Expectation> Expect(uint32_t pieces, TimeNs deadline);
  // A write with this immediate has landed.
  Seen Count(Immediate immediate);
  // See TransferEngine. Unknown expectations are ignored.
  void Abandon(Immediate first);
  void Drained(Immediate first);

  // Takes one expectation whose deadline is not after `now` and that is not met; it is late from
  // now on.
  std::optional<ExpectationEnded> TakeLate(TimeNs now);
  // The earliest deadline of those that are waited for.
  std::optional<TimeNs> next_deadline() const;

  // Slots that are not free.
  uint32_t taken() const { return taken_; }

 private:
  enum class State : uint8_t { kFree, kWaiting, kMet, kOver };
  struct Slot {
    State state = State::kFree;
    uint8_t generation = 0;
    bool used = false;  // ever
    uint32_t pieces = 0;
    uint32_t missing = 0;
    TimeNs deadline = 0;
    std::vector<uint64_t> come;  // a bit per ordinal
  };
  // The slot that holds this expectation now, or null.
  Slot* Live(Immediate first);

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;  // ring
  size_t free_head_ = 0;
  uint32_t taken_ = 0;
};

}  // namespace tandem
