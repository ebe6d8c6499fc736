#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "base/edit_distance.h"
#include "cli/config_file.h"
#include "cli/flag_checks.h"
#include "device/cpu_device.h"
#include "kernels/ops.h"
#include "os/file.h"

namespace tandem {
namespace {

constexpr const char* kDescription =
    "Tandem: run and serve open-weights language models.\n\n"
    "  tandem \"PROMPT\"            answer in the terminal\n"
    "  tandem                     chat in the terminal\n"
    "  tandem serve               serve the OpenAI API on 127.0.0.1:8080\n"
    "  tandem inspect FILE|DIR    what is in a model\n"
    "  tandem bench limits        how fast this machine is\n"
    "  tandem bench fabric        how fast pages go to another process\n"
    "  tandem bench decode        how fast the model runs on it\n"
    "  tandem eval kl             what --numerics costs in accuracy\n"
    "  tandem quantize IN OUT     another type for a model's weights\n"
    "  tandem synth               a model file with random weights\n"
    "  tandem cache               packed weights on disk, and their removal\n"
    "  tandem simulate SCENARIO   how requests would be scheduled\n\n"
    "Without a command, `run` is meant. `tandem COMMAND --help` lists a command's flags.";

constexpr const char* kCommands[] = {"run",      "serve", "inspect", "bench",   "synth",
                                     "quantize", "eval",  "cache",   "simulate"};
constexpr double kMaxTemperature = 2.0;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

// CLI11's help, with defaults in the text as for those that it does not know.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    constexpr std::string_view kGap = "\n\n\n";  // between groups
    for (size_t at = 0; (at = help.find(kGap, at)) != std::string::npos;) help.erase(at, 1);
    return help;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string text = option->get_description();
    if (option->get_required()) return text + " (required)";
    const std::string value = option->get_default_str();
    return value.empty() ? text : fmt::format("{} (default: {})", text, value);
  }
};

// Groups of the help.
constexpr const char* kModelGroup = "Model";
constexpr const char* kMemoryGroup = "Memory and batching";
constexpr const char* kSamplingGroup = "Sampling";
constexpr const char* kChatGroup = "Chat";
constexpr const char* kNetworkGroup = "Network";
constexpr const char* kAccessGroup = "Access";
constexpr const char* kLimitGroup = "Limits";
constexpr const char* kRecordGroup = "Record";
constexpr const char* kReplayGroup = "Replay";
constexpr const char* kGeneralGroup = "General";

// What every command needs that loads a model.
void AddLoadFlags(CLI::App* app, ModelOptions* o) {
  app->option_defaults()->group(kModelGroup);
  app->add_option("-m,--model", o->model_path,
                  "GGUF file or Hugging Face folder (default: $TANDEM_DEFAULT_MODEL)")
      ->type_name("PATH");
  app->add_option("--numerics", o->numerics,
                  "fast: 8-bit activations, f16 KV; exact: f32 throughout, the oracle")
      ->type_name("NAME")
      ->check(OneOf({"fast", "exact"}))
      ->capture_default_str();
  app->add_option("--kv-type", o->kv_type,
                  "How K and V are stored: f32, f16, bf16 or q8_0 (default: as --numerics says)")
      ->type_name("TYPE")
      ->check(OneOf({"f32", "f16", "bf16", "q8_0"}));
  app->add_option("-t,--threads", o->threads, "Worker threads (default: all processors we may use)")
      ->type_name("N")
      ->check(WholeNumber(1, 1024));
  app->add_option("--cache-dir", o->cache_dir,
                  "Where packed weights are kept (default: ~/.cache/tandem)")
      ->type_name("DIR");
  app->add_flag("--no-cache", o->no_cache, "Keep packed weights in memory only");
}

void AddTemplateFlag(CLI::App* app, ModelOptions* o) {
  app->add_option("--chat-template", o->chat_template_path,
                  "Jinja file to use in place of the model's chat template")
      ->group(kModelGroup)
      ->type_name("FILE");
}

