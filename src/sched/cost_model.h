// What: CostModel: how long a step will take, from what it does. One linear law for steps with
//   prompt tokens, T = base + a * tokens + c * pairs, and one such law per power of two of rows for
//   steps of decode rows alone: a table over rows and bytes read (spec P1b). Given beforehand, or
//   learnt from the steps as they complete.
// Not here: bytes and operations (core/cost.h), what follows from a prediction (scheduler.h).
// Threads: the engine's thread. A function of the observations in their order and of nothing else,
//   so that a replay learns the same.
// Invariants: no coefficient is negative. Nothing is a constant of one machine: before the first
//   observation nothing is predicted, and what lies far beyond the observed is not either
//   (TrustedTokens).
// Cost: Observe below 1 us, a prediction some ns, nothing is allocated after construction.
// Based on: exponentially weighted least squares; non-negative solutions by trying every subset of
//   the three terms; the margin is a quantile of a fading histogram.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace tandem {

struct LinearCost {
  double base_ns = 0;   // once per step
  double token_ns = 0;  // per token that the step runs
  double pair_ns = 0;   // per (query, key) pair
  double At(double tokens, double pairs) const {
    return base_ns + token_ns * tokens + pair_ns * pairs;
  }
};

// What a step does, as far as time is concerned.
struct StepTerms {
  int32_t decode_rows = 0;
  int64_t decode_pairs = 0;  // contexts read by the decode rows, in tokens
  int64_t prefill_tokens = 0;
  int64_t prefill_pairs = 0;

  void AddDecode(int64_t position) {
    ++decode_rows;
    decode_pairs += position + 1;
  }
  void AddPrefill(int64_t position, int64_t tokens);
  int64_t tokens() const { return decode_rows + prefill_tokens; }
  int64_t pairs() const { return decode_pairs + prefill_pairs; }
};

// The smallest of `prepared` (ascending) that holds `tokens`. Beyond the largest a step is cut into
// steps of that many, the last of them padded like any other. `tokens` when none is prepared.
int64_t PaddedTokens(std::span<const int32_t> prepared, int64_t tokens);

// Least squares over (1, tokens, pairs) with weights that fade with age.
class FadingFit {
 public:
  void Observe(double tokens, double pairs, double ns);
  bool empty() const { return count_ == 0; }
  const LinearCost& cost() const { return cost_; }

 private:
  void Solve();

  std::array<double, 6> moments_{};  // of 1, t, p: 11 1t 1p tt tp pp
  std::array<double, 3> targets_{};  // of ns with 1, t, p
  int64_t count_ = 0;
  LinearCost cost_;
};

// How much longer than predicted steps take: all but the slowest of them, the older ones fading.
class OverrunQuantile {
 public:
  // `first_guess` counts as one observation.
  explicit OverrunQuantile(double first_guess);
  void Observe(double ratio);
  // Exceeded by half a percent of the observations; while that is less than one of them, by none.
  // At least 1, at most 4: what takes even longer says nothing about the step.
  double value() const { return value_; }

 private:
  static constexpr size_t kClasses = 72;
  static double UpperBound(size_t index);

  std::array<double, kClasses> weights_{};
  double total_ = 0;
  double value_ = 1;
};

class CostModel {
 public:
  // `known`: the law for all steps, which is then not learnt. `prepared`: see SchedulerConfig.
  CostModel(std::optional<LinearCost> known, std::vector<int32_t> prepared);

  // A step took `ns`, and ended `gap` after the one before it: that long its decode rows waited for
  // a token, what lies between two steps included.
  void Observe(const StepTerms& terms, TimeNs ns, TimeNs gap);

  // None before a step of the kind (with or without prompt tokens) has been observed.
  std::optional<double> Predict(const StepTerms& terms) const;

  // The most tokens, at most `most`, of a prompt's chunk behind `history` tokens with which the
  // step `terms` takes no longer than `limit_ns`. 0 when none fits or nothing is known.
  int32_t LargestChunk(const StepTerms& terms, int64_t history, int32_t most,
                       double limit_ns) const;

  // Steps of up to so many tokens may be predicted: twice the most that were observed, so that a
  // wrong first guess is found out by a small step. At least kLeastTrusted.
  int64_t TrustedTokens() const;

  // How much longer than predicted the gaps of steps with prompt and decode rows are, but for the
  // slowest: a step that is predicted to take target / Overrun() exceeds the target less than once
  // in a hundred times. A guess on the safe side before steps have shown it.
  double Overrun() const { return overrun_.value(); }

  // The laws for people: with prompt tokens, and of decode rounds of about `rows` rows.
  LinearCost prefill() const { return known_.value_or(prefill_.cost()); }
  // Mean of |predicted - measured| / measured, fading with age.
  double error() const { return error_; }
  int64_t observations() const { return observations_; }

 private:
  static constexpr int32_t kLeastTrusted = 16;
  static constexpr size_t kRowClasses = 25;  // powers of two up to 2^24 rows
  static size_t RowClass(int32_t rows);
  // The law of decode rounds: of the row class, or of the nearest one observed.
  const FadingFit* DecodeFit(int32_t rows) const;
  double Padded(int64_t tokens) const {
    return static_cast<double>(PaddedTokens(prepared_, tokens));
  }

  const std::optional<LinearCost> known_;
  const std::vector<int32_t> prepared_;
  FadingFit prefill_;
  std::array<FadingFit, kRowClasses> decode_;
  int64_t most_tokens_ = 0;  // of an observed step
  int64_t prefill_observations_ = 0;
  OverrunQuantile overrun_;
  double error_ = 0;
  int64_t observations_ = 0;
};

}  // namespace tandem
