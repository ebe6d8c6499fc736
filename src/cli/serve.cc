// The command `serve`: the HTTP API over one model until a signal ends it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/handoff_metrics.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/runtime.h"
#include "exec/memory_plan.h"
#include "os/file.h"
#include "server/server.h"
#include "text/answer_parser.h"

namespace tandem {
namespace {

constexpr size_t kApiKeyFileBytesMax = size_t{1} << 20;
constexpr auto kSignalPollInterval = std::chrono::milliseconds(50);

ServedModel MakeServedModel(const Runtime& runtime, const ServeOptions& options) {
  ServedModel model;
  model.name = options.served_model_names.empty() ? runtime.model_name()
                                                  : options.served_model_names.front();
  if (options.served_model_names.size() > 1) {
    model.aliases.assign(options.served_model_names.begin() + 1, options.served_model_names.end());
  }
  model.created_s = std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  model.fingerprint = fmt::format("tandem-{}-{}-{}", TANDEM_VERSION, NameOf(runtime.numerics()),
                                  runtime.spec().identity.ToHex().substr(0, 12));
  model.tokenizer = runtime.tokenizer();
  model.chat_template = runtime.chat_template();
  model.chat_template_source = runtime.chat_template_source();
  model.answer_format = AnswerFormatOf(runtime.chat_template_source());
  model.stop_tokens = runtime.StopTokens();
  const GenerationDefaults& defaults = runtime.generation_defaults();
  if (defaults.temperature.has_value()) model.default_sampling.temperature = *defaults.temperature;
  if (defaults.top_p.has_value()) model.default_sampling.top_p = *defaults.top_p;
  if (defaults.top_k.has_value()) model.default_sampling.top_k = *defaults.top_k;
  return model;
}

// Every key that a request may carry: of the flags, the file and the environment.
Result<std::vector<std::string>> ApiKeys(const ServeOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  const char* const variable = std::getenv("TANDEM_API_KEY");
  if (variable != nullptr && *variable != '\0') keys.emplace_back(variable);
  if (options.api_key_file.empty()) return keys;
  TANDEM_ASSIGN_OR_RETURN(
      const std::string text,
      ReadSmallFile(RealFileSystem(), options.api_key_file, kApiKeyFileBytesMax));
  const size_t before = keys.size();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) {
      line.pop_back();
    }
    if (!line.empty() && !line.starts_with('#')) keys.push_back(std::move(line));
  }
  // An empty file by mistake must not open the server to all.
  if (keys.size() == before) {
    return InvalidArgumentError("{}: holds no key: write one a line", options.api_key_file);
  }
  return keys;
}

Result<ServerConfig> MakeServerConfig(const ServeOptions& options) {
  ServerConfig config;
  config.http.host = options.host;
  config.http.port = static_cast<uint16_t>(options.port);
  config.http.connections_max = options.max_connections;
  TANDEM_ASSIGN_OR_RETURN(const int64_t body_bytes, ParseBytes(options.max_body));
  config.http.body_bytes_max = static_cast<size_t>(body_bytes);
  config.http.all_bodies_bytes_max =
      std::max(config.http.all_bodies_bytes_max, config.http.body_bytes_max);
  config.http.idle_timeout_ms = int64_t{options.idle_timeout_s} * 1000;
  TANDEM_ASSIGN_OR_RETURN(config.api_keys, ApiKeys(options));
  config.cors_origins = options.cors_origins;
  return config;
}

// "hand-off: takes prompts at 127.0.0.1:9100; has prompts computed by others".
std::string HandoffText(const HandoffOptions& options, const HandoffNode& node) {
  std::string text = fmt::format("hand-off ({}):", options.role);
  if (options.sends()) text += fmt::format(" computes prompts for others at {}", node.address());
  if (options.sends() && options.fetches()) text += ";";
  if (options.fetches()) {
    text += fmt::format(" prompts that lack {} tokens or more are computed by others",
                        options.min_tokens);
  }
  return text;
}

// Waits until what this node computes for others has been delivered, or a second signal.
void FinishSends(const HandoffNode& node) {
  while (node.counts().messenger.sends_now > 0 && InterruptCounter::Count() < 2) {
    std::this_thread::sleep_for(kSignalPollInterval);
  }
}

// A name that is not known to be this machine's own counts as reachable from elsewhere.
bool IsLoopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "[::1]" || host == "localhost";
}

void WarnOfOpenDoor(const ServerConfig& config) {
  if (!config.api_keys.empty() || IsLoopback(config.http.host)) return;
  fmt::print(
      stderr,
      "tandem: warning: whoever reaches {} may use this server; --api-key-file FILE asks for "
      "a key\n",
      config.http.host);
}

// Serves until the first signal, drains until the second.
void ServeUntilSignalled(Server& server, EngineHost& engine) {
  while (InterruptCounter::Count() == 0) std::this_thread::sleep_for(kSignalPollInterval);
  fmt::print(stderr, "finishing the running requests; Ctrl-C again stops at once\n");
  engine.StopAdmission();
  std::atomic<bool> drained{false};
  std::thread drain([&] {
    server.Stop();
    drained.store(true);
  });
  while (!drained.load() && InterruptCounter::Count() < 2) {
    std::this_thread::sleep_for(kSignalPollInterval);
  }
  if (!drained.load()) server.StopNow();
  drain.join();
}

}  // namespace

int RunServe(const Options& options) {
  Result<ServerConfig> config = MakeServerConfig(options.serve);
  if (!config.ok()) return Fail(config.status());
  std::unique_ptr<Runtime> runtime;
  {
    ProgressBar bar("packing weights");
    auto created = Runtime::Create(
        options.model, [&bar](int64_t done, int64_t total) { bar.Update(done, total); },
        options.handoff);
    if (!created.ok()) return Fail(created.status());
    runtime = std::move(*created);
  }
  HandoffNode* const handoff = runtime->handoff();
  if (handoff != nullptr) {
    config->answers_requests = options.handoff.role != "prefill";
    config->extra_metrics = [handoff, engine = &runtime->engine()] {
      return HandoffMetrics(handoff->counts(), engine->stats().handoff);
    };
  }
  const InterruptCounter interrupts;
  auto server = Server::Create(*config, MakeServedModel(*runtime, options.serve), runtime->engine(),
                               runtime->clock());
  if (!server.ok()) return Fail(server.status());
  (*server)->Start();
  fmt::print("{}\n", runtime->memory().ToText());
  fmt::print("model {} ({}, {} layers, numerics {}), up to {} sequences of {} tokens\n",
             runtime->model_name(), runtime->spec().architecture, runtime->spec().num_layers,
             NameOf(runtime->numerics()), options.model.max_seqs,
             runtime->engine().max_context_tokens());
  if (handoff != nullptr) fmt::print("{}\n", HandoffText(options.handoff, *handoff));
  WarnOfOpenDoor(*config);
  fmt::print("listening on http://{}:{}{}\n", options.serve.host, (*server)->port(),
             config->api_keys.empty() ? "" : ", with API keys");
  std::fflush(stdout);
  ServeUntilSignalled(**server, runtime->engine());
  if (handoff != nullptr) FinishSends(*handoff);
  return 0;
}

}  // namespace tandem
