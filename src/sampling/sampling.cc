#include "sampling/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/rng.h"
#include "device/cpu_device.h"

namespace tandem {
namespace {

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

// Ascending keys are descending logits; equal logits (also 0 and -0) have equal keys, NaN the last.
inline uint32_t KeyOf(float logit) {
  if (logit != logit) return ~0u;
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000u);
}

// The logits of one row, summarised in runs of neighbouring ids so that most ids are looked at
// once.
class Row {
 public:
  Row(const float* logits, int32_t size) : logits_(logits), size_(size) {
    constexpr int32_t kLargest = kRunsMax * kPiece;
    run_ = kPiece * ((size + kLargest - 1) / kLargest);
    num_runs_ = (size + run_ - 1) / run_;
    for (int32_t r = 0; r < num_runs_; ++r) {
      run_max_[static_cast<size_t>(r)] = MaxOf(logits + r * run_, EndOf(r) - r * run_);
      max_ = std::max(max_, run_max_[static_cast<size_t>(r)]);
    }
  }

  int32_t size() const { return size_; }
  float max() const { return max_; }
  int32_t num_runs() const { return num_runs_; }
  uint32_t Key(int32_t id) const { return KeyOf(logits_[id]); }

  // The first id of the largest logit; of no logit but NaN, 0.
  int32_t First() const {
    for (int32_t r = 0; r < num_runs_; ++r) {
      if (run_max_[static_cast<size_t>(r)] != max_) continue;
      for (int32_t id = r * run_; id < EndOf(r); ++id) {
        if (logits_[id] == max_) return id;
      }
    }
    return 0;
  }

  // Weights exp((logit - max) / temperature); requires a finite maximum.
  void SetTemperature(double temperature) {
    // A tiny temperature must not make 0 * infinity of the largest logit.
    scale_ = static_cast<float>(
        std::min(1.0 / temperature, static_cast<double>(std::numeric_limits<float>::max())));
  }
  float Weight(int32_t id) const {
    const F4 x = {(logits_[id] - max_) * scale_};
    return WeightsOf(x)[0];
  }

