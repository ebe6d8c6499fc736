#include "messenger/page_map.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

Result<PageMap> PageMap::Create(std::span<const StateGroup> groups, int32_t have, int32_t tokens) {
  if (have < 0 || have >= tokens) {
    return InvalidArgumentError("a hand-off of {} tokens of which {} are there", tokens, have);
  }
  PageMap map;
  int64_t pages = 0;
  for (const StateGroup& group : groups) {
    const int32_t per_block = group.tokens_per_block;
    if (have % per_block != 0) {
      return InvalidArgumentError("position {} is no border of blocks of {} tokens", have,
                                  per_block);
    }
    int32_t begin = have;
    if (group.kind == StateKind::kWindow) begin = std::max(begin, tokens - group.window_tokens + 1);
    // A window of one token reads nothing before the next position: no pages.
    begin = std::min(begin, tokens);
    Group out;
    out.end_block = static_cast<int32_t>(group.BlocksFor(tokens));
    out.first_block = begin == tokens ? out.end_block : begin / per_block;
    out.first_page = static_cast<int32_t>(pages);
    out.layers = static_cast<int32_t>(group.layers.size());
    pages += int64_t{out.blocks()} * out.layers;
    if (pages > static_cast<int64_t>(kMaxHandoffPages)) {
      return OutOfRangeError("a hand-off of {} tokens has more than {} pages", tokens,
                             kMaxHandoffPages);
    }
    map.groups_.push_back(out);
  }
  map.pages_ = static_cast<int32_t>(pages);
  return map;
}

int32_t PageMap::PageOf(size_t g, int32_t block, int32_t layer) const {
  const Group& group = groups_[g];
  TANDEM_CHECK(block >= group.first_block && block < group.end_block);
  TANDEM_CHECK(layer >= 0 && layer < group.layers);
  return group.first_page + (block - group.first_block) * group.layers + layer;
}

int32_t PageMap::expectations() const {
  constexpr auto kMost = static_cast<int32_t>(kMaxExpectedPieces);
  return (pages_ + kMost - 1) / kMost;
}

uint32_t PageMap::PiecesOf(int32_t expectation) const {
  const uint32_t before = static_cast<uint32_t>(expectation) * kMaxExpectedPieces;
  return std::min(kMaxExpectedPieces, static_cast<uint32_t>(pages_) - before);
}

Immediate PageMap::ImmediateOf(std::span<const Expectation> expectations, int32_t page) {
  const auto number = static_cast<uint32_t>(page);
  return expectations[number / kMaxExpectedPieces].first + number % kMaxExpectedPieces;
}

bool PageMap::Fits(std::span<const Expectation> expectations) const {
  if (expectations.size() != static_cast<size_t>(this->expectations())) return false;
  for (size_t e = 0; e < expectations.size(); ++e) {
    if (expectations[e].pieces != PiecesOf(static_cast<int32_t>(e))) return false;
    if (expectations[e].first % kMaxExpectedPieces != 0) return false;
  }
  return true;
}

}  // namespace tandem
