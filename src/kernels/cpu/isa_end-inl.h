// What: closes the region that isa_begin-inl.h opened.
// Not here: anything else.
// Threads: none.
#undef TANDEM_INLINE
#undef TANDEM_UNROLL
#if defined(TANDEM_ISA_TARGET)
#undef TANDEM_ISA_PRAGMA
#undef TANDEM_ISA_PRAGMA_TEXT
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
