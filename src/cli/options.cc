#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "device/cpu_device.h"
#include "kernels/ops.h"

namespace tandem {
namespace {

constexpr const char* kDescription =
    "Tandem: run and serve open-weights language models.\n\n"
    "  tandem \"PROMPT\"            answer in the terminal\n"
    "  tandem                     chat in the terminal\n"
    "  tandem serve               serve the OpenAI API on 127.0.0.1:8080\n"
    "  tandem inspect FILE|DIR    what is in a model\n"
    "  tandem bench limits        how fast this machine is\n"
    "  tandem bench decode        how fast the model runs on it\n"
    "  tandem eval kl             what --numerics costs in accuracy\n"
    "  tandem quantize IN OUT     another type for a model's weights\n"
    "  tandem synth               a model file with random weights\n\n"
    "Without a command, `run` is meant. `tandem COMMAND --help` lists a command's flags.";

constexpr const char* kCommands[] = {"run",   "serve",    "inspect", "bench",
                                     "synth", "quantize", "eval"};
constexpr double kMaxTemperature = 2.0;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

// What every command needs that loads a model.
void AddLoadFlags(CLI::App* app, ModelOptions* o) {
  app->add_option("-m,--model", o->model_path, "GGUF file (default: $TANDEM_DEFAULT_MODEL)")
      ->type_name("FILE");
  app->add_option("--numerics", o->numerics,
                  "fast: 8-bit activations, f16 KV; exact: f32 throughout, the oracle")
      ->check(CLI::IsMember({"fast", "exact"}))
      ->capture_default_str();
  app->add_option("-t,--threads", o->threads, "Worker threads (default: all processors we may use)")
      ->check(CLI::Range(1, 1024));
  app->add_option("--cache-dir", o->cache_dir,
                  "Where packed weights are kept (default: ~/.cache/tandem)")
      ->type_name("DIR");
  app->add_flag("--no-cache", o->no_cache, "Keep packed weights in memory only");
}

void AddModelFlags(CLI::App* app, ModelOptions* o) {
  const auto positive = CLI::Range(1, kMaxInt);
  AddLoadFlags(app, o);
  app->add_option("--tensor-parallel", o->tensor_parallel,
                  "Ranks that share each layer, in this process")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--memory", o->memory,
                  "Memory that may be used, like 8G (default: the machine's or the cgroup's)")
      ->type_name("SIZE");
  app->add_option("--kv-memory", o->kv_memory,
                  "Of that, for the KV cache (default: what --max-seqs needs)")
      ->type_name("SIZE");
  app->add_option("-c,--ctx-size", o->context_size,
                  "Most tokens of one sequence (default: the model's)")
      ->check(positive);
  app->add_option("--max-seqs", o->max_seqs, "Most sequences that run at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("--token-budget", o->token_budget, "Most tokens of one step, decodes first")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--chunk-tokens", o->chunk_tokens,
                  "Most prompt tokens of one request in one step")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--slab-tokens", o->slab_tokens,
                  "Tokens that run through the layers together; bounds activations")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app->add_option("--block-tokens", o->block_tokens, "Tokens of one KV block")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("--reserve-tokens", o->reserve_tokens,
                  "Output reserved for a request that states no limit")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--max-queue", o->max_queue, "Most requests that wait")
      ->check(positive)
      ->capture_default_str();
}

void AddTerminalFlags(CLI::App* app, TerminalOptions* o) {
  app->add_option("prompt", o->prompt, "What to ask; none opens a chat")->type_name("PROMPT");
  app->add_option("-s,--system", o->system, "System message")->type_name("TEXT");
  app->add_option("-n,--max-tokens", o->max_tokens, "Most tokens of an answer")
      ->check(CLI::Range(1, kMaxInt));
  app->add_option("--temperature", o->temperature,
                  "0 is greedy (default: the model's own, else 0.2)")
      ->check(CLI::Range(0.0, kMaxTemperature));
  app->add_option("--top-p", o->top_p,
                  "Probability mass to choose from (default: the model's own, else 0.9)")
      ->check(CLI::Range(1e-9, 1.0));
  app->add_option("--top-k", o->top_k,
                  "Most tokens to choose from; 0: no limit (default: the model's own, else 0)")
      ->check(CLI::Range(0, kMaxInt));
  app->add_option("--seed", o->seed, "Same seed, same answer (default: chosen at start)");
  app->add_flag("--raw", o->raw, "Complete the prompt as it is, without the chat template");
}

void AddServeFlags(CLI::App* app, ServeOptions* o) {
  app->add_option("--host", o->host, "Address to listen on")->capture_default_str();
  app->add_option("-p,--port", o->port, "Port; 0 chooses a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--served-model-name", o->served_model_name,
                  "Name in the API (default: the file's name)")
      ->type_name("NAME");
}

