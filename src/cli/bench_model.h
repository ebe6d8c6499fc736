// What: `tandem bench decode|prefill`: how fast an engine runs a model, against the machine's
//   limits measured before and after each run.
// Not here: loading the model (cli/runtime.h), measuring limits (kernels/probe.h), the accounting
//   of bytes and operations (core/cost.h).
// Threads: one; the sinks are called on the engine's thread.
// Invariants: prompts depend on the sequence's number and the vocabulary alone, sampling is greedy
//   and nothing stops a sequence early, so repeated runs generate the same tokens; a run that does
//   not is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/options.h"
#include "core/cost.h"
#include "core/engine_client.h"
#include "core/model_spec.h"
#include "kernels/probe.h"

namespace tandem {

// What is measured.
struct BenchSubject {
  EngineClient* engine = nullptr;
  std::string model_name;
  int32_t vocab_size = 0;
  ModelCost cost;
  std::string numerics;
  int32_t threads = 0;
  ComputeKind compute = ComputeKind::kFp32;  // whose rate limits its matrix products
};

// The machine at one moment.
struct BenchLimits {
  double memory_read_gb_s = 0;
  double weights_read_gb_s = 0;  // as many bytes as the weights: a cache may hold them
  double compute_gop_s = 0;      // of the subject's kind
};
using LimitSource = std::function<BenchLimits()>;

struct BenchRun {
  double tokens_per_s = 0;
  double gb_s = 0;  // decode: weights and KV of the steps measured; prefill: 0
  double gop_s = 0;
  BenchLimits limits;  // mean of before and after
  // The time that the binding limit alone would take, of the time taken.
  double percent_of_limit = 0;
  bool memory_bound = false;  // the binding limit is memory_read_gb_s, else compute_gop_s
  std::string result_hash;    // of all generated tokens
};

struct BenchReport {
  BenchSubject subject;
  BenchOptions options;  // with the defaults filled in
  std::vector<BenchRun> runs;
};

// Runs `options.what` ("decode" or "prefill") once to warm up and options.repeat times.
//   decode   the whole batch's tokens per second while all of its sequences are decoding
//   prefill  prompt tokens per second from submission to the last first token
// INVALID_ARGUMENT names a flag that does not fit the model; FAILED_PRECONDITION when the sequences
// never decode together (the engine runs fewer at once); INTERNAL when runs differ in their tokens.
Result<BenchReport> RunModelBench(const BenchOptions& options, const BenchSubject& subject,
                                  const LimitSource& limits);

// Medians, least and most, per cent of the limits, the hash.
std::string BenchText(const BenchReport& report);
// The same and every run, as one JSON object.
std::string BenchJson(const BenchReport& report);

// Below: parts of the above that tests use.

// What one sequence's sink saw.
struct SequenceTrace {
  std::vector<TokenId> tokens;
  std::vector<TimeNs> times;  // of each token
};

// The part of a run in which each step gave each sequence one token.
struct DecodeWindow {
  TimeNs begin = 0;  // the last sequence has its first token
  TimeNs end = 0;    // the first one to end has its last
  int32_t steps = 0;
  std::vector<int32_t> first_token;  // per sequence: the window's first token
};
Result<DecodeWindow> FindDecodeWindow(const std::vector<SequenceTrace>& traces);

// What the window's steps cost for sequences with prompts of `prompt_tokens`.
StepCost CostOfWindow(const ModelCost& cost, const DecodeWindow& window, int32_t prompt_tokens);

}  // namespace tandem
