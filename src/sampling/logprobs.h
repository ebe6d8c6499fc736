// What: ReportLogprobs: log probabilities of given tokens, and of the likeliest ones, per row of
//   logits, on the stream.
// Not here: which positions are wanted (exec/), text (server/).
// Threads: as the stream.
// Invariants: an entry depends on its row's logits alone: they are summed in one fixed order
//   (logits_row.h), so batch, chunks and threads change no bit. The softmax is that of the model's
//   whole output row, as other engines and the reference implementation normalise it; only ids
//   below num_choices, which have a token, are listed or ranked. Tokens are in the order of falling
//   logits, equal ones by rising id. No entry is NaN or below kLeastLogprob, so that all can be
//   written as JSON.
// Cost: two passes over the row; the exponentials have a relative error below 3e-7, which is the
//   absolute error of the logarithm.
#pragma once

#include <cstdint>

#include "core/sampling_params.h"
#include "device/device.h"

namespace tandem {

// Stands for all that is less likely, as in OpenAI's API.
inline constexpr float kLeastLogprob = -9999.0f;

struct LogprobRow {
  int32_t logits_row = 0;
  int32_t token = -1;       // the token in question; below 0: tokens[token_index]
  int32_t token_index = 0;  // so that it may be one that the stream has yet to choose
  int32_t num_top = 0;      // at most kMaxTopLogprobs
  int32_t out_begin = 0;    // of 1 + num_top entries; where too few tokens exist, the last repeats
};

// All pointers are device memory that stays unchanged until the step has finished.
struct LogprobArgs {
  const float* logits = nullptr;  // [.., vocab_size]
  int32_t vocab_size = 0;
  int32_t num_choices = 0;
  const LogprobRow* rows = nullptr;  // [num_rows]
  int32_t num_rows = 0;
  const int32_t* tokens = nullptr;
  TokenLogprob* out = nullptr;
};
void ReportLogprobs(Stream& stream, const LogprobArgs& args);

}  // namespace tandem
