// What: StrongId<Tag, Int>: an integer that names something and does not mix with other integers;
//   and the ids that more than one module needs.
// Not here: counts, sizes and positions; those are plain integers.
// Threads: values.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace tandem {

template <typename Tag, typename Int>
class StrongId {
 public:
  using Value = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;

 private:
  Int value_ = 0;
};

// An entry of the model's vocabulary.
using TokenId = StrongId<struct TokenIdTag, int32_t>;
// One inference job, unique in the life of a process.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// A row of the executor's persistent tables; reused after its sequence has left.
using SlotId = StrongId<struct SlotIdTag, int32_t>;
// One scheduling iteration. Steps are numbered 1, 2, 3 ...; 0 is "before the first".
using StepId = StrongId<struct StepIdTag, uint64_t>;
// A physical block of one state group's pool.
using BlockId = StrongId<struct BlockIdTag, int32_t>;
// An index into the model's list of state groups.
using GroupId = StrongId<struct GroupIdTag, int32_t>;

}  // namespace tandem

template <typename Tag, typename Int>
struct std::hash<tandem::StrongId<Tag, Int>> {
  size_t operator()(const tandem::StrongId<Tag, Int>& id) const noexcept {
    return std::hash<Int>{}(id.value());
  }
};

template <typename Tag, typename Int>
struct fmt::formatter<tandem::StrongId<Tag, Int>> : fmt::formatter<Int> {
  template <typename Context>
  auto format(const tandem::StrongId<Tag, Int>& id, Context& ctx) const {
    return fmt::formatter<Int>::format(id.value(), ctx);
  }
};
