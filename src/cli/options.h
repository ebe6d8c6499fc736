// What: the options of the commands as values, and the command line that fills them in.
// Not here: what the commands do.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/handoff_options.h"
#include "core/model_spec.h"
#include "core/sampling_params.h"

namespace tandem {

// Shared by every command that loads a model.
struct ModelOptions {
  std::string model_path;  // empty: the default model, $TANDEM_DEFAULT_MODEL
  std::string numerics = "fast";
  std::string kv_type;  // f32, f16, bf16, q8_0; empty: what goes with the numerics
  int32_t threads = 0;  // 0: the processors this process may use
  int32_t tensor_parallel = 1;
  std::string memory;     // C; empty: what the machine or the cgroup allows
  std::string kv_memory;  // empty: enough for max_seqs full contexts, at most half of what is left
  int32_t context_size = 0;  // 0: the model's own
  int32_t max_seqs = 16;
  int32_t slab_tokens = 256;
  int32_t token_budget = 512;
  int32_t chunk_tokens = 256;
  int32_t block_tokens = kDefaultTokensPerBlock;
  int32_t reserve_tokens = 1024;
  std::string policy = "chunked";
  // What is kept of finished prompts: by value, the least recently used go first, or nothing.
  std::string prefix_cache = "value";  // value, lru, off
  std::string reservation = "reserve-tokens";
  std::string preemption = "least-recompute";
  double itl_target_ms = 0;  // 0: none
  int32_t max_queue = 1024;
  std::string cache_dir;  // empty: the user's
  bool no_cache = false;
  std::string chat_template_path;  // empty: the model's own
  std::string record_path;         // empty: no event log
  bool record_tokens = false;      // as they are
};

// How `run` samples. What is not given comes from the model's authors (a folder's
// generation_config.json), else from kTerminalSampling.
struct TerminalOptions {
  std::string prompt;  // empty: chat, or the text on standard input
  std::string system;
  std::optional<int32_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  bool raw = false;         // no chat template: complete the prompt as it is
  bool no_stats = false;    // no figures after a chat's answers
  bool no_history = false;  // a chat forgets what was typed
};

// Suits small chat models.
inline constexpr SamplingParams kTerminalSampling = {.temperature = 0.2, .top_k = 0, .top_p = 0.9};

struct ServeOptions {
  std::string host = "127.0.0.1";
  int32_t port = 8080;
  std::vector<std::string> served_model_names;  // the first is listed; none: the file's name
  std::vector<std::string> api_keys;            // besides those of the file and $TANDEM_API_KEY
  std::string api_key_file;                     // one a line; empty: none
  std::vector<std::string> cors_origins;
  int32_t max_connections = 16'384;
  std::string max_body = "8M";
  int32_t idle_timeout_s = 120;
};

struct BenchOptions {
  std::string what;  // limits, fabric, decode, prefill
  int32_t batch = 1;
  int32_t prompt_tokens = 0;  // 0: 512 for prefill, 16 for decode
  int32_t output_tokens = 128;
  int32_t repeat = 5;
  bool json = false;
};

struct InspectOptions {
  std::string path;
  bool json = false;
};

// The types of a written file, by name.
struct TypeOptions {
  std::string type;
  std::string embedding_type;  // empty: as usual for `type`
};

struct SynthCommandOptions {
  std::string shape;  // a name, or the path of a config.json
  TypeOptions types;
  std::string output;
  uint64_t seed = 0;
};

struct QuantizeCommandOptions {
  std::string input;
  std::string output;
  TypeOptions types;
};

struct EvalOptions {
  std::string what;  // kl
  std::string against = "exact";
  std::string text_path;  // empty: the built-in text
  bool json = false;
};

// Without a wish to clear: list.
struct CacheOptions {
  std::string cache_dir;  // empty: the user's
  bool clear = false;
  std::optional<int32_t> clear_older_than_days;
};

struct SimulateOptions {
  std::string scenario_path;  // empty: replay_path is given
  std::string replay_path;
  bool print = false;  // the event log's records
  // Empty or none: the scenario's or the recorded run's.
  std::string policy;
  std::string prefix_cache;
  std::string reservation;
  std::optional<int32_t> token_budget;
  std::optional<int32_t> chunk_tokens;
  std::optional<int32_t> max_seqs;
  std::optional<double> itl_target_ms;
  bool json = false;
  std::string svg_path;  // empty: no picture
};

struct Options {
  std::string command;  // run, serve, inspect, bench, synth, quantize, eval, cache, simulate
  std::string log_level = "warning";
  std::string config_path;  // whose values are in the others already; empty: none
  ModelOptions model;
  TerminalOptions terminal;
  ServeOptions serve;
  HandoffOptions handoff;  // of serve
  BenchOptions bench;
  InspectOptions inspect;
  SynthCommandOptions synth;
  QuantizeCommandOptions quantize;
  EvalOptions eval;
  CacheOptions cache;
  SimulateOptions simulate;
};

// What the process should do after reading its command line: run a command, or exit at once (help
// was printed, or an error that names the flag).
struct ParsedCommandLine {
  std::optional<int> exit_code;
  Options options;
};
ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace tandem
