#include "sched/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "core/cost.h"

namespace tandem {
namespace {

// An observation's weight halves in about 140 later ones of its kind: long enough to average the
// noise of a busy machine, short enough to follow a change of clock speed within seconds.
constexpr double kFade = 0.995;
// Of the same for the mean error.
constexpr double kErrorFade = 0.98;
// Of the overruns: a few hundred steps count, so that half a percent of them is more than one.
constexpr double kOverrunFade = 0.998;
// The promise is the 99th percentile; twice as strict, because it is learnt from few.
constexpr double kOverrunTail = 0.005;
constexpr double kOverrunClass = 1.02;
// Before steps have shown how much they scatter.
constexpr double kFirstOverrun = 1.25;
// Steps until their law predicts anything: it has three terms.
constexpr int64_t kLeastObservations = 4;
// Of what the best set of terms explains: less is rounding.
constexpr double kSame = 1e-9;
// Relative to the diagonal: keeps a system of indistinguishable terms solvable, far below noise.
constexpr double kRidge = 1e-9;

// Solves the equations of the terms in `mask` by elimination; false when one has no weight or
// comes out negative.
bool SolveSubset(const double (&a)[3][3], const std::array<double, 3>& b, int mask,
                 std::array<double, 3>* x) {
  int index[3];
  int n = 0;
  for (int i = 0; i < 3; ++i)
    if ((mask >> i) & 1) index[n++] = i;
  double m[3][4];
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) m[i][j] = a[index[i]][index[j]];
    m[i][i] *= 1 + kRidge;
    m[i][n] = b[static_cast<size_t>(index[i])];
  }
  for (int i = 0; i < n; ++i) {
    if (!(m[i][i] > 0)) return false;
    for (int k = i + 1; k < n; ++k) {
      const double f = m[k][i] / m[i][i];
      for (int j = i; j <= n; ++j) m[k][j] -= f * m[i][j];
    }
  }
  x->fill(0);
  for (int i = n - 1; i >= 0; --i) {
    double value = m[i][n];
    for (int j = i + 1; j < n; ++j) value -= m[i][j] * (*x)[static_cast<size_t>(index[j])];
    value /= m[i][i];
    if (!(value >= 0)) return false;
    (*x)[static_cast<size_t>(index[i])] = value;
  }
  return true;
}

}  // namespace

void StepTerms::AddPrefill(int64_t position, int64_t tokens) {
  prefill_tokens += tokens;
  prefill_pairs += CausalPairs(tokens, position);
}

int64_t PaddedTokens(std::span<const int32_t> prepared, int64_t tokens) {
  if (prepared.empty()) return tokens;
  const int64_t largest = prepared.back();
  const int64_t whole = tokens / largest * largest;
  const int64_t rest = tokens - whole;
  if (rest == 0) return whole;
  return whole + *std::lower_bound(prepared.begin(), prepared.end(), rest);
}

void FadingFit::Observe(double tokens, double pairs, double ns) {
  for (double& m : moments_) m *= kFade;
  for (double& t : targets_) t *= kFade;
  const double add[6] = {1, tokens, pairs, tokens * tokens, tokens * pairs, pairs * pairs};
  for (size_t i = 0; i < 6; ++i) moments_[i] += add[i];
  targets_[0] += ns;
  targets_[1] += ns * tokens;
  targets_[2] += ns * pairs;
  ++count_;
  Solve();
}

void FadingFit::Solve() {
  const auto& m = moments_;
  // Scaled to a diagonal of ones: tokens and pairs differ by orders of magnitude.
  double scale[3];
  for (size_t i = 0; i < 3; ++i) {
    const double diagonal = m[std::array<size_t, 3>{0, 3, 5}[i]];
    scale[i] = diagonal > 0 ? 1 / std::sqrt(diagonal) : 0;
  }
  double a[3][3] = {{m[0], m[1], m[2]}, {m[1], m[3], m[4]}, {m[2], m[4], m[5]}};
  std::array<double, 3> b = targets_;
  for (size_t i = 0; i < 3; ++i) {
    b[i] *= scale[i];
    for (size_t j = 0; j < 3; ++j) a[i][j] *= scale[i] * scale[j];
  }
  double best = 0;  // explained: b'x of the least-squares solution
  std::array<double, 3> best_x{};
  // Where several explain as much, the time goes with the tokens: of one step nothing else is
  // known, and a larger one that is predicted to take no longer would be a leap.
  for (int mask : {2, 1, 4, 3, 5, 6, 7}) {
    std::array<double, 3> x;
    if (!SolveSubset(a, b, mask, &x)) continue;
    const double explained = b[0] * x[0] + b[1] * x[1] + b[2] * x[2];
    if (explained <= best * (1 + kSame)) continue;
    best = explained;
    best_x = x;
  }
  cost_ = {best_x[0] * scale[0], best_x[1] * scale[1], best_x[2] * scale[2]};
}

