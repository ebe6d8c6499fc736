#include "kernels/probe_kernels.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tandem::internal {
namespace {

// Keeps `x` in a register: the compiler can neither reorder it into fewer operations nor drop it.
#define TANDEM_PROBE_KEEP(x) asm volatile("" : "+r"(x))

uint64_t ReadScalar(std::span<const std::byte> bytes) {
  const size_t stream_words = bytes.size() / 4 / sizeof(uint64_t);
  const auto* s0 = reinterpret_cast<const uint64_t*>(bytes.data());
  const uint64_t* s1 = s0 + stream_words;
  const uint64_t* s2 = s1 + stream_words;
  const uint64_t* s3 = s2 + stream_words;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint64_t d = 0;
  for (size_t i = 0; i < stream_words; ++i) {
    a |= s0[i];
    b |= s1[i];
    c |= s2[i];
    d |= s3[i];
    TANDEM_PROBE_KEEP(a);
  }
  return a | b | c | d;
}

#if defined(__x86_64__)

// How far ahead of a stream's loads its lines are asked for: a memory latency of about 100 ns at
// the few GB/s of one of four streams, and less than what would fall out of the first-level cache.
constexpr ptrdiff_t kPrefetchBytes = 2048;

#define TANDEM_TARGET(isa) __attribute__((target(isa)))
#define TANDEM_PREFETCH(p) \
  _mm_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes, _MM_HINT_T0)

// Four lines of one stream. Written out: gcc does not unroll a loop of four.
TANDEM_TARGET("avx512f")
inline __m512i Line512(const std::byte* p, __m512i sum) {
  TANDEM_PREFETCH(p);
  return _mm512_or_si512(sum, _mm512_load_si512(p));
}
TANDEM_TARGET("avx512f")
inline __m512i FourLines512(const std::byte* p, __m512i sum) {
  return Line512(p + 192, Line512(p + 128, Line512(p + 64, Line512(p, sum))));
}

TANDEM_TARGET("avx512f")
uint64_t ReadAvx512(std::span<const std::byte> bytes) {
  const size_t stream_bytes = bytes.size() / 4;
  const std::byte* p = bytes.data();
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  for (size_t i = 0; i < stream_bytes; i += 256) {
    a = FourLines512(p + i, a);
    b = FourLines512(p + stream_bytes + i, b);
    c = FourLines512(p + 2 * stream_bytes + i, c);
    d = FourLines512(p + 3 * stream_bytes + i, d);
  }
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
  return words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7];
}

TANDEM_TARGET("avx2")
inline __m256i Line256(const std::byte* p, __m256i sum) {
  TANDEM_PREFETCH(p);
  const auto* v = reinterpret_cast<const __m256i*>(p);
  return _mm256_or_si256(sum, _mm256_or_si256(_mm256_load_si256(v), _mm256_load_si256(v + 1)));
}
TANDEM_TARGET("avx2")
inline __m256i FourLines256(const std::byte* p, __m256i sum) {
  return Line256(p + 192, Line256(p + 128, Line256(p + 64, Line256(p, sum))));
}

TANDEM_TARGET("avx2")
uint64_t ReadAvx2(std::span<const std::byte> bytes) {
  const size_t stream_bytes = bytes.size() / 4;
  const std::byte* p = bytes.data();
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  __m256i c = a;
  __m256i d = a;
  for (size_t i = 0; i < stream_bytes; i += 256) {
    a = FourLines256(p + i, a);
    b = FourLines256(p + stream_bytes + i, b);
    c = FourLines256(p + 2 * stream_bytes + i, c);
    d = FourLines256(p + 3 * stream_bytes + i, d);
  }
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words),
                     _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)));
  return words[0] | words[1] | words[2] | words[3];
}

