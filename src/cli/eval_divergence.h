// What: Divergence: how far one way of computing a model's logits is from another.
// Not here: computing them (eval_model.h).
// Threads: one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem {

// Over the positions added so far; the figures require at least one.
class Divergence {
 public:
  // The logits of one position: those that count as right, and the others, of the same tokens.
  void Add(std::span<const float> reference, std::span<const float> logits);

  size_t positions() const { return kl_.size(); }
  // Of the Kullback-Leibler divergence of the reference from the other, in nats.
  double MeanKl() const;
  double P99Kl() const;
  // Share of positions with the same most likely token.
  double Top1() const;

 private:
  std::vector<double> kl_;  // per position
  size_t same_top1_ = 0;
};

}  // namespace tandem
