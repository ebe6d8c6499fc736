// What: operations on text that Python's str has and the standard library lacks: linear search,
//   stripping, splitting into lines, case mapping.
// Not here: limits (runtime.h); results are at most a few times as long as the arguments.
// Threads: pure functions.
// Cost: linear in the arguments, whatever they hold.
// Based on: Python 3's str; Unicode's SpecialCasing for characters that map to several.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::jinja {

// Like std::string_view::find and rfind, but linear for every pair of arguments.
size_t FindText(std::string_view text, std::string_view needle, size_t from);
size_t FindLastText(std::string_view text, std::string_view needle);

enum class Side { kLeft, kRight, kBoth };
// Without `chars`: white space.
std::string_view StripSpace(std::string_view text, Side side);
std::string_view StripChars(std::string_view text, std::string_view chars, Side side);

// Python's str.splitlines().
std::vector<std::string_view> SplitLines(std::string_view text);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
// First character upper (title) case, the rest lower. Exact but for U+0149 and nine Greek vowels
// with iota subscript and accent (U+1FB2, ...), whose title form is several characters.
std::string Capitalize(std::string_view text);
// Python's str.title(): every run of letters capitalised.
std::string TitleCase(std::string_view text);

}  // namespace tandem::jinja
