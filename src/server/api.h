// What: the routes: which path and method does what, and who may.
// Not here: HTTP itself (http_server.h), an answer's life (answer.h), keys (access.h).
// Threads: Handle and ErrorResponse on I/O threads.
// Invariants: docs/formats/http-api.md and the OpenAPI description list the same routes, and tests
//   compare them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/access.h"
#include "server/http_server.h"
#include "server/server_state.h"

namespace tandem {

// For GET, HEAD is answered too; OPTIONS is answered everywhere.
struct ApiRoute {
  std::string_view method;
  std::string_view path;  // a last part "{id}" stands for the rest of the path
  bool open = false;      // needs no key
};
std::span<const ApiRoute> ApiRoutes();

class Api final : public HttpHandler {
 public:
  struct Options {
    // The server counts as stalled when there is work and no step has ended for so long.
    TimeNs stall_after = 30 * kNsPerS;
    std::function<int32_t()> connections = [] { return 0; };
    // See ServerConfig.
    bool answers_requests = true;
    std::function<std::vector<ExtraMetric>()> extra_metrics = [] {
      return std::vector<ExtraMetric>();
    };
  };
  Api(std::shared_ptr<ServerState> state, WorkerPool& workers, AccessPolicy access,
      Options options);

  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse ErrorResponse(int status, std::string_view message) override;

 private:
  // What is answered at once; none for a POST that passed all checks.
  std::optional<HttpResponse> AnswerNow(const HttpRequest& request, const ApiRoute* route);
  void Post(std::string_view path, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  HttpResponse Get(std::string_view route, std::string_view rest);
  HttpResponse Models() const;
  HttpResponse Model(std::string_view encoded_id);
  HttpResponse Ready() const;
  HttpResponse NotFound(const HttpRequest& request);
  HttpResponse NotAllowed(const HttpRequest& request, const std::string& allow);

  const std::shared_ptr<ServerState> state_;
  WorkerPool& workers_;
  const AccessPolicy access_;
  const Options options_;
  const std::string openapi_;
  const std::string tokenizer_info_;
};

}  // namespace tandem
