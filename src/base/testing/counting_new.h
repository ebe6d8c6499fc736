// What: an operator new that counts its calls on the threads that ask for it, for tests that show
//   that a steady-state step allocates nothing. Include it in one source of a test binary.
// Not here: which steps are steady (the tests).
// Threads: each thread counts for itself.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace tandem::testing {

inline thread_local bool counting = false;  // calls on this thread count
inline thread_local int64_t allocations = 0;

}  // namespace tandem::testing

// Not inlined: gcc would compare a visible free() with an operator new that it does not see.
[[gnu::noinline]] void* operator new(size_t size) {
  if (tandem::testing::counting) ++tandem::testing::allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks like this.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (tandem::testing::counting) ++tandem::testing::allocations;
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