  // Computes the weights of all ids; the sum is in the order of runs.
  double TotalMass() {
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

  // The id where the sum of weights, in the order of ids, passes `target`. After TotalMass.
  int32_t Draw(double target) const {
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

  // At least the `count` ids of the largest logits, and all that equal or exceed the least of them,
  // in ascending order; false when `out` is too small or the summary too coarse to tell.
  bool Largest(int32_t count, std::span<int32_t> out, int32_t* out_size) const {
    if (count > num_runs_) return false;
    std::array<float, kRunsMax> sorted;
    std::copy_n(run_max_.begin(), num_runs_, sorted.begin());
    const auto nth = sorted.begin() + (count - 1);
    std::nth_element(sorted.begin(), nth, sorted.begin() + num_runs_, std::greater<>());
    const float least = *nth;  // each of `count` runs has an id that reaches it
    size_t found = 0;
    for (int32_t r = 0; r < num_runs_; ++r) {
      if (run_max_[static_cast<size_t>(r)] < least) continue;
      for (int32_t id = r * run_; id < EndOf(r); ++id) {
        if (!(logits_[id] >= least)) continue;
        if (found == out.size()) return false;
        out[found++] = id;
      }
    }
    *out_size = static_cast<int32_t>(found);
    return true;
  }

 private:
  static constexpr int32_t kPiece = 64;
  static constexpr int32_t kRunsMax = 4096;
  static constexpr int32_t kSums = 16;  // independent, so that they are a vector's lanes

  int32_t EndOf(int32_t run) const { return std::min((run + 1) * run_, size_); }

  // Of no values but NaN, -infinity.
  static float MaxOf(const float* x, int32_t count) {
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

  // Sum of the weights of ids [begin, begin + count), count <= kPiece.
  double PieceMass(int32_t begin, int32_t count) const {
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

  const float* logits_;
  int32_t size_;
  int32_t run_ = kPiece;
  int32_t num_runs_ = 0;
  float max_ = -std::numeric_limits<float>::infinity();
  float scale_ = 1.0f;
  std::array<float, kRunsMax> run_max_;
  std::array<double, kRunsMax> run_mass_;
};

// Some ids of a row in ascending order: a list, or all.
struct Candidates {
  const int32_t* ids = nullptr;  // null: id i is i
  int32_t count = 0;
  int32_t At(int32_t i) const { return ids == nullptr ? i : ids[i]; }
};

// The first tokens in the order of (key, id): up to and including `last_id` of key `key`.
struct Prefix {
  uint32_t key = ~0u;
  int32_t last_id = std::numeric_limits<int32_t>::max();
  double mass = 0;
  bool reached = false;  // what was asked for; otherwise the prefix is all candidates

  bool Has(uint32_t other_key, int32_t id) const {
    return other_key < key || (other_key == key && id <= last_id);
  }
};

// Finds prefixes by radix selection on the keys: three passes, no sorting, no memory that grows
// with the vocabulary.
class PrefixFinder {
 public:
  PrefixFinder(const Row& row, const Candidates& candidates) : row_(row), candidates_(candidates) {}

  // The shortest prefix of at least `count` tokens and `mass` of weight, whichever comes first.
  Prefix Find(int64_t count, double mass) {
    count_wanted_ = count;
    mass_wanted_ = mass;
    count_ = 0;
    mass_ = 0;
    uint32_t digits = 0;  // the leading bits of the last key of the prefix
    for (size_t level = 0; level < kLevels; ++level) {
      CountMatching(level, digits);
      uint32_t bin = 0;
      const uint32_t num_bins = 1u << kBits[level];
      while (bin < num_bins && !Reached(count_ + bin_count_[bin], mass_ + bin_mass_[bin])) {
        count_ += bin_count_[bin];
        mass_ += bin_mass_[bin];
        ++bin;
      }
      if (bin == num_bins) return {.mass = mass_};
      digits = digits << kBits[level] | bin;
    }
    Prefix out{.key = digits, .last_id = 0, .mass = mass_, .reached = true};
    for (int32_t i = 0; i < candidates_.count && !Reached(count_, out.mass); ++i) {
      const int32_t id = candidates_.At(i);
      if (row_.Key(id) != digits) continue;
      ++count_;
      out.mass += row_.Weight(id);
      out.last_id = id;
    }
    return out;
  }

 private:
  static constexpr int kLevels = 3;
  static constexpr std::array<int, kLevels> kShifts = {21, 10, 0};
  static constexpr std::array<int, kLevels> kBits = {11, 11, 10};

  bool Reached(int64_t count, double mass) const {
    return count > 0 && (count >= count_wanted_ || mass >= mass_wanted_);
  }

  void CountMatching(size_t level, uint32_t digits) {
    bin_count_.fill(0);
    bin_mass_.fill(0);
    const int shift = kShifts[level];
    const uint32_t mask = (1u << kBits[level]) - 1;
    for (int32_t i = 0; i < candidates_.count; ++i) {
      const int32_t id = candidates_.At(i);
      const uint32_t key = row_.Key(id);
      if (level > 0 && key >> (shift + kBits[level]) != digits) continue;
      const uint32_t bin = (key >> shift) & mask;
      ++bin_count_[bin];
      bin_mass_[bin] += row_.Weight(id);
    }
  }

  const Row& row_;
  const Candidates candidates_;
  int64_t count_wanted_ = 0;
  double mass_wanted_ = 0;
  int64_t count_ = 0;  // before the current bin
  double mass_ = 0;
  std::array<int32_t, 1 << 11> bin_count_;
  std::array<double, 1 << 11> bin_mass_;
};

// The token where the mass of the prefix, summed in the order of ids, passes u * prefix.mass.
int32_t DrawFrom(const Row& row, const Candidates& candidates, const Prefix& prefix, double u) {
  const double target = u * prefix.mass;
  double sum = 0;
  int32_t last = row.First();
  for (int32_t i = 0; i < candidates.count; ++i) {
    const int32_t id = candidates.At(i);
    if (!prefix.Has(row.Key(id), id)) continue;
    const float weight = row.Weight(id);
    if (weight == 0) continue;
    sum += weight;
    last = id;
    if (sum > target) break;
  }
  return last;
}

// The best tokens, cut by count and then by mass.
int32_t DrawFromBest(Row& row, const SamplingParams& params, double u) {
  constexpr int64_t kNoCount = std::numeric_limits<int64_t>::max();
  constexpr double kNoMass = std::numeric_limits<double>::infinity();
  // A peaked distribution's nucleus is among few tokens; where it is not, the second round looks at
  // all.
  constexpr int32_t kFewTokens = 256;
  constexpr size_t kListed = 4096;
  const bool cuts_count = params.top_k > 0 && params.top_k < row.size();
  const bool cuts_mass = params.top_p < 1.0;
  const double total = cuts_count ? 0 : row.TotalMass();
  std::array<int32_t, kListed> listed;
  Candidates candidates{.ids = listed.data()};
  if (!row.Largest(cuts_count ? params.top_k : kFewTokens, listed, &candidates.count)) {
    candidates = {.count = row.size()};
  }
  while (true) {
    PrefixFinder finder(row, candidates);
    Prefix prefix;
    if (cuts_count) prefix = finder.Find(params.top_k, kNoMass);
    if (cuts_mass) {
      const Prefix nucleus =
          finder.Find(kNoCount, params.top_p * (cuts_count ? prefix.mass : total));
      // Rounding may keep the sum below its target: then the cut by count stands.
      if (nucleus.reached || !cuts_count) prefix = nucleus;
    }
    // Not reached among all: again rounding, and everything belongs.
    if (prefix.reached || candidates.ids == nullptr) return DrawFrom(row, candidates, prefix, u);
    candidates = {.count = row.size()};
  }
}

int32_t SampleOne(const float* logits, int32_t num_choices, const SampleRow& sample) {
  const SamplingParams& params = sample.params;
  Row row(logits, num_choices);
  // An infinite or missing maximum leaves nothing to weigh.
  if (!(params.temperature > 0) || params.top_k == 1 || !std::isfinite(row.max())) {
    return row.First();
  }
  row.SetTemperature(params.temperature);
  const double u = UniformDouble(params.seed, sample.sample_index,
                                 static_cast<uint64_t>(sample.position), /*draw=*/0);
  if ((params.top_k <= 0 || params.top_k >= num_choices) && !(params.top_p < 1.0)) {
    return row.Draw(u * row.TotalMass());
  }
  return DrawFromBest(row, params, u);
}

void SampleKernel(CpuTaskContext& context, const SampleArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_rows)) >= 0;) {
    const SampleRow& row = args.rows[t];
    args.out[row.out_index] =
        SampleOne(args.logits + int64_t{row.logits_row} * args.vocab_size, args.num_choices, row);
  }
}

}  // namespace

size_t SampleScratchBytes(int32_t /*vocab_size*/, int32_t /*max_rows*/) { return 0; }

void SampleRows(Stream& stream, const SampleArgs& args) {
  if (args.num_rows == 0) return;
  TANDEM_CHECK(args.num_choices > 0 && args.num_choices <= args.vocab_size);
  AsCpu(stream).Launch(SampleKernel, args);
}

}  // namespace tandem
