// What: exp, sin/cos, and the 8-bit form of activations, on vectors of sixteen lanes.
// Not here: constants (kernels/numerics.h), primitives (simd_*-inl.h).
// Threads: pure functions.
// Invariants: the same operations in the same order as ref/math_ref.h: equal bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cpu/isa_region-inl.h"
#include TANDEM_ISA_SIMD
#include "kernels/numerics.h"

TANDEM_ISA_BEGIN
namespace tandem::TANDEM_ISA {

inline constexpr int kLanes = 16;

// The first n < 16 values; the other lanes are 0.
template <typename T>
TANDEM_INLINE Vf LoadFirst(const T* p, int n) {
  alignas(64) T all[kLanes] = {};
  for (int i = 0; i < n; ++i) all[i] = p[i];
  return Load(all);
}
// The first n <= 16 values.
template <typename T>
TANDEM_INLINE Vf LoadLanes(const T* p, int n) {
  return n == kLanes ? Load(p) : LoadFirst(p, n);
}
template <typename T>
TANDEM_INLINE void StoreFirst(T* p, Vf v, int n) {
  alignas(64) T all[kLanes];
  Store(all, v);
  for (int i = 0; i < n; ++i) p[i] = all[i];
}
// yes in lanes 0 .. n-1, no in the others.
TANDEM_INLINE Vf FirstLanes(int n, Vf yes, Vf no) {
  alignas(64) static constexpr float kIndex[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                       8, 9, 10, 11, 12, 13, 14, 15};
  return IfLess(Load(kIndex), Set1(static_cast<float>(n)), yes, no);
}

TANDEM_INLINE Vf Exp(Vf x) {
  namespace nm = numerics;
  // The bounds come first: a NaN stays.
  const Vf bounded = Max(Set1(nm::kExpMin), Min(Set1(nm::kExpMax), x));
  const Vf n = Round(Mul(bounded, Set1(nm::kLog2E)));
  Vf r = Fma(n, Set1(-nm::kLn2High), bounded);
  r = Fma(n, Set1(-nm::kLn2Low), r);
  Vf sum = Set1(nm::kExpSeries[7]);
  TANDEM_UNROLL
  for (int i = 6; i >= 0; --i) sum = Fma(sum, r, Set1(nm::kExpSeries[i]));
  const Vf power = AsFloat(ShiftLeft<23>(Add(ToInt(n), Set1(int32_t{127}))));
  return IfLess(x, Set1(nm::kExpMin), Zero(), Mul(sum, power));
}

// x / (1 + exp(-x))
TANDEM_INLINE Vf Silu(Vf x) { return Div(x, Add(Set1(1.0f), Exp(Sub(Zero(), x)))); }

struct SinCos {
  Vf sin, cos;
};
TANDEM_INLINE SinCos SinCosOfProduct(float position, Vf frequency) {
  namespace nm = numerics;
  const Vf angle = Mul(Set1(position), frequency);
  const Vf rest = Fma(Set1(position), frequency, Sub(Zero(), angle));
  const Vf n = Round(Mul(angle, Set1(nm::kTwoOverPi)));
  Vf r = Fma(n, Set1(-nm::kHalfPi[0]), angle);
  r = Fma(n, Set1(-nm::kHalfPi[1]), r);
  r = Fma(n, Set1(-nm::kHalfPi[2]), r);
  r = Add(r, rest);
  const Vf square = Mul(r, r);
  Vf s = Set1(nm::kSinSeries[3]);
  TANDEM_UNROLL
  for (int i = 2; i >= 0; --i) s = Fma(s, square, Set1(nm::kSinSeries[i]));
  s = Fma(Mul(s, square), r, r);
  Vf c = Set1(nm::kCosSeries[4]);
  TANDEM_UNROLL
  for (int i = 3; i >= 0; --i) c = Fma(c, square, Set1(nm::kCosSeries[i]));
  c = Fma(c, square, Set1(1.0f));
  // Quadrant n: sin, cos are (s, c), (c, -s), (-s, -c), (-c, s).
  const Vi quadrant = ToInt(n);
  const Vf odd = ToFloat(And(quadrant, Set1(int32_t{1})));
  const Vi sin_sign = ShiftLeft<30>(And(quadrant, Set1(int32_t{2})));
  const Vi cos_sign = ShiftLeft<30>(And(Add(quadrant, Set1(int32_t{1})), Set1(int32_t{2})));
  const Vf half = Set1(0.5f);
  return {AsFloat(Xor(AsInt(IfLess(half, odd, c, s)), sin_sign)),
          AsFloat(Xor(AsInt(IfLess(half, odd, s, c)), cos_sign))};
}

// One block of 32 values to codes, their scale and their sum.
TANDEM_INLINE void QuantizeBlock(Vf a, Vf b, int8_t* codes, float* scale, int32_t* sum) {
  const Vf limit = Set1(numerics::kMaxCode);
  const float largest = ReduceMax(Max(Abs(b), Max(Abs(a), Zero())));
  *scale = largest < numerics::kLeastMagnitude ? 0.0f : largest / numerics::kMaxCode;
  const Vf divisor = Set1(*scale == 0.0f ? 1.0f : *scale);
  const Vf lowest = Set1(-numerics::kMaxCode);
  const Vi qa = ToInt(Min(Max(Div(a, divisor), lowest), limit));
  const Vi qb = ToInt(Min(Max(Div(b, divisor), lowest), limit));
  StoreBytes(codes, qa);
  StoreBytes(codes + kLanes, qb);
  *sum = ReduceAdd(Add(qa, qb));
}

// The bits below a code of scale `scale`.
TANDEM_INLINE Vf FineOf(Vf x, float scale) {
  const Vf limit = Set1(numerics::kMaxCode), lowest = Set1(-numerics::kMaxCode);
  const Vf units = Set1(numerics::kFineUnits);
  const Vf code = Round(Min(Max(Div(x, Set1(scale)), lowest), limit));
  const Vf all = Div(x, Set1(scale / numerics::kFineUnits));
  const Vf fine =
      Sub(Round(Min(Max(all, Mul(lowest, units)), Mul(limit, units))), Mul(code, units));
  return Min(Max(fine, lowest), limit);
}

TANDEM_INLINE void RefineBlock(const float* x, float scale, int8_t* fine, int32_t* sum) {
  const Vi a = ToInt(FineOf(Load(x), scale));
  const Vi b = ToInt(FineOf(Load(x + kLanes), scale));
  StoreBytes(fine, a);
  StoreBytes(fine + kLanes, b);
  *sum = ReduceAdd(Add(a, b));
}

// Where a pass puts a run's values until EmitRun has read them: the f32 form if there is one.
struct RunBuffer {
  alignas(64) float values[numerics::kRunColumnsMax];
  float* At(const Activation& out, int64_t row, int32_t begin) {
    return out.f32 != nullptr ? out.f32 + row * out.cols + begin : values;
  }
};

// Gives a whole run of a row, `values` [count], its 8-bit form if `out` has that.
inline void EmitRun(const Activation& out, int64_t row, int32_t begin, int32_t count,
                    const float* values) {
  if (!out.has_q8()) return;
  const int64_t at = row * out.cols + begin;
  const int64_t first = at / kActivationBlock;
  const int32_t blocks = count / kActivationBlock;
  float energy = 0;
  for (int32_t b = 0; b < blocks; ++b) {
    const float* x = values + b * kActivationBlock;
    float* scale = out.q8.scales + first + b;
    QuantizeBlock(Load(x), Load(x + kLanes), out.q8.codes + at + b * kActivationBlock, scale,
                  out.q8.sums + first + b);
    energy += *scale * *scale;
  }
  const FineCodes& fine = out.q8.fine;
  if (fine.codes == nullptr) return;
  for (int32_t b = 0; b < blocks; ++b) {
    const float scale = out.q8.scales[first + b];
    const bool refined = scale * scale * static_cast<float>(blocks) > energy;
    fine.refined[first + b] = refined ? 1 : 0;
    if (!refined) continue;
    RefineBlock(values + b * kActivationBlock, scale, fine.codes + at + b * kActivationBlock,
                fine.sums + first + b);
  }
}

}  // namespace tandem::TANDEM_ISA
TANDEM_ISA_END
