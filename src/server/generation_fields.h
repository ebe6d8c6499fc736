// What: the fields that all requests for text share (sampling, limits, stops, streaming), with
//   their ranges and use.
// Not here: the fields of one endpoint (chat_request.h, completion_request.h), which tokens the
//   model has (answer_plan.h).
// Threads: values and pure functions.
// Invariants: docs/formats/http-api.md shows the same table, and a test compares them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/sampling_params.h"
#include "server/api_error.h"
#include "server/field_info.h"

namespace tandem {

// OpenAI's limits of "stop" and "n".
inline constexpr size_t kStopStringsMax = 4;
inline constexpr int64_t kStopCharsMax = 1024;  // of each stop string
inline constexpr int32_t kSamplesMax = 128;
// The model's own stop tokens need places too.
inline constexpr size_t kStopTokenIdsMax = kMaxStopTokens / 2;
// Prompts times samples of one request: each is a place in the engine's queue.
inline constexpr int32_t kChoicesMax = 256;

// Of cache_salt; a random one or a name needs far less.
inline constexpr int64_t kCacheSaltCharsMax = 256;
// Of deadlines: eleven days, beyond any.
inline constexpr double kDeadlineMsMax = 1e9;

// Where a stream's chunks say what has been used.
enum class UsageMode {
  kNone,        // nowhere: there is no "usage" at all
  kAtEnd,       // in a last chunk; "usage": null in all others
  kContinuous,  // in every chunk what has been used so far, and in a last one
};

struct GenerationFields {
  std::string model;
  std::optional<int32_t> max_tokens;  // of each answer; max_completion_tokens or max_tokens
  int32_t n = 1;
  std::optional<int64_t> seed;

  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int32_t> top_k;  // -1 and 0: no limit
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<LogitBias> logit_bias;  // each token at most once; ids are not checked

  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;  // ids are not checked
  bool ignore_eos = false;
  int32_t min_tokens = 0;  // at most max_tokens

  std::optional<std::string> cache_salt;  // or prompt_cache_key
  std::optional<double> deadline_ms;
  std::optional<double> ttft_target_ms;

  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;

  bool stream = false;
  bool include_usage = false;           // only with stream, as the next
  bool continuous_usage_stats = false;  // with include_usage only

  UsageMode usage_mode() const {
    if (!include_usage) return UsageMode::kNone;
    return continuous_usage_stats ? UsageMode::kContinuous : UsageMode::kAtEnd;
  }
};

// The shared fields, and those of "stream_options".
std::vector<FieldInfo> GenerationFieldInfos();
std::vector<FieldInfo> StreamOptionsFields();

}  // namespace tandem
