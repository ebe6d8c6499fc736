#include "cli/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/rng.h"
#include "base/thread_annotations.h"

namespace tandem {
namespace {

constexpr int32_t kDecodePromptTokens = 16;
constexpr int32_t kPrefillPromptTokens = 512;
// Enough to reach the steady state's code and memory.
constexpr int32_t kWarmUpTokens = 8;

// Counts living sinks; what they write to may be read, or go, when none is left.
class Countdown {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++left_;
  }
  void Done() {
    MutexLock lock(mutex_);
    if (--left_ == 0) zero_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (left_ > 0) zero_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar zero_;
  int left_ TANDEM_GUARDED_BY(mutex_) = 0;
};

struct Outcome {
  SequenceTrace trace;
  std::optional<FinishReason> finish;
  Status status;
};

// Writes to *outcome until it is destroyed.
class TraceSink final : public RequestSink {
 public:
  TraceSink(Outcome* outcome, Countdown* alive) : outcome_(outcome), alive_(alive) {
    alive_->Add();
  }
  ~TraceSink() override { alive_->Done(); }

  void OnOutput(const RequestOutput& output) override {
    const TimeNs now = clock_.Now();
    for (const TokenId token : output.tokens) {
      outcome_->trace.tokens.push_back(token);
      outcome_->trace.times.push_back(now);
    }
    if (!output.finish) return;
    outcome_->finish = output.finish;
    outcome_->status = output.status;
  }

 private:
  Outcome* const outcome_;
  Countdown* const alive_;
  const SteadyClock clock_;
};

Request MakeRequest(int32_t sequence, int32_t prompt_tokens, int32_t output_tokens,
                    int32_t vocab_size) {
  Request request;
  SplitMix64 random(static_cast<uint64_t>(sequence));
  request.prompt.reserve(static_cast<size_t>(prompt_tokens));
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.emplace_back(
        static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab_size))));
  }
  request.max_output_tokens = output_tokens;
  request.sampling.temperature = 0;
  return request;
}

struct BatchRun {
  TimeNs submitted = 0;
  std::vector<SequenceTrace> traces;
};

// Runs the batch to its end.
Result<BatchRun> RunBatch(const BenchSubject& subject, const BenchOptions& options,
                          int32_t output_tokens) {
  std::vector<Outcome> outcomes(static_cast<size_t>(options.batch));
  std::vector<Request> requests;
  for (int32_t i = 0; i < options.batch; ++i) {
    requests.push_back(MakeRequest(i, options.prompt_tokens, output_tokens, subject.vocab_size));
    Outcome& outcome = outcomes[static_cast<size_t>(i)];
    outcome.trace.tokens.reserve(static_cast<size_t>(output_tokens));
    outcome.trace.times.reserve(static_cast<size_t>(output_tokens));
  }
  BatchRun run;
  run.submitted = SteadyClock().Now();
  Countdown alive;
  std::vector<RequestId> ids;
  Status refused;
  for (size_t i = 0; i < requests.size() && refused.ok(); ++i) {
    const Result<RequestId> id = subject.engine->Submit(
        std::move(requests[i]), std::make_unique<TraceSink>(&outcomes[i], &alive));
    if (id.ok()) {
      ids.push_back(*id);
    } else {
      refused = id.status();
    }
  }
  if (!refused.ok()) {
    for (const RequestId id : ids) subject.engine->Cancel(id);
  }
  alive.Wait();
  TANDEM_RETURN_IF_ERROR(refused);
  for (Outcome& outcome : outcomes) {
    TANDEM_RETURN_IF_ERROR(outcome.status);
    if (outcome.finish != FinishReason::kLength ||
        outcome.trace.tokens.size() != static_cast<size_t>(output_tokens)) {
      return InternalError("a sequence ended with {} after {} of {} tokens",
                           outcome.finish ? NameOf(*outcome.finish) : "nothing",
                           outcome.trace.tokens.size(), output_tokens);
    }
    run.traces.push_back(std::move(outcome.trace));
  }
  return run;
}

std::string HashOf(const std::vector<SequenceTrace>& traces) {
  Hasher hasher;
  for (const SequenceTrace& trace : traces) {
    hasher.Update(static_cast<uint64_t>(trace.tokens.size()));
    for (const TokenId token : trace.tokens) hasher.Update(static_cast<uint64_t>(token.value()));
  }
  return hasher.Digest().ToHex();
}

BenchLimits Mean(const BenchLimits& a, const BenchLimits& b) {
  return {(a.memory_read_gb_s + b.memory_read_gb_s) / 2,
          (a.weights_read_gb_s + b.weights_read_gb_s) / 2, (a.compute_gop_s + b.compute_gop_s) / 2};
}

// Rates of `tokens` at `cost` in `time`; bytes and operations per ns are GB/s and GOP/s.
BenchRun RatesOf(double tokens, double bytes, double flops, TimeNs time,
                 const BenchLimits& limits) {
  const double ns = static_cast<double>(std::max<TimeNs>(time, 1));
  BenchRun run;
  run.tokens_per_s = tokens * 1e9 / ns;
  run.gb_s = bytes / ns;
  run.gop_s = flops / ns;
  run.limits = limits;
  const double memory = run.gb_s / limits.memory_read_gb_s;
  const double compute = run.gop_s / limits.compute_gop_s;
  run.memory_bound = memory > compute;
  run.percent_of_limit = 100 * std::max(memory, compute);
  return run;
}

