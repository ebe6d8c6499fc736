// What: TANDEM_ISA_BEGIN and TANDEM_ISA_END, between which functions are compiled for the
//   instruction set of the including source file: namespace TANDEM_ISA, target TANDEM_ISA_TARGET
//   (none: the compiler's own), primitives in TANDEM_ISA_SIMD; and the macros of such a region.
// Not here: which instruction sets exist (isa.cc).
// Threads: none.
// Invariants: a region holds no #include: inline functions of the system and of other modules must
//   keep the plain target, because the linker keeps one copy for all callers. No lambdas, which do
//   not take over the target.
#pragma once

#if !defined(TANDEM_ISA_TARGET)
#define TANDEM_ISA_BEGIN
#define TANDEM_ISA_END
#elif defined(__clang__)
#define TANDEM_ISA_PRAGMA(x) _Pragma(#x)
#define TANDEM_ISA_PUSH(isa) \
  TANDEM_ISA_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define TANDEM_ISA_BEGIN TANDEM_ISA_PUSH(TANDEM_ISA_TARGET)
#define TANDEM_ISA_END _Pragma("clang attribute pop")
#else
#define TANDEM_ISA_PRAGMA(x) _Pragma(#x)
#define TANDEM_ISA_PUSH(isa) _Pragma("GCC push_options") TANDEM_ISA_PRAGMA(GCC target(isa))
#define TANDEM_ISA_BEGIN TANDEM_ISA_PUSH(TANDEM_ISA_TARGET)
#define TANDEM_ISA_END _Pragma("GCC pop_options")
#endif

#define TANDEM_INLINE [[gnu::always_inline]] inline

// Before a loop of constant length over registers: unrolled whole, so that they stay registers.
#if defined(__clang__)
#define TANDEM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TANDEM_UNROLL _Pragma("GCC unroll 32")
#endif
