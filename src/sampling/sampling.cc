#include "sampling/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "device/cpu_device.h"

namespace tandem {
namespace {

// exp(x) for x <= 0 without fma: the same bits whatever the compiler vectorises. Relative error
// below 3e-7; below -87, and for NaN, 0.
inline float WeightOf(float x) {
  constexpr float kLowest = -87.0f;
  constexpr float kRound = 0x1.8p23f;  // adding and subtracting it rounds to an integer
  const float bounded = x >= kLowest ? x : kLowest;
  const float n = (bounded * 0x1.715476p+0f + kRound) - kRound;
  const float r = (bounded - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const float power =
      std::bit_cast<float>((static_cast<uint32_t>(static_cast<int32_t>(n)) + 127u) << 23);
  return x >= kLowest ? sum * power : 0.0f;
}

// Ascending keys are descending logits; equal logits (also 0 and -0) have equal keys, NaN the last.
inline uint32_t KeyOf(float logit) {
  if (logit != logit) return ~0u;
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000u);
}

int32_t Greedy(const float* logits, int32_t vocab_size) {
  int32_t best = 0;
  for (int32_t id = 1; id < vocab_size; ++id) {
    if (logits[id] > logits[best]) best = id;
    if (logits[best] != logits[best] && logits[id] == logits[id]) best = id;  // NaN loses
  }
  return best;
}

// One row under a temperature: weights exp((logit - max) / temperature), computed where they are
// needed.
class Row {
 public:
  Row(const float* logits, int32_t size, float max, double temperature)
      : logits_(logits), size_(size), max_(max) {
    // A tiny temperature must not make 0 * infinity of the largest logit.
    scale_ = static_cast<float>(
        std::min(1.0 / temperature, static_cast<double>(std::numeric_limits<float>::max())));
  }

  int32_t size() const { return size_; }
  uint32_t Key(int32_t id) const { return KeyOf(logits_[id]); }
  float Weight(int32_t id) const { return WeightOf((logits_[id] - max_) * scale_); }

  static constexpr int32_t kRun = 64;
  // Weights of ids [begin, begin + count), count <= kRun.
  void Weights(int32_t begin, int32_t count, float* out) const {
    std::array<float, kRun> run;
    run.fill(-std::numeric_limits<float>::infinity());
    std::copy_n(logits_ + begin, count, run.begin());
    for (int32_t i = 0; i < kRun; ++i)
      out[i] = WeightOf((run[static_cast<size_t>(i)] - max_) * scale_);
  }

 private:
  const float* logits_;
  int32_t size_;
  float max_;
  float scale_;
};

// The first tokens in the order of (key, id): up to and including `last_id` of key `key`.
struct Prefix {
  uint32_t key = ~0u;
  int32_t last_id = std::numeric_limits<int32_t>::max();
  double mass = 0;

  bool Has(uint32_t other_key, int32_t id) const {
    return other_key < key || (other_key == key && id <= last_id);
  }
};

// Finds prefixes by radix selection on the keys: three passes, no sorting, no memory that grows
// with the vocabulary.
class PrefixFinder {
 public:
  explicit PrefixFinder(const Row& row) : row_(row) {}

  // The shortest prefix of at least `count` tokens.
  Prefix OfCount(int64_t count) {
    count_wanted_ = count;
    mass_wanted_ = std::numeric_limits<double>::infinity();
    return Find(/*fraction=*/-1);
  }
  // The shortest prefix whose mass is at least `fraction` of `total`, or of all tokens when total
  // is negative.
  Prefix OfMass(double fraction, double total) {
    count_wanted_ = std::numeric_limits<int64_t>::max();
    mass_wanted_ = fraction * total;
    return Find(total < 0 ? fraction : -1);
  }

 private:
  static constexpr int kLevels = 3;
  static constexpr std::array<int, kLevels> kShifts = {21, 10, 0};
  static constexpr std::array<int, kLevels> kBits = {11, 11, 10};

  bool Reached(int64_t count, double mass) const {
    return count > 0 && (count >= count_wanted_ || mass >= mass_wanted_);
  }

  Prefix Find(double fraction_of_all) {
    count_ = 0;
    mass_ = 0;
    uint32_t digits = 0;  // the leading bits of the last key of the prefix
    for (size_t level = 0; level < kLevels; ++level) {
      if (level == 0) {
        CountAll();
      } else {
        CountMatching(level, digits);
      }
      if (level == 0 && fraction_of_all >= 0) {
        double all = 0;
        for (const double mass : bin_mass_) all += mass;
        mass_wanted_ = fraction_of_all * all;
      }
      uint32_t bin = 0;
      const uint32_t num_bins = 1u << kBits[level];
      while (bin < num_bins && !Reached(count_ + bin_count_[bin], mass_ + bin_mass_[bin])) {
        count_ += bin_count_[bin];
        mass_ += bin_mass_[bin];
        ++bin;
      }
      if (bin == num_bins) return {.mass = mass_};  // rounding: everything belongs
      digits = digits << kBits[level] | bin;
    }
    Prefix out{.key = digits, .last_id = 0, .mass = mass_};
    for (int32_t id = 0; id < row_.size() && !Reached(count_, out.mass); ++id) {
      if (row_.Key(id) != digits) continue;
      ++count_;
      out.mass += row_.Weight(id);
      out.last_id = id;
    }
    return out;
  }

