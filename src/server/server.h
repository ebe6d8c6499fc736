// What: Server: the OpenAI-compatible HTTP server over one engine and one model.
// Not here: signals, flags, the engine itself (cli/).
// Threads: Create, Start and the destructor on one thread; port, Stop and StopNow on any but the
//   server's own.
// Invariants: the server waits for no inference; every error has one documented status
//   (docs/formats/http-api.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "core/engine_client.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/served_model.h"

namespace tandem {

struct ServerConfig {
  HttpConfig http;
  // Parse and tokenise prompts, beside the I/O threads.
  int worker_threads = 1;
  // /health turns to 503 when there is work and no step has ended for so long.
  TimeNs stall_after = 30 * kNsPerS;
  // A request must carry one of these as "Authorization: Bearer KEY", else 401; only /health and
  // /health/live are open to all. Empty: everything is. No key may be empty or have a blank or
  // control character in it.
  std::vector<std::string> api_keys;
  // Origins of web pages whose scripts may use the API ("https://host:port"), or "*" for all of
  // them. Empty: none, as browsers have it by default.
  std::vector<std::string> cors_origins;
  // False: a prefill node. Completions are answered with 421, everything else as usual.
  bool answers_requests = true;
  // Numbers for /metrics that neither the server nor the engine counts. From any thread.
  std::function<std::vector<ExtraMetric>()> extra_metrics;
};

class Server {
 public:
  // Binds and listens, so that the port is known and taken. `engine` and `clock` (the one the
  // engine uses) must outlive the server; the engine may still hold sinks of it afterwards. Errors:
  // those of HttpServer::Create, INVALID_ARGUMENT for a model without name or tokenizer, for a
  // key or an origin that no client could send.
  static Result<std::unique_ptr<Server>> Create(const ServerConfig& config, ServedModel model,
                                                EngineClient& engine, const Clock& clock);
  // As StopNow.
  ~Server();

  void Start();
  uint16_t port() const;

  // Takes no more requests, and returns when those it has are answered.
  void Stop();
  // Cancels every request and closes every connection; a Stop that waits returns.
  void StopNow();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
