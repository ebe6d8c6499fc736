// The command `serve`: the HTTP API over one model until a signal ends it.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/runtime.h"
#include "server/server.h"

namespace tandem {
namespace {

constexpr auto kSignalPollInterval = std::chrono::milliseconds(50);

ServedModel MakeServedModel(const Runtime& runtime, const ServeOptions& options) {
  ServedModel model;
  model.name = options.served_model_name.empty() ? runtime.model_name() : options.served_model_name;
  model.created_s = std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  model.fingerprint = fmt::format("tandem-{}-{}-{}", TANDEM_VERSION, NameOf(runtime.numerics()),
                                  runtime.spec().identity.ToHex().substr(0, 12));
  model.tokenizer = runtime.tokenizer();
  model.chat_template = runtime.chat_template();
  model.stop_tokens = runtime.StopTokens();
  const GenerationDefaults& defaults = runtime.generation_defaults();
  if (defaults.temperature.has_value()) model.default_sampling.temperature = *defaults.temperature;
  if (defaults.top_p.has_value()) model.default_sampling.top_p = *defaults.top_p;
  if (defaults.top_k.has_value()) model.default_sampling.top_k = *defaults.top_k;
  return model;
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
  std::unique_ptr<Runtime> runtime;
  {
    ProgressBar bar("packing weights");
    auto created = Runtime::Create(
        options.model, [&bar](int64_t done, int64_t total) { bar.Update(done, total); });
    if (!created.ok()) return Fail(created.status());
    runtime = std::move(*created);
  }
  ServerConfig config;
  config.http.host = options.serve.host;
  config.http.port = static_cast<uint16_t>(options.serve.port);
  const InterruptCounter interrupts;
  auto server = Server::Create(config, MakeServedModel(*runtime, options.serve), runtime->engine(),
                               runtime->clock());
  if (!server.ok()) return Fail(server.status());
  (*server)->Start();
  fmt::print("{}\n", runtime->memory().ToText());
  fmt::print("model {} ({}, {} layers, numerics {}), up to {} sequences of {} tokens\n",
             runtime->model_name(), runtime->spec().architecture, runtime->spec().num_layers,
             NameOf(runtime->numerics()), options.model.max_seqs,
             runtime->engine().max_context_tokens());
  fmt::print("listening on http://{}:{}\n", options.serve.host, (*server)->port());
  std::fflush(stdout);
  ServeUntilSignalled(**server, runtime->engine());
  return 0;
}

}  // namespace tandem