  void Clear() {
    bin_count_.fill(0);
    bin_mass_.fill(0);
  }

  void CountAll() {
    Clear();
    for (int32_t begin = 0; begin < row_.size(); begin += Row::kRun) {
      std::array<float, Row::kRun> weights;
      const int32_t count = std::min(Row::kRun, row_.size() - begin);
      row_.Weights(begin, count, weights.data());
      for (int32_t i = 0; i < count; ++i) {
        const uint32_t bin = row_.Key(begin + i) >> kShifts[0];
        ++bin_count_[bin];
        bin_mass_[bin] += weights[static_cast<size_t>(i)];
      }
    }
  }

  void CountMatching(size_t level, uint32_t digits) {
    Clear();
    const int shift = kShifts[level];
    const uint32_t mask = (1u << kBits[level]) - 1;
    for (int32_t id = 0; id < row_.size(); ++id) {
      const uint32_t key = row_.Key(id);
      if (key >> (shift + kBits[level]) != digits) continue;
      const uint32_t bin = (key >> shift) & mask;
      ++bin_count_[bin];
      bin_mass_[bin] += row_.Weight(id);
    }
  }

  const Row& row_;
  int64_t count_wanted_ = 0;
  double mass_wanted_ = 0;
  int64_t count_ = 0;  // before the current bin
  double mass_ = 0;
  std::array<int32_t, 1 << 11> bin_count_;
  std::array<double, 1 << 11> bin_mass_;
};

// The token where the mass of the prefix, summed in the order of ids, passes u * prefix.mass.
int32_t Draw(const Row& row, const Prefix& prefix, double u) {
  const double target = u * prefix.mass;
  double sum = 0;
  int32_t last = 0;
  for (int32_t id = 0; id < row.size(); ++id) {
    if (!prefix.Has(row.Key(id), id)) continue;
    const float weight = row.Weight(id);
    if (weight == 0) continue;
    sum += weight;
    last = id;
    if (sum > target) break;
  }
  return last;
}

// As Draw, over all tokens.
int32_t DrawFromAll(const Row& row, double u) {
  double all = 0;
  std::array<float, Row::kRun> weights;
  for (int32_t begin = 0; begin < row.size(); begin += Row::kRun) {
    const int32_t count = std::min(Row::kRun, row.size() - begin);
    row.Weights(begin, count, weights.data());
    for (int32_t i = 0; i < count; ++i) all += weights[static_cast<size_t>(i)];
  }
  double sum = 0;
  int32_t last = 0;
  for (int32_t begin = 0; begin < row.size() && sum <= u * all; begin += Row::kRun) {
    const int32_t count = std::min(Row::kRun, row.size() - begin);
    row.Weights(begin, count, weights.data());
    for (int32_t i = 0; i < count && sum <= u * all; ++i) {
      const float weight = weights[static_cast<size_t>(i)];
      sum += weight;
      if (weight > 0) last = begin + i;
    }
  }
  return last;
}

int32_t SampleOne(const float* logits, int32_t vocab_size, const SampleRow& row) {
  const SamplingParams& params = row.params;
  const int32_t best = Greedy(logits, vocab_size);
  // Infinite or missing maxima leave nothing to weigh.
  if (!(params.temperature > 0) || params.top_k == 1 || !std::isfinite(logits[best])) return best;
  const Row weighed(logits, vocab_size, logits[best], params.temperature);
  const double u =
      UniformDouble(params.seed, row.sample_index, static_cast<uint64_t>(row.position), /*draw=*/0);
  const bool cuts_count = params.top_k > 0 && params.top_k < vocab_size;
  const bool cuts_mass = params.top_p < 1.0;
  if (!cuts_count && !cuts_mass) return DrawFromAll(weighed, u);
  PrefixFinder finder(weighed);
  Prefix prefix;
  if (cuts_count) prefix = finder.OfCount(params.top_k);
  if (cuts_mass) prefix = finder.OfMass(params.top_p, cuts_count ? prefix.mass : -1.0);
  return Draw(weighed, prefix, u);
}

void SampleKernel(CpuTaskContext& context, const SampleArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_rows)) >= 0;) {
    const SampleRow& row = args.rows[t];
    args.out[row.out_index] =
        SampleOne(args.logits + int64_t{row.logits_row} * args.vocab_size, args.vocab_size, row);
  }
}

}  // namespace

size_t SampleScratchBytes(int32_t /*vocab_size*/, int32_t /*max_rows*/) {
  return 0;
}

void SampleRows(Stream& stream, const SampleArgs& args) {
  if (args.num_rows == 0) return;
  TANDEM_CHECK_GT(args.vocab_size, 0);
  AsCpu(stream).Launch(SampleKernel, args);
}

}  // namespace tandem
