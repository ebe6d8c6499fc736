// What: checks of flags' values; a refusal says what is allowed.
// Not here: the flags (options.h).
// Threads: pure.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// A decimal whole number in [low, high].
CLI::Validator WholeNumber(int64_t low, int64_t high);
// A decimal number in [low, high].
CLI::Validator DecimalNumber(double low, double high);
// One of `names`; a slip is answered with the one that was meant.
CLI::Validator OneOf(std::vector<std::string> names);
// Bytes as ParseBytes takes them.
CLI::Validator ByteSize();

}  // namespace tandem
