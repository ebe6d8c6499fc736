#include "sampling/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/check.h"
#include "device/cpu_device.h"
#include "sampling/logits_row.h"

namespace tandem {
namespace {

// log(sum of exp(logit)).
double LogMass(const float* logits, int32_t size) {
  LogitsRow row(logits, size);
  // An infinite or missing maximum is all there is.
  if (!std::isfinite(row.max())) return row.max();
  return row.max() + std::log(row.TotalMass());
}

float LogprobOf(float logit, double log_mass) {
  const double logprob = logit - log_mass;
  return logprob >= kLeastLogprob ? static_cast<float>(logprob) : kLeastLogprob;  // also for NaN
}

void ReportOne(const LogprobArgs& args, const LogprobRow& row) {
  const float* logits = args.logits + int64_t{row.logits_row} * args.vocab_size;
  const double log_mass = LogMass(logits, args.vocab_size);
  const LogitsRow choices(logits, args.num_choices);
  const int32_t token = row.token >= 0 ? row.token : args.tokens[row.token_index];
  TokenLogprob* out = args.out + row.out_begin;
  // A token without a place among the choices (only a prompt can name one) is ranked behind them.
  const int32_t rank = token < args.num_choices ? choices.Rank(token) : args.num_choices + 1;
  *out++ = {TokenId(token), LogprobOf(logits[token], log_mass), rank};
  std::array<int32_t, kMaxTopLogprobs> best;
  const auto num_top = static_cast<size_t>(row.num_top);
  const int32_t found = choices.Best(std::span(best).first(num_top));
  for (int32_t i = 0; i < row.num_top; ++i) {
    const int32_t place = std::min(i, found - 1);
    const int32_t id = best[static_cast<size_t>(place)];
    *out++ = {TokenId(id), LogprobOf(logits[id], log_mass), place + 1};
  }
}

void LogprobKernel(CpuTaskContext& context, const LogprobArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_rows)) >= 0;) ReportOne(args, args.rows[t]);
}

}  // namespace

void ReportLogprobs(Stream& stream, const LogprobArgs& args) {
  if (args.num_rows == 0) return;
  TANDEM_CHECK(args.num_choices > 0 && args.num_choices <= args.vocab_size);
  AsCpu(stream).Launch(LogprobKernel, args);
}

}  // namespace tandem