Result<BenchRun> MeasureDecode(const BenchSubject& subject, const BenchOptions& options,
                               const BatchRun& batch, const BenchLimits& limits) {
  TANDEM_ASSIGN_OR_RETURN(const DecodeWindow window, FindDecodeWindow(batch.traces));
  const StepCost cost = CostOfWindow(subject.cost, window, options.prompt_tokens);
  return RatesOf(static_cast<double>(cost.new_tokens), static_cast<double>(cost.bytes()),
                 cost.flops, window.end - window.begin, limits);
}

BenchRun MeasurePrefill(const BenchSubject& subject, const BenchOptions& options,
                        const BatchRun& batch, const BenchLimits& limits) {
  StepPlan plan;  // operations do not depend on how the prompts are cut
  TimeNs end = batch.submitted;
  for (const SequenceTrace& trace : batch.traces) {
    PlanRow row;
    row.num_tokens = options.prompt_tokens;
    row.sample = true;
    plan.rows.push_back(row);
    end = std::max(end, trace.times.front());
  }
  const StepCost cost = CostOfStep(subject.cost, plan);
  return RatesOf(static_cast<double>(cost.new_tokens), 0, cost.flops, end - batch.submitted,
                 limits);
}

Result<BenchOptions> WithDefaults(BenchOptions options, const BenchSubject& subject) {
  if (options.what == "prefill") {
    options.output_tokens = 1;
  } else if (options.output_tokens < 2) {
    return InvalidArgumentError("--output-tokens is {}; decoding needs at least 2",
                                options.output_tokens);
  }
  if (options.prompt_tokens == 0) {
    options.prompt_tokens = options.what == "prefill" ? kPrefillPromptTokens : kDecodePromptTokens;
  }
  const int64_t total = int64_t{options.prompt_tokens} + options.output_tokens;
  if (total > subject.engine->max_context_tokens()) {
    return InvalidArgumentError(
        "--prompt-tokens {} and --output-tokens {} are {} tokens, at most {} fit",
        options.prompt_tokens, options.output_tokens, total, subject.engine->max_context_tokens());
  }
  return options;
}

}  // namespace

Result<DecodeWindow> FindDecodeWindow(const std::vector<SequenceTrace>& traces) {
  DecodeWindow window;
  for (const SequenceTrace& trace : traces) {
    if (trace.times.empty()) return FailedPreconditionError("a sequence has no token");
    window.begin = std::max(window.begin, trace.times.front());
  }
  int64_t steps = std::numeric_limits<int32_t>::max();
  for (const SequenceTrace& trace : traces) {
    const auto first = std::upper_bound(trace.times.begin(), trace.times.end(), window.begin);
    window.first_token.push_back(static_cast<int32_t>(first - trace.times.begin()));
    steps = std::min<int64_t>(steps, trace.times.end() - first);
  }
  if (traces.empty() || steps == 0) {
    return FailedPreconditionError(
        "the sequences do not decode together: one has ended before another's first token; raise "
        "--output-tokens or --max-seqs, or lower --batch");
  }
  window.steps = static_cast<int32_t>(steps);
  for (size_t i = 0; i < traces.size(); ++i) {
    const auto last = static_cast<size_t>(window.first_token[i] + window.steps - 1);
    window.end = std::max(window.end, traces[i].times[last]);
  }
  return window;
}

StepCost CostOfWindow(const ModelCost& cost, const DecodeWindow& window, int32_t prompt_tokens) {
  StepCost total;
  StepPlan plan;
  plan.rows.resize(window.first_token.size());
  for (int32_t step = 0; step < window.steps; ++step) {
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      // Token k comes out of the row that runs token k - 1, behind the prompt.
      plan.rows[i].position = prompt_tokens + window.first_token[i] + step - 1;
      plan.rows[i].num_tokens = 1;
      plan.rows[i].sample = true;
    }
    total += CostOfStep(cost, plan);
  }
  return total;
}

Result<BenchReport> RunModelBench(const BenchOptions& options, const BenchSubject& subject,
                                  const LimitSource& limits) {
  BenchReport report;
  report.subject = subject;
  TANDEM_ASSIGN_OR_RETURN(report.options, WithDefaults(options, subject));
  const BenchOptions& o = report.options;
  TANDEM_RETURN_IF_ERROR(RunBatch(subject, o, std::min(o.output_tokens, kWarmUpTokens)).status());
  BenchLimits before = limits();
  for (int32_t i = 0; i < o.repeat; ++i) {
    TANDEM_ASSIGN_OR_RETURN(const BatchRun batch, RunBatch(subject, o, o.output_tokens));
    const BenchLimits after = limits();
    const BenchLimits between = Mean(before, after);
    before = after;
    BenchRun run;
    if (o.what == "prefill") {
      run = MeasurePrefill(subject, o, batch, between);
    } else {
      TANDEM_ASSIGN_OR_RETURN(run, MeasureDecode(subject, o, batch, between));
    }
    run.result_hash = HashOf(batch.traces);
    if (i > 0 && run.result_hash != report.runs.front().result_hash) {
      return InternalError("run {} generated other tokens than run 1 (hashes {} and {})", i + 1,
                           run.result_hash, report.runs.front().result_hash);
    }
    report.runs.push_back(std::move(run));
  }
  return report;
}

}  // namespace tandem