OverrunQuantile::OverrunQuantile(double first_guess) { Observe(first_guess); }

// Class 0 is what takes no longer than predicted; the last is open.
double OverrunQuantile::UpperBound(size_t index) {
  return std::pow(kOverrunClass, static_cast<double>(index));
}

void OverrunQuantile::Observe(double ratio) {
  for (double& w : weights_) w *= kOverrunFade;
  const double index = std::ceil(std::log(ratio) / std::log(kOverrunClass) - kSame);
  weights_[static_cast<size_t>(std::clamp(index, 0.0, kClasses - 1.0))] += 1;
  total_ = total_ * kOverrunFade + 1;
  double above = 0;
  size_t i = kClasses - 1;
  for (; i > 0 && above + weights_[i] <= kOverrunTail * total_; --i) above += weights_[i];
  value_ = UpperBound(i);
}

CostModel::CostModel(std::optional<LinearCost> known, std::vector<int32_t> prepared)
    : known_(known), prepared_(std::move(prepared)), overrun_(known ? 1.0 : kFirstOverrun) {}

size_t CostModel::RowClass(int32_t rows) {
  return std::min<size_t>(kRowClasses - 1,
                          static_cast<size_t>(std::bit_width(static_cast<uint32_t>(rows - 1))));
}

const FadingFit* CostModel::DecodeFit(int32_t rows) const {
  const size_t wanted = RowClass(rows);
  for (size_t distance = 0; distance < kRowClasses; ++distance) {
    // The larger one first: it is the more cautious guess.
    if (wanted + distance < kRowClasses && !decode_[wanted + distance].empty()) {
      return &decode_[wanted + distance];
    }
    if (distance <= wanted && !decode_[wanted - distance].empty()) {
      return &decode_[wanted - distance];
    }
  }
  return nullptr;
}

std::optional<double> CostModel::Predict(const StepTerms& terms) const {
  const double tokens = Padded(terms.tokens());
  const auto pairs = static_cast<double>(terms.pairs());
  if (known_) return known_->At(tokens, pairs);
  if (terms.prefill_tokens > 0) {
    if (prefill_.empty()) return std::nullopt;
    return prefill_.cost().At(tokens, pairs);
  }
  const FadingFit* fit = terms.decode_rows > 0 ? DecodeFit(terms.decode_rows) : nullptr;
  if (fit == nullptr) return std::nullopt;
  return fit->cost().At(tokens, pairs);
}

void CostModel::Observe(const StepTerms& terms, TimeNs ns, TimeNs gap) {
  if (terms.tokens() == 0 || ns <= 0) return;
  const auto measured = static_cast<double>(ns);
  if (const std::optional<double> predicted = Predict(terms); predicted && *predicted > 0) {
    const double error = std::abs(*predicted - measured) / measured;
    error_ = observations_ == 0 ? error : kErrorFade * error_ + (1 - kErrorFade) * error;
    ++observations_;
    if (terms.prefill_tokens > 0 && terms.decode_rows > 0 &&
        (known_ || prefill_observations_ >= kLeastObservations)) {
      overrun_.Observe(static_cast<double>(std::max(ns, gap)) / *predicted);
    }
  }
  const auto pairs = static_cast<double>(terms.pairs());
  if (terms.prefill_tokens > 0) {
    ++prefill_observations_;
    most_tokens_ = std::max(most_tokens_, terms.tokens());
    prefill_.Observe(Padded(terms.tokens()), pairs, measured);
  } else {
    decode_[RowClass(terms.decode_rows)].Observe(Padded(terms.tokens()), pairs, measured);
  }
}

int32_t CostModel::LargestChunk(const StepTerms& terms, int64_t history, int32_t most,
                                double limit_ns) const {
  const int64_t trusted = TrustedTokens() - terms.tokens();
  int32_t fits = 0;
  auto beyond = static_cast<int32_t>(std::clamp<int64_t>(trusted, 0, most)) + 1;
  while (beyond - fits > 1) {
    const int32_t chunk = fits + (beyond - fits) / 2;
    StepTerms with = terms;
    with.AddPrefill(history, chunk);
    const std::optional<double> ns = Predict(with);
    (ns && *ns <= limit_ns ? fits : beyond) = chunk;
  }
  return fits;
}

int64_t CostModel::TrustedTokens() const {
  if (known_) return INT64_MAX / 2;
  return std::max<int64_t>(kLeastTrusted, 2 * most_tokens_);
}

}  // namespace tandem
