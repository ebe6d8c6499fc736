#include "sampling/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "device/cpu_device.h"
#include "sampling/logits_row.h"

namespace tandem {
namespace {

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
  PrefixFinder(const LogitsRow& row, const Candidates& candidates)
      : row_(row), candidates_(candidates) {}

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

  const LogitsRow& row_;
  const Candidates candidates_;
  int64_t count_wanted_ = 0;
  double mass_wanted_ = 0;
  int64_t count_ = 0;  // before the current bin
  double mass_ = 0;
  std::array<int32_t, 1 << 11> bin_count_;
  std::array<double, 1 << 11> bin_mass_;
};

// The weight of the prefix's ids that the row keeps, summed in the order of ids.
double KeptMass(const LogitsRow& row, const Candidates& candidates, const Prefix& prefix) {
  double mass = 0;
  for (int32_t i = 0; i < candidates.count; ++i) {
    const int32_t id = candidates.At(i);
    if (row.Kept(id) && prefix.Has(row.Key(id), id)) mass += row.Weight(id);
  }
  return mass;
}

// The token where the mass of the prefix's ids that the row keeps, summed in the order of ids,
// passes u * prefix.mass.
int32_t DrawFrom(const LogitsRow& row, const Candidates& candidates, const Prefix& prefix,
                 double u) {
  const double target = u * prefix.mass;
  double sum = 0;
  int32_t last = row.First();
  for (int32_t i = 0; i < candidates.count; ++i) {
    const int32_t id = candidates.At(i);
    if (!row.Kept(id) || !prefix.Has(row.Key(id), id)) continue;
    const float weight = row.Weight(id);
    if (weight == 0) continue;
    sum += weight;
    last = id;
    if (sum > target) break;
  }
  return last;
}

constexpr size_t kListed = 4096;  // ids that a list of candidates may hold

// The best tokens, cut by count, then by mass, and then by the least share.
int32_t DrawFromBest(LogitsRow& row, const SamplingParams& params, double u) {
  constexpr int64_t kNoCount = std::numeric_limits<int64_t>::max();
  constexpr double kNoMass = std::numeric_limits<double>::infinity();
  // A peaked distribution's nucleus is among few tokens; where it is not, the second round looks at
  // all.
  constexpr int32_t kFewTokens = 256;
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
    if (prefix.reached || candidates.ids == nullptr) {
      if (params.min_p > 0) prefix.mass = KeptMass(row, candidates, prefix);
      return DrawFrom(row, candidates, prefix, u);
    }
    candidates = {.count = row.size()};
  }
}

// Of all tokens those that the row keeps.
int32_t DrawFromKept(const LogitsRow& row, double u) {
  std::array<int32_t, kListed> listed;
  Candidates candidates{.ids = listed.data()};
  if (!row.AllKept(listed, &candidates.count)) candidates = {.count = row.size()};
  Prefix all;
  all.mass = KeptMass(row, candidates, all);
  return DrawFrom(row, candidates, all, u);
}

int32_t Choose(const float* logits, int32_t num_choices, const SampleRow& sample) {
  const SamplingParams& params = sample.params;
  LogitsRow row(logits, num_choices);
  // An infinite or missing maximum leaves nothing to weigh.
  if (!(params.temperature > 0) || params.top_k == 1 || !std::isfinite(row.max())) {
    return row.First();
  }
  row.SetTemperature(params.temperature);
  if (params.min_p > 0) row.SetLeastShare(params.min_p);
  const double u = UniformDouble(params.seed, sample.sample_index,
                                 static_cast<uint64_t>(sample.position), /*draw=*/0);
  if ((params.top_k > 0 && params.top_k < num_choices) || params.top_p < 1.0) {
    return DrawFromBest(row, params, u);
  }
  if (params.min_p > 0) return DrawFromKept(row, u);
  return row.Draw(u * row.TotalMass());
}

// One thread's scratch.
struct Scratch {
  float* logits;   // [vocab_size]
  uint32_t* seen;  // [vocab_size]: twice the occurrences in the output, + 1 if in the prompt
};

Scratch ScratchOf(const SampleArgs& args, int thread) {
  const auto vocab = static_cast<size_t>(args.vocab_size);
  std::byte* begin = args.scratch + SampleScratchBytes(args.vocab_size, thread);
  return {reinterpret_cast<float*>(begin),
          reinterpret_cast<uint32_t*>(begin + vocab * sizeof(float))};
}

float Penalised(float logit, uint32_t seen, const SamplingParams& params) {
  const uint32_t outputs = seen >> 1;
  double value = logit;
  value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
  value -= params.frequency_penalty * outputs;
  if (outputs > 0) value -= params.presence_penalty;
  return static_cast<float>(value);
}

// Penalises each token of the history once, however often it came: so the passes clear the tokens'
// counters, count, and apply a counter and clear it again.
void Penalise(const SampleArgs& args, const SampleRow& row, const Scratch& scratch) {
  const int32_t* history = args.history + row.history_row * args.history_stride;
  const auto exists = [&](int32_t token) { return token >= 0 && token < args.num_choices; };
  for (int64_t i = 0; i < row.position; ++i) {
    if (exists(history[i])) scratch.seen[history[i]] = 0;
  }
  for (int64_t i = 0; i < row.position; ++i) {
    if (!exists(history[i])) continue;
    uint32_t& seen = scratch.seen[history[i]];
    seen = i < row.prompt_tokens ? seen | 1 : seen + 2;
  }
  for (int64_t i = 0; i < row.position; ++i) {
    if (!exists(history[i])) continue;
    uint32_t& seen = scratch.seen[history[i]];
    if (seen == 0) continue;
    float& logit = scratch.logits[history[i]];
    logit = Penalised(logit, seen, row.params);
    seen = 0;
  }
}

// The logits after biases, bans and penalties: `raw` itself when there are none.
const float* Adjusted(const SampleArgs& args, const SampleRow& row, const float* raw, int thread) {
  if (row.num_biases == 0 && !row.params.uses_history()) return raw;
  const Scratch scratch = ScratchOf(args, thread);
  std::copy_n(raw, args.num_choices, scratch.logits);
  for (int32_t i = 0; i < row.num_biases; ++i) {
    const LogitBias& bias = args.biases[row.biases_begin + i];
    const int32_t token = bias.token.value();
    if (token >= 0 && token < args.num_choices) scratch.logits[token] += bias.bias;
  }
  if (row.params.uses_history()) Penalise(args, row, scratch);
  return scratch.logits;
}

void SampleKernel(CpuTaskContext& context, const SampleArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_rows)) >= 0;) {
    const SampleRow& row = args.rows[t];
    const float* raw = args.logits + int64_t{row.logits_row} * args.vocab_size;
    args.out[row.out_index] =
        Choose(Adjusted(args, row, raw, context.thread), args.num_choices, row);
  }
}

}  // namespace

size_t SampleScratchBytes(int32_t vocab_size, int32_t num_threads) {
  return static_cast<size_t>(vocab_size) * static_cast<size_t>(num_threads) *
         (sizeof(float) + sizeof(uint32_t));
}

void SampleRows(Stream& stream, const SampleArgs& args) {
  if (args.num_rows == 0) return;
  TANDEM_CHECK(args.num_choices > 0 && args.num_choices <= args.vocab_size);
  AsCpu(stream).Launch(SampleKernel, args);
}

}  // namespace tandem
