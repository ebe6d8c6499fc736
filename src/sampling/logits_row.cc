#include "sampling/logits_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace tandem {

LogitsRow::LogitsRow(const float* logits, int32_t size) : logits_(logits), size_(size) {
  constexpr int32_t kLargest = kRunsMax * kPiece;
  run_ = kPiece * ((size + kLargest - 1) / kLargest);
  num_runs_ = (size + run_ - 1) / run_;
  for (int32_t r = 0; r < num_runs_; ++r) {
    run_max_[static_cast<size_t>(r)] = MaxOf(logits + r * run_, EndOf(r) - r * run_);
    max_ = std::max(max_, run_max_[static_cast<size_t>(r)]);
  }
}

int32_t LogitsRow::First() const {
  for (int32_t r = 0; r < num_runs_; ++r) {
    if (run_max_[static_cast<size_t>(r)] != max_) continue;
    for (int32_t id = r * run_; id < EndOf(r); ++id) {
      if (logits_[id] == max_) return id;
    }
  }
  return 0;
}

void LogitsRow::SetTemperature(double temperature) {
  // A tiny temperature must not make 0 * infinity of the largest logit.
  scale_ = static_cast<float>(
      std::min(1.0 / temperature, static_cast<double>(std::numeric_limits<float>::max())));
}

double LogitsRow::TotalMass() {
  double all = 0;
  for (int32_t r = 0; r < num_runs_; ++r) {
    double mass = 0;
    for (int32_t id = r * run_; id < EndOf(r); id += kPiece) {
      mass += PieceMass(id, std::min(kPiece, EndOf(r) - id));
    }
    run_mass_[static_cast<size_t>(r)] = mass;
    all += mass;
  }
  return all;
}

int32_t LogitsRow::Draw(double target) const {
  double sum = 0;
  int32_t last = First();
  for (int32_t r = 0; r < num_runs_; ++r) {
    const double mass = run_mass_[static_cast<size_t>(r)];
    if (sum + mass <= target) {
      sum += mass;
      continue;
    }
    double inside = sum;
    for (int32_t id = r * run_; id < EndOf(r); ++id) {
      const float weight = Weight(id);
      if (weight == 0) continue;
      last = id;
      inside += weight;
      if (inside > target) return id;
    }
    return last;  // rounding: the run's sum in another order was larger
  }
  return last;
}

void LogitsRow::SetLeastShare(double share) {
  least_exponent_ = static_cast<float>(std::log(share));
}

template <typename Reaches>
bool LogitsRow::List(const Reaches& reaches, std::span<int32_t> out, int32_t* out_size) const {
  size_t found = 0;
  for (int32_t r = 0; r < num_runs_; ++r) {
    if (!reaches(run_max_[static_cast<size_t>(r)])) continue;
    for (int32_t id = r * run_; id < EndOf(r); ++id) {
      if (!reaches(logits_[id])) continue;
      if (found == out.size()) return false;
      out[found++] = id;
    }
  }
  *out_size = static_cast<int32_t>(found);
  return true;
}

bool LogitsRow::Largest(int32_t count, std::span<int32_t> out, int32_t* out_size) const {
  if (count > num_runs_) return false;
  std::array<float, kRunsMax> sorted;
  std::copy_n(run_max_.begin(), num_runs_, sorted.begin());
  const auto nth = sorted.begin() + (count - 1);
  std::nth_element(sorted.begin(), nth, sorted.begin() + num_runs_, std::greater<>());
  const float least = *nth;  // each of `count` runs has an id that reaches it
  return List([least](float logit) { return logit >= least; }, out, out_size);
}

bool LogitsRow::AllKept(std::span<int32_t> out, int32_t* out_size) const {
  return List([this](float logit) { return Exponent(logit) >= least_exponent_; }, out, out_size);
}

int32_t LogitsRow::Best(std::span<int32_t> out) const {
  const size_t wanted = std::min(out.size(), static_cast<size_t>(size_));
  size_t found = 0;
  // Ids rise, so one that equals the last of a full list comes behind it.
  const auto enters = [&](uint32_t key) { return found < wanted || key < Key(out[found - 1]); };
  if (wanted == 0) return 0;
  for (int32_t r = 0; r < num_runs_; ++r) {
    // A run of NaN has the maximum -infinity; it may be all that is left.
    if (!enters(KeyOf(run_max_[static_cast<size_t>(r)]))) continue;
    for (int32_t id = r * run_; id < EndOf(r); ++id) {
      const uint32_t key = Key(id);
      if (!enters(key)) continue;
      size_t at = found < wanted ? found++ : found - 1;
      for (; at > 0 && key < Key(out[at - 1]); --at) out[at] = out[at - 1];
      out[at] = id;
    }
  }
  return static_cast<int32_t>(found);
}

int32_t LogitsRow::Rank(int32_t id) const {
  const uint32_t key = Key(id);
  int32_t before = 0;
  for (int32_t r = 0; r < num_runs_; ++r) {
    if (KeyOf(run_max_[static_cast<size_t>(r)]) > key) continue;
    for (int32_t other = r * run_; other < EndOf(r); ++other) {
      const uint32_t other_key = Key(other);
      before += other_key < key || (other_key == key && other < id);
    }
  }
  return before + 1;
}

float LogitsRow::MaxOf(const float* x, int32_t count) {
  std::array<float, kSums> max;
  max.fill(-std::numeric_limits<float>::infinity());
  int32_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) {
      const float value = x[static_cast<size_t>(i) + j];
      max[j] = value > max[j] ? value : max[j];
    }
  }
  for (; i < count; ++i) max[0] = x[i] > max[0] ? x[i] : max[0];
  return *std::max_element(max.begin(), max.end());
}

double LogitsRow::PieceMass(int32_t begin, int32_t count) const {
  std::array<float, kPiece> logits;
  if (count < kPiece) logits.fill(-std::numeric_limits<float>::infinity());
  std::copy_n(logits_ + begin, count, logits.begin());
  std::array<F4, kSums / 4> sums = {};
  for (size_t i = 0; i < kPiece; i += kSums) {
    for (size_t j = 0; j < sums.size(); ++j) {
      F4 x;
      std::memcpy(&x, logits.data() + i + j * 4, sizeof(x));
      sums[j] += WeightsOf((x - max_) * scale_);
    }
  }
  double mass = 0;
  for (const F4& four : sums) {
    for (int lane = 0; lane < 4; ++lane) mass += four[lane];
  }
  return mass;
}

}  // namespace tandem
