// What: WideInt: a 128-bit integer for totals such as bytes * ns, which soon pass 64 bits, and its
//   decimal text.
// Not here: arithmetic: the compiler has it.
// Threads: values.
#pragma once

#include <algorithm>
#include <string>

namespace tandem {

__extension__ using WideInt = __int128;

// Requires value >= 0.
inline std::string ToDecimal(WideInt value) {
  std::string digits;
  do {
    digits += static_cast<char>('0' + static_cast<int>(value % 10));
    value /= 10;
  } while (value > 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

}  // namespace tandem