void AddRecordFlags(CLI::App* app, ModelOptions* o) {
  app->add_option("--record", o->record_path,
                  "Write every event and decision of the scheduler to this new file, for "
                  "tandem simulate --replay")
      ->group(kRecordGroup)
      ->type_name("FILE");
  app->add_flag("--record-tokens", o->record_tokens,
                "With the tokens as they are, so that texts can be read from it; else renamed")
      ->group(kRecordGroup);
}

// docs/scheduler.md says what each does.
void AddPolicyFlags(CLI::App* app, ModelOptions* o) {
  app->add_option("--policy", o->policy, "static, continuous or chunked batching")
      ->type_name("NAME")
      ->check(OneOf({"static", "fixed", "continuous", "chunked"}))
      ->capture_default_str();
  app->add_option("--reservation", o->reservation,
                  "KV memory promised to a request: full, reserve-tokens or on-demand")
      ->type_name("NAME")
      ->check(OneOf({"full", "reserve-tokens", "on-demand"}))
      ->capture_default_str();
  app->add_option("--preemption", o->preemption,
                  "Who gives way when memory is short: least-recompute or last-admitted")
      ->type_name("NAME")
      ->check(OneOf({"least-recompute", "last-admitted"}))
      ->capture_default_str();
  app->add_option("--prefix-cache", o->prefix_cache,
                  "What to keep of past prompts for new ones that begin alike: value (what saves "
                  "most), lru or off")
      ->type_name("NAME")
      ->check(OneOf({"value", "lru", "off"}))
      ->capture_default_str();
  app->add_option("--itl-target-ms", o->itl_target_ms,
                  "Prompts beside answers take no more of a step than lets it end in this time "
                  "(default: no target)")
      ->type_name("MS")
      ->check(DecimalNumber(0, 3.6e6));
}

void AddModelFlags(CLI::App* app, ModelOptions* o) {
  AddLoadFlags(app, o);
  app->add_option("--tensor-parallel", o->tensor_parallel,
                  "Ranks that share each layer, in this process")
      ->type_name("N")
      ->check(WholeNumber(1, 64))
      ->capture_default_str();
  app->option_defaults()->group(kMemoryGroup);
  app->add_option("--memory", o->memory,
                  "Memory that may be used, like 8G (default: the machine's or the cgroup's)")
      ->type_name("SIZE")
      ->check(ByteSize());
  app->add_option("--kv-memory", o->kv_memory,
                  "Of that, for the KV cache (default: what --max-seqs needs)")
      ->type_name("SIZE")
      ->check(ByteSize());
  const auto add_count = [app](const char* flag, int32_t* value, int64_t high, const char* text) {
    return app->add_option(flag, *value, text)->type_name("N")->check(WholeNumber(1, high));
  };
  add_count("-c,--ctx-size", &o->context_size, kMaxInt,
            "Most tokens of one sequence (default: the model's)");
  add_count("--max-seqs", &o->max_seqs, 4096, "Most sequences that run at once")
      ->capture_default_str();
  add_count("--max-queue", &o->max_queue, kMaxInt, "Most requests that wait")
      ->capture_default_str();
  add_count("--token-budget", &o->token_budget, kMaxInt, "Most tokens of one step, decodes first")
      ->capture_default_str();
  add_count("--chunk-tokens", &o->chunk_tokens, kMaxInt,
            "Most prompt tokens of one request in one step")
      ->capture_default_str();
  add_count("--slab-tokens", &o->slab_tokens, 65536,
            "Tokens that run through the layers together; bounds activations")
      ->capture_default_str();
  add_count("--block-tokens", &o->block_tokens, 4096, "Tokens of one KV block")
      ->capture_default_str();
  add_count("--reserve-tokens", &o->reserve_tokens, kMaxInt,
            "Output reserved for a request that states no limit")
      ->capture_default_str();
  AddPolicyFlags(app, o);
}

