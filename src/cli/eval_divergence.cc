#include "cli/eval_divergence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tandem {
namespace {

double LogSumExp(std::span<const float> x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value) - most);
  return most + std::log(sum);
}

}  // namespace

void Divergence::Add(std::span<const float> reference, std::span<const float> logits) {
  TANDEM_CHECK(!reference.empty());
  TANDEM_CHECK_EQ(reference.size(), logits.size());
  const double norm_p = LogSumExp(reference);
  const double norm_q = LogSumExp(logits);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - norm_p;
    const double log_q = static_cast<double>(logits[i]) - norm_q;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  kl_.push_back(kl);
  const auto top_p = std::max_element(reference.begin(), reference.end()) - reference.begin();
  const auto top_q = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (top_p == top_q) ++same_top1_;
}

double Divergence::MeanKl() const {
  TANDEM_CHECK(!kl_.empty());
  return std::accumulate(kl_.begin(), kl_.end(), 0.0) / static_cast<double>(kl_.size());
}

double Divergence::P99Kl() const {
  TANDEM_CHECK(!kl_.empty());
  std::vector<double> sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() * 99 / 100];
}

double Divergence::Top1() const {
  TANDEM_CHECK(!kl_.empty());
  return static_cast<double>(same_top1_) / static_cast<double>(kl_.size());
}

}  // namespace tandem
