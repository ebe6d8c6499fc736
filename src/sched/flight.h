// What: Flight: a submitted step as the scheduler remembers it; StepOutcome: what it changed once
//   it has completed.
// Not here: who fills them in (scheduler.h).
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "sched/cost_model.h"
#include "sched/sequence_store.h"

namespace tandem {

// A row of a step in flight, or of the step in planning.
struct FlightRow {
  SequenceIndex sequence;
  uint64_t serial = 0;
  SlotId slot;
  int32_t position = 0;
  int32_t num_tokens = 0;
  bool prefill = false;
  bool sample = false;
  int32_t prompt_logprobs = 0;  // entries
  int32_t token_logprobs = 0;
};
struct Flight {
  StepId step;
  TimeNs planned = 0;
  StepTerms terms;
  std::vector<FlightRow> rows;
};
// What a completed row has for a sequence that still wants it.
struct CommittedRow {
  SequenceIndex sequence;
  std::optional<TokenId> token;  // chosen
  // Entries of StepResult::logprobs: of prompt tokens, and behind them of the chosen token.
  int32_t logprobs_begin = 0;
  int32_t prompt_logprobs = 0;
  int32_t token_logprobs = 0;
};

// What a completed step changed. Valid until the next call of Commit or Refused.
struct StepOutcome {
  std::vector<CommittedRow> rows;     // those with a token or log probabilities, in row order
  std::vector<SequenceIndex> failed;  // sequences whose rows came to nothing, in row order
  std::vector<SequenceIndex> sent;    // of sends: all is run, and delivered already
  int64_t prefill_tokens = 0;         // run by prefill rows
  int64_t recomputed_tokens = 0;      // of all tokens run, those that had been run before
};

}  // namespace tandem