// A function that runs `instruction` on twelve accumulators per iteration. Twelve cover a latency
// of six cycles at two instructions a cycle, the most that any processor here needs, and leave
// the AVX2 registers for the operands. One statement of 26 operands: compilers allow 30.
#define TANDEM_PROBE_LINE(instruction, i) instruction " %12, %13, %" #i "\n\t"
#define TANDEM_DEFINE_COMPUTE(Name, isa, Vector, broadcast, instruction)                           \
  TANDEM_TARGET(isa)                                                                               \
  void Name(int64_t iterations, uint32_t a_bits, uint32_t b_bits, std::byte* out) {                \
    const Vector a = broadcast(static_cast<int>(a_bits));                                          \
    const Vector b = broadcast(static_cast<int>(b_bits));                                          \
    Vector c0 = {}, c1 = {}, c2 = {}, c3 = {}, c4 = {}, c5 = {};                                   \
    Vector c6 = {}, c7 = {}, c8 = {}, c9 = {}, c10 = {}, c11 = {};                                 \
    for (int64_t i = 0; i < iterations; ++i) {                                                     \
      asm volatile(TANDEM_PROBE_LINE(instruction, 0) TANDEM_PROBE_LINE(instruction, 1)             \
                       TANDEM_PROBE_LINE(instruction, 2) TANDEM_PROBE_LINE(instruction, 3)         \
                           TANDEM_PROBE_LINE(instruction, 4) TANDEM_PROBE_LINE(instruction, 5)     \
                               TANDEM_PROBE_LINE(instruction, 6) TANDEM_PROBE_LINE(instruction, 7) \
                                   TANDEM_PROBE_LINE(instruction, 8) TANDEM_PROBE_LINE(            \
                                       instruction, 9) TANDEM_PROBE_LINE(instruction, 10)          \
                                       TANDEM_PROBE_LINE(instruction, 11)                          \
                   : "+v"(c0), "+v"(c1), "+v"(c2), "+v"(c3), "+v"(c4), "+v"(c5), "+v"(c6),         \
                     "+v"(c7), "+v"(c8), "+v"(c9), "+v"(c10), "+v"(c11)                            \
                   : "v"(a), "v"(b));                                                              \
    }                                                                                              \
    const Vector all[kMaxAccumulators] = {c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11};       \
    for (size_t i = 0; i < kMaxAccumulators; ++i) {                                                \
      std::memcpy(out + i * kVectorBytes, &all[i], sizeof(Vector));                                \
    }                                                                                              \
  }

TANDEM_DEFINE_COMPUTE(Fp32Avx512, "avx512f", __m512i, _mm512_set1_epi32, "vfmadd231ps")
TANDEM_DEFINE_COMPUTE(Fp16Avx512, "avx512f", __m512i, _mm512_set1_epi32, "vfmadd231ph")
TANDEM_DEFINE_COMPUTE(Bf16Avx512, "avx512f", __m512i, _mm512_set1_epi32, "vdpbf16ps")
TANDEM_DEFINE_COMPUTE(Int8Avx512, "avx512f", __m512i, _mm512_set1_epi32, "vpdpbusd")
TANDEM_DEFINE_COMPUTE(Fp32Avx2, "avx2,fma", __m256i, _mm256_set1_epi32, "vfmadd231ps")
#undef TANDEM_DEFINE_COMPUTE
#undef TANDEM_PROBE_LINE

// Without a dot instruction: bytes to pairs of 16 bits, to 32 bits, and an addition.
constexpr int kMaddubsAccumulators = 8;
#define TANDEM_PROBE_MADDUBS(i) \
  "vpmaddubsw %10, %9, %8\n\t"  \
  "vpmaddwd %11, %8, %8\n\t"    \
  "vpaddd %8, %" #i ", %" #i "\n\t"
TANDEM_TARGET("avx2")
void Int8Avx2(int64_t iterations, uint32_t a_bits, uint32_t b_bits, std::byte* out) {
  const __m256i a = _mm256_set1_epi32(static_cast<int>(a_bits));
  const __m256i b = _mm256_set1_epi32(static_cast<int>(b_bits));
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i c0 = {}, c1 = {}, c2 = {}, c3 = {}, c4 = {}, c5 = {}, c6 = {}, c7 = {};
  for (int64_t i = 0; i < iterations; ++i) {
    __m256i t;
    asm volatile(TANDEM_PROBE_MADDUBS(0) TANDEM_PROBE_MADDUBS(1) TANDEM_PROBE_MADDUBS(2)
                     TANDEM_PROBE_MADDUBS(3) TANDEM_PROBE_MADDUBS(4) TANDEM_PROBE_MADDUBS(5)
                         TANDEM_PROBE_MADDUBS(6) TANDEM_PROBE_MADDUBS(7)
                 : "+x"(c0), "+x"(c1), "+x"(c2), "+x"(c3), "+x"(c4), "+x"(c5), "+x"(c6), "+x"(c7),
                   "=&x"(t)
                 : "x"(a), "x"(b), "x"(ones));
  }
  const __m256i all[kMaddubsAccumulators] = {c0, c1, c2, c3, c4, c5, c6, c7};
  for (size_t i = 0; i < kMaddubsAccumulators; ++i) {
    std::memcpy(out + i * kVectorBytes, &all[i], sizeof(__m256i));
  }
}
#undef TANDEM_PROBE_MADDUBS

// Of every x86-64 processor: a multiplication and an addition.
constexpr int kSseAccumulators = 8;
#define TANDEM_PROBE_MULADD(i) \
  "movaps %9, %8\n\t"          \
  "mulps %10, %8\n\t"          \
  "addps %8, %" #i "\n\t"
