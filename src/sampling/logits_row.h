// What: LogitsRow: one row of logits, summarised in runs of neighbouring ids so that most ids are
//   looked at once; the weights, sums and orders that sampling and log probabilities are made of.
// Not here: which token is chosen (sampling.cc), what is reported (logprobs.h).
// Threads: values; a row reads its logits and never writes them.
// Invariants: every result is a function of the logits alone. Sums have one fixed order; the order
//   of tokens is that of falling logits, equal ones (also 0 and -0) by rising id, NaN last.
// Cost: about 50 KiB, no allocation.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

namespace tandem {

// Four lanes, in the compilers' own vector type: they do not vectorise WeightsOf by themselves.
using F4 = float __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));

// exp(x) for x <= 0, without fma: the same bits on every machine. Relative error below 3e-7; below
// -87, and for NaN, 0.
inline F4 WeightsOf(F4 x) {
  constexpr F4 kLowest = {-87.0f, -87.0f, -87.0f, -87.0f};
  constexpr float kRound = 0x1.8p23f;  // adding and subtracting it rounds to an integer
  const I4 counts = x >= kLowest;
  const auto bounded = reinterpret_cast<F4>((reinterpret_cast<I4>(x) & counts) |
                                            (reinterpret_cast<I4>(kLowest) & ~counts));
  const F4 n = (bounded * 0x1.715476p+0f + kRound) - kRound;
  const F4 r = (bounded - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  F4 sum = r * (1.0f / 5040) + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const auto power = reinterpret_cast<F4>((__builtin_convertvector(n, I4) + 127) << 23);
  return reinterpret_cast<F4>(reinterpret_cast<I4>(sum * power) & counts);
}

// Ascending keys are the order of tokens, but for their ids.
inline uint32_t KeyOf(float logit) {
  if (logit != logit) return ~0u;
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000u);
}

class LogitsRow {
 public:
  // Of `size` > 0 ids. `logits` must outlive the row.
  LogitsRow(const float* logits, int32_t size);

  int32_t size() const { return size_; }
  // Of no logit but NaN, -infinity.
  float max() const { return max_; }
  uint32_t Key(int32_t id) const { return KeyOf(logits_[id]); }
  // The first token in order, which has the largest logit; of no logit but NaN, 0.
  int32_t First() const;

  // The weights are exp((logit - max) / temperature), at first with temperature 1. They require a
  // finite maximum and temperature > 0.
  void SetTemperature(double temperature);
  float Weight(int32_t id) const {
    const F4 x = {Exponent(logits_[id])};
    return WeightsOf(x)[0];
  }
  // Computes the weights of all ids; the sum is in the order of runs.
  double TotalMass();
  // The id where the sum of weights, in the order of ids, passes `target`. After TotalMass.
  int32_t Draw(double target) const;

  // From now on an id is kept whose weight is at least `share` (0 .. 1) of the largest one.
  void SetLeastShare(double share);
  bool Kept(int32_t id) const { return Exponent(logits_[id]) >= least_exponent_; }

  // At least the `count` first ids in order, and all that equal or exceed the least of them, in
  // ascending order; false when `out` is too small or the summary too coarse to tell.
  bool Largest(int32_t count, std::span<int32_t> out, int32_t* out_size) const;
  // The ids that are kept, in ascending order; false when `out` is too small.
  bool AllKept(std::span<int32_t> out, int32_t* out_size) const;
  // The first min(out.size(), size()) tokens in order; returns how many.
  int32_t Best(std::span<int32_t> out) const;
  // The place of `id` in the order, from 1.
  int32_t Rank(int32_t id) const;

 private:
  static constexpr int32_t kPiece = 64;
  static constexpr int32_t kRunsMax = 4096;
  static constexpr int32_t kSums = 16;  // independent, so that they are a vector's lanes

  int32_t EndOf(int32_t run) const {
    const int32_t end = (run + 1) * run_;
    return end < size_ ? end : size_;
  }
  // Rises with the logit, also after rounding.
  float Exponent(float logit) const { return (logit - max_) * scale_; }
  static float MaxOf(const float* x, int32_t count);
  // Sum of the weights of ids [begin, begin + count), count <= kPiece.
  double PieceMass(int32_t begin, int32_t count) const;
  // The ids whose logits satisfy `reaches`, which must hold for all logits above one that does.
  template <typename Reaches>
  bool List(const Reaches& reaches, std::span<int32_t> out, int32_t* out_size) const;

  const float* logits_;
  int32_t size_;
  int32_t run_ = kPiece;
  int32_t num_runs_ = 0;
  float max_ = -std::numeric_limits<float>::infinity();
  float scale_ = 1.0f;
  float least_exponent_ = -std::numeric_limits<float>::infinity();
  std::array<float, kRunsMax> run_max_;
  std::array<double, kRunsMax> run_mass_;
};

}  // namespace tandem
