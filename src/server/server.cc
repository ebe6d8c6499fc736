#include "server/server.h"

#include <utility>

#include "server/api.h"
#include "server/server_state.h"
#include "server/worker_pool.h"

namespace tandem {

class Server::Impl {
 public:
  Impl(const ServerConfig& config, AccessPolicy access, ServedModel model, EngineClient& engine,
       const Clock& clock)
      : state_(std::make_shared<ServerState>(std::move(model), engine, clock)),
        workers_(config.worker_threads, static_cast<size_t>(config.http.connections_max)),
        api_(state_, workers_, std::move(access), ApiOptions(config)) {}

  // No request may run into members that are going.
  ~Impl() {
    if (http_) StopNow();
  }

  Status Listen(const HttpConfig& config) {
    TANDEM_ASSIGN_OR_RETURN(http_, HttpServer::Create(config, api_));
    return OkStatus();
  }

  void Stop() {
    state_->draining.store(true);
    http_->Stop();
  }
  void StopNow() {
    state_->draining.store(true);
    http_->StopNow();
  }
  HttpServer& http() { return *http_; }

 private:
  Api::Options ApiOptions(const ServerConfig& config) {
    Api::Options options;
    options.stall_after = config.stall_after;
    options.connections = [this] { return http_->connections(); };
    options.answers_requests = config.answers_requests;
    if (config.extra_metrics) options.extra_metrics = config.extra_metrics;
    return options;
  }

  // What is below uses what is above.
  const std::shared_ptr<ServerState> state_;
  WorkerPool workers_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
};

Result<std::unique_ptr<Server>> Server::Create(const ServerConfig& config, ServedModel model,
                                               EngineClient& engine, const Clock& clock) {
  if (model.name.empty()) return InvalidArgumentError("the served model has no name");
  if (!model.tokenizer) return InvalidArgumentError("{} has no tokenizer", model.name);
  if (config.worker_threads < 1 || config.worker_threads > 64) {
    return InvalidArgumentError("{} worker threads: use 1 to 64", config.worker_threads);
  }
  if (config.http.connections_max < 1) {
    return InvalidArgumentError("{} connections: at least 1", config.http.connections_max);
  }
  TANDEM_ASSIGN_OR_RETURN(AccessPolicy access,
                          AccessPolicy::Create(config.api_keys, config.cors_origins));
  auto impl = std::make_unique<Impl>(config, std::move(access), std::move(model), engine, clock);
  TANDEM_RETURN_IF_ERROR(impl->Listen(config.http));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
void Server::Start() { impl_->http().Start(); }
uint16_t Server::port() const { return impl_->http().port(); }
void Server::Stop() { impl_->Stop(); }
void Server::StopNow() { impl_->StopNow(); }

}  // namespace tandem
