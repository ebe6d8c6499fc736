// What: random numbers that others must not be able to guess: keys, engine numbers.
// Not here: random numbers that must repeat (base/rng.h).
// Threads: any.
#pragma once

#include <cstdint>

namespace tandem {

// 64 bits from the operating system; never 0. Aborts when the system has none.
uint64_t SecretUint64();

}  // namespace tandem