void AddTerminalFlags(CLI::App* app, TerminalOptions* o) {
  app->option_defaults()->group(kChatGroup);
  app->add_option("prompt", o->prompt, "What to ask; none opens a chat")->type_name("PROMPT");
  app->add_option("-s,--system", o->system, "System message")->type_name("TEXT");
  app->add_flag("--raw", o->raw, "Complete the prompt as it is, without the chat template");
  app->add_flag("--no-stats", o->no_stats, "No line of figures after each answer of a chat");
  app->add_flag("--no-history", o->no_history,
                "Neither read nor keep what is typed (~/.local/state/tandem/chat_history)");
  app->option_defaults()->group(kSamplingGroup);
  app->add_option("-n,--max-tokens", o->max_tokens,
                  "Most tokens of an answer (default: what the context has room for)")
      ->type_name("N")
      ->check(WholeNumber(1, kMaxInt));
  app->add_option("--temperature", o->temperature,
                  "0 is greedy (default: the model's own, else 0.2)")
      ->type_name("X")
      ->check(DecimalNumber(0.0, kMaxTemperature));
  app->add_option("--top-p", o->top_p,
                  "Probability mass to choose from (default: the model's own, else 0.9)")
      ->type_name("X")
      ->check(DecimalNumber(1e-9, 1.0));
  app->add_option("--top-k", o->top_k,
                  "Most tokens to choose from; 0: no limit (default: the model's own, else 0)")
      ->type_name("N")
      ->check(WholeNumber(0, kMaxInt));
  app->add_option("--seed", o->seed, "Same seed, same answer (default: chosen at start)")
      ->type_name("N")
      ->check(WholeNumber(0, std::numeric_limits<int64_t>::max()));
  app->footer(
      "Examples:\n"
      "  tandem \"Why is the sky blue?\"                  one answer\n"
      "  tandem -m model.gguf                           chat with another model\n"
      "  tandem \"Summarise this.\" --temperature 0       the same answer each time\n"
      "  git diff | tandem --system \"Review this.\"      the prompt from a pipe\n"
      "  tandem -m base.gguf --raw \"Once upon a time\"   complete a text");
}

// May be given several times; each takes one value.
CLI::Option* AddList(CLI::App* app, const char* flag, std::vector<std::string>* values,
                     const char* text) {
  return app->add_option(flag, *values, text)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::Validator(
          [](std::string& value) { return value.empty() ? "may not be empty" : ""; }, ""));
}

