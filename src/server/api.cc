#include "server/api.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "server/chat_completion.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kIdSuffix = "{id}";

constexpr ApiRoute kRoutes[] = {
    {"POST", "/v1/chat/completions"},
    {"GET", "/v1/models"},
    {"GET", "/v1/models/{id}"},
    {"GET", "/health"},
    {"GET", "/health/live"},
    {"GET", "/health/ready"},
    {"GET", "/metrics"},
    {"GET", "/version"},
};

bool Matches(const ApiRoute& route, std::string_view path) {
  if (!route.path.ends_with(kIdSuffix)) return path == route.path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - kIdSuffix.size());
  return path.starts_with(prefix) && path.size() > prefix.size();
}

const ApiRoute* FindRoute(std::string_view path) {
  for (const ApiRoute& route : kRoutes) {
    if (Matches(route, path)) return &route;
  }
  return nullptr;
}

HttpResponse JsonResponse(const OrderedJson& value, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return response;
}

OrderedJson ModelJson(const ServedModel& model, std::string_view id, int32_t context) {
  return {{"id", std::string(id)}, {"object", "model"},  {"created", model.created_s},
          {"owned_by", "tandem"},  {"root", model.name}, {"max_model_len", context}};
}

}  // namespace

std::span<const ApiRoute> ApiRoutes() { return kRoutes; }

void Api::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const ApiRoute* route = FindRoute(request.path);
  if (!route) {
    if (request.method == "OPTIONS" && request.path == "*") {
      return exchange->Respond({.status = 204, .headers = {{"Allow", "GET, HEAD, POST, OPTIONS"}}});
    }
    return exchange->Respond(state_->Fail(HttpLayerError(
        404, fmt::format("Unknown path: {} {}", request.method, request.path.substr(0, 256)))));
  }
  const bool get = route->method == "GET";
  const std::string allow = get ? "GET, HEAD, OPTIONS" : fmt::format("{}, OPTIONS", route->method);
  if (request.method == "OPTIONS") {
    return exchange->Respond({.status = 204, .headers = {{"Allow", allow}}});
  }
  if (request.method != route->method && !(get && request.method == "HEAD")) {
    return exchange->Respond(NotAllowed(request, allow));
  }
  if (get) {
    const size_t rest = route->path.find(kIdSuffix);
    return exchange->Respond(Get(route->path, rest == std::string_view::npos
                                                  ? std::string_view()
                                                  : std::string_view(request.path).substr(rest)));
  }
  ChatCompletion::Run(state_, workers_, std::move(request.body), std::move(exchange));
}

HttpResponse Api::ErrorResponse(int status, std::string_view message) {
  return state_->Fail(HttpLayerError(status, message));
}

HttpResponse Api::NotAllowed(const HttpRequest& request, const std::string& allow) {
  HttpResponse response = state_->Fail(HttpLayerError(
      405, fmt::format("{} is not allowed here: use {}.", request.method.substr(0, 32), allow)));
  response.headers.push_back({"Allow", allow});
  return response;
}

HttpResponse Api::Get(std::string_view route, std::string_view rest) {
  if (route == "/v1/models") return Models();
  if (route == "/v1/models/{id}") return Model(rest);
  if (route == "/health/live") return JsonResponse({{"status", "ok"}});
  if (route == "/health" || route == "/health/ready") return Ready();
  if (route == "/version") return JsonResponse({{"version", TANDEM_VERSION}});
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body =
      state_->metrics.Render(state_->engine.stats(), state_->model.name, options_.connections());
  return response;
}

HttpResponse Api::Models() const {
  const int32_t context = state_->engine.max_context_tokens();
  OrderedJson list = OrderedJson::array({ModelJson(state_->model, state_->model.name, context)});
  for (const std::string& alias : state_->model.aliases) {
    list.push_back(ModelJson(state_->model, alias, context));
  }
  return JsonResponse({{"object", "list"}, {"data", std::move(list)}});
}

HttpResponse Api::Model(std::string_view encoded_id) {
  const std::optional<std::string> id = PercentDecode(encoded_id);
  if (!id || !state_->model.Answers(*id)) {
    return state_->Fail(ModelNotFound(id.value_or(std::string(encoded_id))));
  }
  return JsonResponse(ModelJson(state_->model, *id, state_->engine.max_context_tokens()));
}

// Ready: it takes requests, and what it has taken moves on.
HttpResponse Api::Ready() const {
  const EngineStats stats = state_->engine.stats();
  const TimeNs step_age = state_->StepAge(stats);
  const bool draining = state_->draining.load();
  const bool stalled = step_age > options_.stall_after;
  const char* status = draining ? "draining" : stalled ? "stalled" : "ok";
  return JsonResponse({{"status", status},
                       {"requests_running", stats.requests_running},
                       {"requests_waiting", stats.requests_waiting},
                       {"step_age_s", static_cast<double>(step_age) / kNsPerS}},
                      draining || stalled ? 503 : 200);
}

}  // namespace tandem
