// What: EscapeText: a file's bytes made safe to print: a terminal or a log line cannot be driven by
//   a model file.
// Not here: JSON.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// Control characters, backslashes and bytes that are not UTF-8 become \n, \t, \\ or \xNN; what
// would make the text longer than about `max_bytes` is cut, never inside a character, and "..." put
// there.
std::string EscapeText(std::string_view text, size_t max_bytes);

}  // namespace tandem
