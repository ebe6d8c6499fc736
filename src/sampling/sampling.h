// What: SampleRows: chooses one token per row of logits, on the stream.
// Not here: when a request ends; log probabilities (logprobs.h); masks of a grammar.
// Threads: as the stream.
// Invariants: a row's token depends on its logits, its parameters, its history, its sample index
//   and its position only. The logits stay as they are. Ids from num_choices on do not exist,
//   whatever their logits. Greedy takes the lowest id among equal maxima. NaN logits are never
//   chosen unless all are NaN (then token 0). The order is: biases and bans, penalties (repetition,
//   then frequency, then presence), temperature, top-k, top-p, min-p. Bans come first because what
//   may not be chosen must not take part in a cut; penalties come before the temperature because
//   they are amounts of raw logits, and greedy obeys them; each cut works on what the one before
//   has left (top-p is a share of the mass that top-k kept), and min-p, whose measure no cut
//   changes, comes last.
// Cost: a row without biases and penalties reads its logits in place; one with them works on a copy
//   and walks its history three times.
// Based on: vLLM's parameters and order; nucleus sampling (Holtzman et al., 1904.09751); the
//   repetition penalty of CTRL (Keskar et al., 1909.05858); random numbers from base/rng.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sampling_params.h"
#include "device/device.h"

namespace tandem {

struct SampleRow {
  SamplingParams params;
  uint32_t sample_index = 0;
  int32_t logits_row = 0;  // into the logits
  int64_t position = 0;    // of the token that is chosen
  int32_t out_index = 0;   // into `out`
  // SampleArgs::biases[biases_begin, + num_biases); -infinity bans a token.
  int32_t biases_begin = 0;
  int32_t num_biases = 0;
  // Read only when the parameters use the history: its first `position` tokens, of which those from
  // prompt_tokens on are outputs.
  int32_t history_row = 0;
  int32_t prompt_tokens = 0;
};

// All pointers are device memory that stays unchanged until the step has finished.
struct SampleArgs {
  const float* logits = nullptr;  // [.., vocab_size]
  int32_t vocab_size = 0;
  int32_t num_choices = 0;          // only ids below it are chosen; 1 .. vocab_size
  const SampleRow* rows = nullptr;  // [num_rows]
  int32_t num_rows = 0;
  const LogitBias* biases = nullptr;
  const int32_t* history = nullptr;  // [.., history_stride]: the tokens of a sequence by position
  int64_t history_stride = 0;
  int32_t* out = nullptr;
  std::byte* scratch = nullptr;  // SampleScratchBytes of the stream's threads
};

size_t SampleScratchBytes(int32_t vocab_size, int32_t num_threads);
void SampleRows(Stream& stream, const SampleArgs& args);

}  // namespace tandem
