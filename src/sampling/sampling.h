// What: SampleRows: chooses one token per row of logits, on the stream.
// Not here: when a request ends; penalties and masks.
// Threads: as the stream.
// Invariants: a row's token depends on its logits, its parameters, its sample index and its
//   position only. Ids from num_choices on do not exist, whatever their logits. Greedy takes the
//   lowest id among equal maxima. NaN logits are never chosen unless all are NaN (then token 0).
// Based on: nucleus sampling (Holtzman et al., 1904.09751). Order: temperature, top-k, top-p;
//   random numbers from base/rng.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sampling_params.h"
#include "device/device.h"

namespace tandem {

struct SampleRow {
  SamplingParams params;
  uint32_t sample_index = 0;
  int64_t position = 0;    // of the token that is chosen
  int32_t logits_row = 0;  // into the logits
  int32_t out_index = 0;   // into `out`
};

struct SampleArgs {
  const float* logits = nullptr;  // [.., vocab_size]
  int32_t vocab_size = 0;
  int32_t num_choices = 0;          // only ids below it are chosen; 1 .. vocab_size
  const SampleRow* rows = nullptr;  // [num_rows], unchanged until the step has finished
  int32_t num_rows = 0;
  int32_t* out = nullptr;
  std::byte* scratch = nullptr;  // SampleScratchBytes(vocab_size, num_rows)
};

size_t SampleScratchBytes(int32_t vocab_size, int32_t max_rows);
void SampleRows(Stream& stream, const SampleArgs& args);

}  // namespace tandem