void AddBenchFlags(CLI::App* app, BenchOptions* o) {
  app->add_option("what", o->what, "limits: the machine; decode, prefill: the model on it")
      ->required()
      ->check(CLI::IsMember({"limits", "decode", "prefill"}));
  app->add_option("-b,--batch", o->batch, "Sequences at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("--prompt-tokens", o->prompt_tokens,
                  "Prompt length (default: 16 for decode, 512 for prefill)")
      ->check(CLI::Range(1, kMaxInt));
  app->add_option("--output-tokens", o->output_tokens,
                  "Tokens that each sequence generates (decode)")
      ->check(CLI::Range(2, kMaxInt))
      ->capture_default_str();
  app->add_option("-r,--repeat", o->repeat, "Repetitions; medians are printed")
      ->check(CLI::Range(1, 1000))
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
  app->add_option("--seed", o->seed, "Same seed, same bytes")->capture_default_str();
}

void AddQuantizeFlags(CLI::App* app, QuantizeCommandOptions* o) {
  app->add_option("in", o->input, "GGUF file to read")->required()->type_name("IN");
  app->add_option("out", o->output, "GGUF file to write")->required()->type_name("OUT");
  AddTypeFlags(app, &o->types);
}

void AddEvalFlags(CLI::App* app, EvalOptions* o) {
  app->add_option("what", o->what, "kl: how far --numerics is from --against")
      ->required()
      ->check(CLI::IsMember({"kl"}));
  app->add_option("--against", o->against, "The numerics that count as right")
      ->check(CLI::IsMember({"fast", "exact"}))
      ->capture_default_str();
  app->add_option("--text", o->text_path, "Text to evaluate (default: a built-in one)")
      ->type_name("FILE");
  app->add_flag("--json", o->json, "Print JSON");
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// The flag of `app` that is closest to `wrong`, or "".
std::string NearestFlag(const CLI::App& app, const std::string& wrong) {
  std::string best;
  size_t best_distance = wrong.size() / 2 + 1;  // farther is no typing error
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::string flag = "--" + name;
      // A word of the flag's own ("--max-sequences" for "--max-seqs") counts as close as one typing
      // error.
      const size_t distance =
          std::min(EditDistance(wrong, flag), flag.starts_with(wrong) ? size_t{1} : flag.size());
      if (distance < best_distance) {
        best_distance = distance;
        best = flag;
      }
    }
  }
  return best;
}

// 2, as good Unix tools say for wrong usage.
int PrintUsageError(const CLI::App& command, const CLI::ParseError& error) {
  std::string message = error.what();
  if (const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&error); extras != nullptr) {
    const std::vector<std::string> unknown = command.remaining(/*recurse=*/true);
    const std::string first = unknown.empty() ? "" : unknown.front();
    const std::string flag = first.substr(0, first.find('='));
    if (first.starts_with("-")) {
      message = fmt::format("unknown flag {}", flag);
      const std::string nearest = NearestFlag(command, flag);
      if (!nearest.empty()) message += fmt::format("; did you mean {}?", nearest);
    } else {
      message =
          fmt::format("unexpected argument '{}'; put a prompt of several words in quotes", first);
    }
  }
  std::fprintf(stderr, "tandem: %s\n", message.c_str());
  std::fprintf(stderr, "Try 'tandem %s --help'.\n", command.get_name().c_str());
  return 2;
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

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  ParsedCommandLine parsed;
  Options& o = parsed.options;
  CLI::App app(kDescription, "tandem");
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText());
  CLI::App* run = app.add_subcommand("run", "Answer a prompt, or chat, in the terminal");
  CLI::App* serve = app.add_subcommand("serve", "Serve the OpenAI HTTP API");
  CLI::App* inspect = app.add_subcommand("inspect", "Show what is in a model file");
  CLI::App* bench = app.add_subcommand("bench", "Measure the machine, and the model on it");
  CLI::App* eval = app.add_subcommand("eval", "Measure what a numerics costs in accuracy");
  CLI::App* quantize = app.add_subcommand("quantize", "Write a model with weights of another type");
  CLI::App* synth = app.add_subcommand("synth", "Write a model with random weights");
  AddTerminalFlags(run, &o.terminal);
  AddServeFlags(serve, &o.serve);
  AddBenchFlags(bench, &o.bench);
  inspect->add_option("file", o.inspect.path, "GGUF file")->required()->type_name("FILE");
  inspect->add_flag("--json", o.inspect.json, "Print JSON");
  AddEvalFlags(eval, &o.eval);
  AddLoadFlags(eval, &o.model);
  AddQuantizeFlags(quantize, &o.quantize);
  AddSynthFlags(synth, &o.synth);
  for (CLI::App* command : {run, serve, bench}) AddModelFlags(command, &o.model);
  for (CLI::App* command : {run, serve, inspect, bench, eval, quantize, synth}) {
    command->add_option("--log-level", o.log_level, "debug, info, warning, error or off")
        ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
        ->capture_default_str();
  }

  std::vector<std::string> args = WithCommand(argc, argv);
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
  try {
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    std::fputs((chosen.empty() ? app.help() : chosen.front()->help("tandem")).c_str(), stdout);
    parsed.exit_code = 0;
  } catch (const CLI::CallForVersion& version) {
    std::puts(version.what());
    parsed.exit_code = 0;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    parsed.exit_code = PrintUsageError(chosen.empty() ? app : *chosen.front(), error);
  }
  if (!parsed.exit_code.has_value()) o.command = app.get_subcommands().front()->get_name();
  return parsed;
}

}  // namespace tandem