void Fp32Sse(int64_t iterations, uint32_t a_bits, uint32_t b_bits, std::byte* out) {
  const __m128i a = _mm_set1_epi32(static_cast<int>(a_bits));
  const __m128i b = _mm_set1_epi32(static_cast<int>(b_bits));
  __m128i c0 = {}, c1 = {}, c2 = {}, c3 = {}, c4 = {}, c5 = {}, c6 = {}, c7 = {};
  for (int64_t i = 0; i < iterations; ++i) {
    __m128i t;
    asm volatile(TANDEM_PROBE_MULADD(0) TANDEM_PROBE_MULADD(1) TANDEM_PROBE_MULADD(2)
                     TANDEM_PROBE_MULADD(3) TANDEM_PROBE_MULADD(4) TANDEM_PROBE_MULADD(5)
                         TANDEM_PROBE_MULADD(6) TANDEM_PROBE_MULADD(7)
                 : "+x"(c0), "+x"(c1), "+x"(c2), "+x"(c3), "+x"(c4), "+x"(c5), "+x"(c6), "+x"(c7),
                   "=&x"(t)
                 : "x"(a), "x"(b));
  }
  const __m128i all[kSseAccumulators] = {c0, c1, c2, c3, c4, c5, c6, c7};
  for (size_t i = 0; i < kSseAccumulators; ++i) {
    std::memcpy(out + i * kVectorBytes, &all[i], sizeof(__m128i));
  }
}
#undef TANDEM_PROBE_MULADD

bool HasAvx512() { return __builtin_cpu_supports("avx512f"); }
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// Bit `bit` of register `reg` (0 = eax ... 3 = edx) of leaf 7, where the compilers' own test has
// no name for it. A system that keeps AVX-512's registers keeps those of these extensions.
bool HasLeaf7(unsigned subleaf, int reg, int bit) {
  unsigned regs[4] = {};
  if (__get_cpuid_count(7, subleaf, &regs[0], &regs[1], &regs[2], &regs[3]) == 0) return false;
  return HasAvx512() && ((regs[reg] >> bit) & 1u) != 0;
}
bool HasAvx512Fp16() { return HasLeaf7(0, 3, 23); }
bool HasAvx512Bf16() { return HasLeaf7(1, 0, 5); }
bool HasAvx512Vnni() { return HasLeaf7(0, 2, 11); }

constexpr uint32_t kOneF32 = std::bit_cast<uint32_t>(1.0f);
constexpr uint32_t kOneF16x2 = 0x3c003c00;
constexpr uint32_t kOneBf16x2 = 0x3f803f80;
constexpr uint32_t kOneI8x4 = 0x01010101;

#endif  // __x86_64__

}  // namespace

std::vector<ReadKernel> ReadKernels() {
  std::vector<ReadKernel> kernels;
#if defined(__x86_64__)
  if (HasAvx512()) kernels.push_back({"avx512", ReadAvx512});
  if (HasAvx2()) kernels.push_back({"avx2", ReadAvx2});
#endif
  kernels.push_back({"scalar", ReadScalar});
  return kernels;
}

std::vector<ComputeKernel> ComputeKernels([[maybe_unused]] ComputeKind kind) {
  std::vector<ComputeKernel> kernels;
#if defined(__x86_64__)
  switch (kind) {
    case ComputeKind::kFp32:
      if (HasAvx512()) {
        kernels.push_back(
            {"vfmadd231ps zmm", 2 * 12 * 16, 12, 4, false, 1, kOneF32, kOneF32, Fp32Avx512});
      }
      if (HasAvx2()) {
        kernels.push_back(
            {"vfmadd231ps ymm", 2 * 12 * 8, 12, 4, false, 1, kOneF32, kOneF32, Fp32Avx2});
      }
      kernels.push_back(
          {"mulps+addps xmm", 2 * 8 * 4, kSseAccumulators, 4, false, 1, kOneF32, kOneF32, Fp32Sse});
      break;
    case ComputeKind::kFp16:
      if (HasAvx512Fp16()) {
        kernels.push_back(
            {"vfmadd231ph zmm", 2 * 12 * 32, 12, 2, false, 1, kOneF16x2, kOneF16x2, Fp16Avx512});
      }
      break;
    case ComputeKind::kBf16:
      if (HasAvx512Bf16()) {
        kernels.push_back(
            {"vdpbf16ps zmm", 2 * 12 * 32, 12, 4, false, 2, kOneBf16x2, kOneBf16x2, Bf16Avx512});
      }
      break;
    case ComputeKind::kInt8:
      if (HasAvx512Vnni()) {
        kernels.push_back(
            {"vpdpbusd zmm", 2 * 12 * 64, 12, 4, true, 4, kOneI8x4, kOneI8x4, Int8Avx512});
      }
      if (HasAvx2()) {
        kernels.push_back({"vpmaddubsw ymm", 2 * 8 * 32, kMaddubsAccumulators, 4, true, 4, kOneI8x4,
                           kOneI8x4, Int8Avx2});
      }
      break;
  }
#endif
  return kernels;
}

}  // namespace tandem::internal