void AddServeFlags(CLI::App* app, ServeOptions* o) {
  app->option_defaults()->group(kNetworkGroup);
  app->add_option("--host", o->host, "Address to listen on; 0.0.0.0: all of the machine's")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app->add_option("-p,--port", o->port, "Port; 0 chooses a free one")
      ->type_name("N")
      ->check(WholeNumber(0, 65535))
      ->capture_default_str();
  AddList(app, "--served-model-name", &o->served_model_names,
          "Name in the API (default: the file's); again: one more that it answers to")
      ->type_name("NAME");
  app->option_defaults()->group(kAccessGroup);
  AddList(app, "--api-key", &o->api_keys,
          "Key that requests must carry; again: one more. Seen by others in ps")
      ->type_name("KEY");
  app->add_option("--api-key-file", o->api_key_file,
                  "Keys, one a line; # begins a comment. $TANDEM_API_KEY is one more")
      ->type_name("FILE");
  AddList(app, "--cors-origin", &o->cors_origins,
          "Web page that may use the API, like https://app.example, or *; again: one more")
      ->type_name("ORIGIN");
  app->option_defaults()->group(kLimitGroup);
  app->add_option("--max-connections", o->max_connections,
                  "Open at once; further clients wait for one to close")
      ->type_name("N")
      ->check(WholeNumber(1, 1'000'000))
      ->capture_default_str();
  app->add_option("--max-body", o->max_body, "Largest request; a larger one is a 413")
      ->type_name("SIZE")
      ->check(ByteSize())
      ->capture_default_str();
  app->add_option("--idle-timeout", o->idle_timeout_s,
                  "Seconds until a connection without requests is closed")
      ->type_name("S")
      ->check(WholeNumber(1, 86'400))
      ->capture_default_str();
  app->footer(
      "Examples:\n"
      "  tandem serve                                     this machine only, port 8080\n"
      "  tandem serve -m model.gguf -p 9000 -c 4096       shorter contexts: less KV memory\n"
      "  tandem serve --host 0.0.0.0 --api-key-file keys  for the network, with keys\n"
      "  tandem serve --max-seqs 64 --memory 16G          more requests at once\n"
      "  tandem serve --role prefill --handoff-listen 127.0.0.1:9100\n"
      "  tandem serve --role decode --prefill 127.0.0.1:9100\n"
      "  tandem serve --config tandem.conf                lines like \"port = 9000\"");
}

void AddBenchFlags(CLI::App* app, BenchOptions* o) {
  app->add_option("what", o->what,
                  "limits: the machine; fabric: to another process; decode, prefill: the model on "
                  "it")
      ->required()
      ->check(OneOf({"limits", "fabric", "decode", "prefill"}));
  app->add_option("-b,--batch", o->batch, "Sequences at once")
      ->type_name("N")
      ->check(WholeNumber(1, 4096))
      ->capture_default_str();
  app->add_option("--prompt-tokens", o->prompt_tokens,
                  "Prompt length (default: 16 for decode, 512 for prefill)")
      ->type_name("N")
      ->check(WholeNumber(1, kMaxInt));
  app->add_option("--output-tokens", o->output_tokens,
                  "Tokens that each sequence generates (decode)")
      ->type_name("N")
      ->check(WholeNumber(2, kMaxInt))
      ->capture_default_str();
  app->add_option("-r,--repeat", o->repeat, "Repetitions; medians are printed")
      ->type_name("N")
      ->check(WholeNumber(1, 1000))
      ->capture_default_str();
  app->add_flag("--json", o->json, "Print JSON");
}

void AddTypeFlags(CLI::App* app, TypeOptions* o) {
  app->add_option("-T,--type", o->type, "Type of the matrices, like q4_0 (a wrong one lists all)")
      ->required()
      ->type_name("TYPE");
  app->add_option("--embedding-type", o->embedding_type,
                  "Type of the embedding and the output (default: as usual for --type)")
      ->type_name("TYPE");
}

void AddSynthFlags(CLI::App* app, SynthCommandOptions* o) {
  app->add_option("--shape", o->shape, "smollm2-135m, qwen3-0.6b, llama-3.2-1b, or a config.json")
      ->required()
      ->type_name("SHAPE");
  AddTypeFlags(app, &o->types);
  app->add_option("-o,--output", o->output, "File to write")->required()->type_name("FILE");
  app->add_option("--seed", o->seed, "Same seed, same bytes")
      ->type_name("N")
      ->check(WholeNumber(0, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
}

void AddQuantizeFlags(CLI::App* app, QuantizeCommandOptions* o) {
  app->add_option("in", o->input, "GGUF file to read")->required()->type_name("IN");
  app->add_option("out", o->output, "GGUF file to write")->required()->type_name("OUT");
  AddTypeFlags(app, &o->types);
}

void AddEvalFlags(CLI::App* app, EvalOptions* o) {
  app->add_option("what", o->what, "kl: how far --numerics is from --against")
      ->required()
      ->check(OneOf({"kl"}));
  app->add_option("--against", o->against, "The numerics that count as right")
      ->check(OneOf({"fast", "exact"}))
      ->capture_default_str();
  app->add_option("--text", o->text_path, "Text to evaluate (default: a built-in one)")
      ->type_name("FILE");
  app->add_flag("--json", o->json, "Print JSON");
}

void AddSimulateFlags(CLI::App* app, SimulateOptions* o) {
  app->add_option("scenario", o->scenario_path, "JSON file (docs/scheduler.md)")
      ->type_name("SCENARIO");
  app->add_option("--policy", o->policy, "static, continuous or chunked (default: the scenario's)")
      ->type_name("NAME")
      ->check(OneOf({"static", "fixed", "continuous", "chunked"}));
  app->add_flag("--json", o->json, "Print JSON: summary, steps, requests");
  app->add_option("--svg", o->svg_path, "Draw the timeline into this file")->type_name("FILE");
  app->option_defaults()->group(kReplayGroup);
  app->add_option(
         "--replay", o->replay_path,
         "Repeat a run that --record wrote and check every decision; with any of the flags "
         "below (or --policy), say what would have happened")
      ->type_name("FILE");
  app->add_flag("--print", o->print, "Print the records of that file, one a line");
  app->add_option("--prefix-cache", o->prefix_cache, "value, lru or off")
      ->type_name("NAME")
      ->check(OneOf({"value", "lru", "off"}));
  app->add_option("--reservation", o->reservation, "full, reserve-tokens or on-demand")
      ->type_name("NAME")
      ->check(OneOf({"full", "reserve-tokens", "on-demand"}));
  const auto add_count = [app](const char* flag, std::optional<int32_t>* value, const char* text) {
    app->add_option(flag, *value, text)->type_name("N")->check(WholeNumber(1, 1 << 24));
  };
  add_count("--token-budget", &o->token_budget, "Most tokens of one step");
  add_count("--chunk-tokens", &o->chunk_tokens, "Most prompt tokens of one request in one step");
  add_count("--max-seqs", &o->max_seqs, "Most sequences that run at once");
  app->add_option("--itl-target-ms", o->itl_target_ms, "Longest step with prompts; 0: no target")
      ->type_name("MS")
      ->check(DecimalNumber(0, 3.6e6));
}

void AddCacheFlags(CLI::App* app, CacheOptions* o) {
  app->add_flag("--clear", o->clear, "Remove all");
  app->add_option("--clear-older-than", o->clear_older_than_days,
                  "Remove those not used for so many days")
      ->type_name("DAYS")
      ->check(WholeNumber(0, 36'500));
  app->add_option("--cache-dir", o->cache_dir, "Where they are (default: ~/.cache/tandem)")
      ->type_name("DIR");
  app->footer(
      "The first start of a model writes its packed weights, later ones map them. Without a flag,\n"
      "lists them with the time of their last use. A model whose file is gone is packed anew.");
}

// The flags of `app`, with dashes.
std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// "; did you mean --FLAG?", or nothing.
std::string MeantFlag(const CLI::App& app, const std::string& wrong) {
  const std::vector<std::string> flags = FlagsOf(app);
  std::string meant;
  size_t least = wrong.size() / 2 + 1;  // farther is no slip
  for (const std::string& flag : flags) {
    // The beginning of a flag ("--thread") counts as close as one slip.
    const size_t distance =
        std::min(EditDistance(wrong, flag), flag.starts_with(wrong) ? size_t{1} : flag.size());
    if (distance < least) {
      least = distance;
      meant = flag;
    }
  }
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

// 2, as good Unix tools say for wrong usage.
int PrintUsageError(const CLI::App& command, const std::string& message) {
  std::fprintf(stderr, "tandem: %s\n", message.c_str());
  std::fprintf(stderr, "Try 'tandem %s --help'.\n", command.get_name().c_str());
  return 2;
}

std::string MessageOf(const CLI::App& command, const CLI::ParseError& error) {
  const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&error);
  if (extras == nullptr) return error.what();
  const std::vector<std::string> unknown = command.remaining(/*recurse=*/true);
  const std::string first = unknown.empty() ? "" : unknown.front();
  if (!first.starts_with("-")) {
    return fmt::format("unexpected argument '{}'; put a prompt of several words in quotes", first);
  }
  const std::string flag = first.substr(0, first.find('='));
  return fmt::format("unknown flag {}{}", flag, MeantFlag(command, flag));
}

// The option of `command` that a line of a configuration file may set.
Result<CLI::Option*> ConfigurableOption(CLI::App& command, const ConfigEntry& entry) {
  const std::string flag = "--" + entry.flag;
  if (flag == "--config" || flag == "--help") {
    return InvalidArgumentError("'{}' belongs on the command line", entry.flag);
  }
  CLI::Option* const option = command.get_option_no_throw(flag);
  if (option == nullptr) {
    return InvalidArgumentError("'tandem {}' has no flag {}{}", command.get_name(), flag,
                                MeantFlag(command, flag));
  }
  const bool is_switch = option->get_items_expected_max() == 0;
  if (is_switch && entry.value != "true" && entry.value != "false") {
    return InvalidArgumentError("{}: '{}' is not true or false", flag, entry.value);
  }
  return option;
}

// Sets what the command line has not; errors begin with the file and the line.
Status ApplyConfig(CLI::App& command, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(RealFileSystem(), path, kConfigBytesMax));
  const auto entries = ParseConfig(text);
  if (!entries.ok()) return InvalidArgumentError("{}:{}", path, entries.status().message());
  std::set<const CLI::Option*> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) given.insert(option);
  }
  std::map<CLI::Option*, int> set;  // and the line that did it last
  for (const ConfigEntry& entry : *entries) {
    const auto option = ConfigurableOption(command, entry);
    if (!option.ok()) {
      return InvalidArgumentError("{}:{}: {}", path, entry.line, option.status().message());
    }
    if (given.contains(*option)) continue;
    const bool is_list = (*option)->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    if (const auto before = set.find(*option); before != set.end() && !is_list) {
      return InvalidArgumentError("{}:{}: --{} is set on line {} already", path, entry.line,
                                  entry.flag, before->second);
    }
    (*option)->add_result(entry.value);
    set[*option] = entry.line;
    try {
      (*option)->run_callback();
    } catch (const CLI::ParseError& error) {
      return InvalidArgumentError("{}:{}: {}", path, entry.line, error.what());
    }
  }
  return OkStatus();
}

std::string VersionText() {
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("gcc {}", __VERSION__);
#endif
  return fmt::format("tandem {} ({}, kernels: {})", TANDEM_VERSION, compiler, CpuIsaName());
}

// The arguments with "run" put in front where no command is named.
std::vector<std::string> WithCommand(int argc, const char* const* argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  const bool named =
      !args.empty() &&
      (args[0] == "--help" || args[0] == "-h" || args[0] == "--version" ||
       std::find(std::begin(kCommands), std::end(kCommands), args[0]) != std::end(kCommands));
  if (!named) args.insert(args.begin(), "run");
  return args;
}

// The command that a first argument was meant to be, which would be taken for a prompt.
std::optional<std::string_view> MeantCommand(int argc, const char* const* argv) {
  if (argc < 2) return std::nullopt;
  const std::vector<std::string_view> commands(std::begin(kCommands), std::end(kCommands));
  const std::string_view word = argv[1];
  // "serv", not "hi": in a shorter word anything is a slip.
  if (word.size() < 4 || std::find(commands.begin(), commands.end(), word) != commands.end()) {
    return std::nullopt;
  }
  return NearestWord(word, commands);
}

void AddCommands(CLI::App* app, Options* o) {
  CLI::App* run = app->add_subcommand("run", "Answer a prompt, or chat, in the terminal");
  CLI::App* serve = app->add_subcommand("serve", "Serve the OpenAI HTTP API");
  CLI::App* inspect = app->add_subcommand("inspect", "Show what is in a model file");
  CLI::App* bench = app->add_subcommand("bench", "Measure the machine, and the model on it");
  CLI::App* eval = app->add_subcommand("eval", "Measure what a numerics costs in accuracy");
  CLI::App* quantize =
      app->add_subcommand("quantize", "Write a model with weights of another type");
  CLI::App* synth = app->add_subcommand("synth", "Write a model with random weights");
  CLI::App* cache = app->add_subcommand("cache", "List or remove packed weights");
  AddCacheFlags(cache, &o->cache);
  AddSimulateFlags(app->add_subcommand("simulate", "Run a scenario on a virtual clock"),
                   &o->simulate);
  AddTerminalFlags(run, &o->terminal);
  AddServeFlags(serve, &o->serve);
  AddHandoffFlags(serve, &o->handoff);
  AddBenchFlags(bench, &o->bench);
  inspect->add_option("file", o->inspect.path, "GGUF file")->required()->type_name("FILE");
  inspect->add_flag("--json", o->inspect.json, "Print JSON");
  AddEvalFlags(eval, &o->eval);
  AddLoadFlags(eval, &o->model);
  AddQuantizeFlags(quantize, &o->quantize);
  AddSynthFlags(synth, &o->synth);
  for (CLI::App* command : {run, serve, bench}) AddModelFlags(command, &o->model);
  for (CLI::App* command : {run, serve}) AddTemplateFlag(command, &o->model);
  for (CLI::App* command : {run, serve}) AddRecordFlags(command, &o->model);
  for (CLI::App* command : app->get_subcommands({})) {
    command->option_defaults()->group(kGeneralGroup);
    command->add_option("--log-level", o->log_level, "debug, info, warning, error or off")
        ->type_name("NAME")
        ->check(OneOf({"debug", "info", "warning", "error", "off"}))
        ->capture_default_str();
  }
  for (CLI::App* command : {run, serve, bench}) {
    command
        ->add_option("--config", o->config_path,
                     "Lines of \"flag = value\"; what the command line says counts more")
        ->type_name("FILE");
  }
  for (CLI::App* command : app->get_subcommands({})) {
    command->set_help_flag("-h,--help", "This list")->group(kGeneralGroup);  // now the last one
  }
}

// Fills in what `app` was told to; an exit code when there is nothing left to do.
std::optional<int> Parse(CLI::App& app, std::vector<std::string> args, Options* o) {
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
  try {
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    std::fputs((chosen.empty() ? app.help() : chosen.front()->help("tandem")).c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::puts(version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const CLI::App& command = chosen.empty() ? app : *chosen.front();
    return PrintUsageError(command, MessageOf(command, error));
  }
  CLI::App& command = *app.get_subcommands().front();
  o->command = command.get_name();
  Status status;
  if (!o->config_path.empty()) status = ApplyConfig(command, o->config_path);
  if (status.ok() && o->command == "serve") {
    status = CheckHandoffOptions(o->handoff, o->model.tensor_parallel);
  }
  if (!status.ok()) return PrintUsageError(command, status.message());
  return std::nullopt;
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  ParsedCommandLine parsed;
  if (const auto meant = MeantCommand(argc, argv)) {
    std::fprintf(stderr, "tandem: there is no command '%s'; did you mean %s?\n", argv[1],
                 std::string(*meant).c_str());
    std::fprintf(stderr, "To ask the model just that: tandem run '%s'\n", argv[1]);
    parsed.exit_code = 2;
    return parsed;
  }
  CLI::App app(kDescription, "tandem");
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText());
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(30);
  app.formatter(formatter);  // before the commands, which take it over
  AddCommands(&app, &parsed.options);
  parsed.exit_code = Parse(app, WithCommand(argc, argv), &parsed.options);
  return parsed;
}

}  // namespace tandem
