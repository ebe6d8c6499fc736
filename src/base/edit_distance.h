// What: how far apart two words are, and which known word a mistyped one was meant to be.
// Not here: how a suggestion is worded.
// Threads: pure functions.
// Cost: the product of the two lengths in time, the second's in memory.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace tandem {

// Bytes to insert, delete or replace to make one of the other.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate that `word` was probably meant to be, the first of the nearest: one slip away for a
// word of up to 4 bytes, two for up to 12, three beyond. None when nothing is so near, for an empty
// word, and for one of more than 64 bytes, which is no name.
std::optional<std::string_view> NearestWord(std::string_view word,
                                            std::span<const std::string_view> candidates);

}  // namespace tandem
