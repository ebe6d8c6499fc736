// What: opens a region whose functions are compiled for TANDEM_ISA_TARGET (nothing when it is not
//   defined), and the macros of such a region. isa_end-inl.h closes it. No #pragma once: each -inl.h
//   of a kernel includes the pair around its body.
// Not here: which instruction sets exist (isa.cc).
// Threads: none.
// Invariants: headers of the system and of other modules are included before the region: their
//   inline functions must keep the plain target, because the linker keeps one copy for all callers.
#if defined(TANDEM_ISA_TARGET)
#if defined(__clang__)
#define TANDEM_ISA_PRAGMA_TEXT(x) _Pragma(#x)
#define TANDEM_ISA_PRAGMA(target_text) \
  TANDEM_ISA_PRAGMA_TEXT(clang attribute push(__attribute__((target(target_text))), apply_to = function))
TANDEM_ISA_PRAGMA(TANDEM_ISA_TARGET)
#else
#define TANDEM_ISA_PRAGMA_TEXT(x) _Pragma(#x)
#define TANDEM_ISA_PRAGMA(target_text) TANDEM_ISA_PRAGMA_TEXT(GCC target(target_text))
#pragma GCC push_options
TANDEM_ISA_PRAGMA(TANDEM_ISA_TARGET)
#endif
#endif

#define TANDEM_INLINE [[gnu::always_inline]] inline
#if defined(__clang__)
#define TANDEM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TANDEM_UNROLL _Pragma("GCC unroll 32")
#endif
