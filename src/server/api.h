// What: the routes: which path and method does what.
// Not here: HTTP itself (http_server.h), a completion's life (chat_completion.h).
// Threads: Handle and ErrorResponse on I/O threads.
// Invariants: docs/formats/http-api.md lists the same routes, and a test compares them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/http_server.h"
#include "server/server_state.h"

namespace tandem {

// For GET, HEAD is answered too; OPTIONS is answered everywhere.
struct ApiRoute {
  std::string_view method;
  std::string_view path;  // a last part "{id}" stands for the rest of the path
};
std::span<const ApiRoute> ApiRoutes();

class Api final : public HttpHandler {
 public:
  struct Options {
    // The server counts as stalled when there is work and no step has ended for so long.
    TimeNs stall_after = 30 * kNsPerS;
    std::function<int32_t()> connections = [] { return 0; };
  };
  Api(std::shared_ptr<ServerState> state, WorkerPool& workers, Options options)
      : state_(std::move(state)), workers_(workers), options_(std::move(options)) {}

  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse ErrorResponse(int status, std::string_view message) override;

 private:
  HttpResponse Get(std::string_view route, std::string_view rest);
  HttpResponse Models() const;
  HttpResponse Model(std::string_view encoded_id);
  HttpResponse Ready() const;
  HttpResponse NotAllowed(const HttpRequest& request, const std::string& allow);

  const std::shared_ptr<ServerState> state_;
  WorkerPool& workers_;
  const Options options_;
};

}  // namespace tandem
