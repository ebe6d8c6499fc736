#include "server/api.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "server/answer.h"
#include "server/chat_endpoint.h"
#include "server/completion_endpoint.h"
#include "server/json_body.h"
#include "server/openapi.h"
#include "server/request_context.h"
#include "server/tokenize_endpoint.h"
#include "server/tokenizer_info.h"

namespace tandem {
namespace {

constexpr std::string_view kIdSuffix = "{id}";
constexpr size_t kShownPathBytesMax = 256;  // in an error

constexpr ApiRoute kRoutes[] = {
    {"POST", "/v1/chat/completions"},
    {"POST", "/v1/completions"},
    {"GET", "/v1/models"},
    {"GET", "/v1/models/{id}"},
    {"POST", "/tokenize"},
    {"POST", "/detokenize"},
    {"GET", "/tokenizer_info"},
    {"GET", "/health", /*open=*/true},
    {"GET", "/health/live", /*open=*/true},
    {"GET", "/health/ready"},
    {"GET", "/metrics"},
    {"GET", "/version"},
    {"GET", "/openapi.json"},
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

HttpResponse JsonResponse(const Json& value, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = DumpJson(value);
  return response;
}

// Answers with headers of its own beside the handler's.
class CorsExchange final : public HttpExchange {
 public:
  CorsExchange(std::shared_ptr<HttpExchange> inner, std::vector<HttpHeader> headers)
      : inner_(std::move(inner)), headers_(std::move(headers)) {}

  void Post(std::function<void()> task) override { inner_->Post(std::move(task)); }
  void OnAbort(std::function<void()> on_abort) override { inner_->OnAbort(std::move(on_abort)); }
  void Respond(HttpResponse response) override {
    inner_->Respond(WithHeaders(std::move(response)));
  }
  void StartStream(HttpResponse head) override {
    inner_->StartStream(WithHeaders(std::move(head)));
  }
  Status Write(std::string_view bytes) override { return inner_->Write(bytes); }
  void Finish(std::string_view last) override { inner_->Finish(last); }

 private:
  HttpResponse WithHeaders(HttpResponse response) const {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }

  const std::shared_ptr<HttpExchange> inner_;
  const std::vector<HttpHeader> headers_;
};

// What a page's <form> sends. A JSON object passes whatever it is called: some clients call every
// body a form.
bool IsForm(const HttpRequest& request) {
  const std::string_view type = request.Header("Content-Type");
  if (!type.starts_with("application/x-www-form-urlencoded") &&
      !type.starts_with("multipart/form-data")) {
    return false;
  }
  const size_t begin = request.body.find_first_not_of(" \t\r\n");
  return begin == std::string::npos || request.body[begin] != '{';
}

using WorkerCall = ApiResult<std::string> (*)(ServerState&, std::string_view body);

void RunOnWorker(std::shared_ptr<ServerState> state, WorkerPool& workers, WorkerCall call,
                 std::string body, std::shared_ptr<HttpExchange> exchange) {
  const bool queued = workers.Submit([=, body = std::move(body)] {
    ApiResult<std::string> result = call(*state, body);
    HttpResponse response;
    if (result.ok()) {
      response.body = std::move(result.value());
    } else {
      response = state->Fail(result.error());
    }
    exchange->Post([exchange, response = std::move(response)] { exchange->Respond(response); });
  });
  if (!queued) {
    exchange->Respond(
        state->Fail(ToApiError(ResourceExhaustedError("too many requests wait: try again"))));
  }
}

Json ModelJson(const ServedModel& model, std::string_view id, int32_t context) {
  return {{"id", std::string(id)}, {"object", "model"},  {"created", model.created_s},
          {"owned_by", "tandem"},  {"root", model.name}, {"max_model_len", context}};
}

}  // namespace

std::span<const ApiRoute> ApiRoutes() { return kRoutes; }

Api::Api(std::shared_ptr<ServerState> state, WorkerPool& workers, AccessPolicy access,
         Options options)
    : state_(std::move(state)),
      workers_(workers),
      access_(std::move(access)),
      options_(std::move(options)),
      openapi_(
          OpenApiJson(state_->model, state_->engine.max_context_tokens(), access_.needs_key())),
      tokenizer_info_(TokenizerInfoJson(state_->model, state_->engine.max_context_tokens())) {}

void Api::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  std::vector<HttpHeader> cors = access_.CorsHeaders(request);
  if (!cors.empty()) {
    exchange = std::make_shared<CorsExchange>(std::move(exchange), std::move(cors));
  }
  const ApiRoute* route = FindRoute(request.path);
  if (std::optional<HttpResponse> response = AnswerNow(request, route)) {
    return exchange->Respond(std::move(*response));
  }
  Post(route->path, std::move(request), std::move(exchange));
}

std::optional<HttpResponse> Api::AnswerNow(const HttpRequest& request, const ApiRoute* route) {
  const bool get = route && route->method == "GET";
  const std::string allow = !route ? "GET, HEAD, POST, OPTIONS"
                            : get  ? "GET, HEAD, OPTIONS"
                                   : fmt::format("{}, OPTIONS", route->method);
  if (route && access_.IsPreflight(request)) return access_.AnswerPreflight(request, allow);
  if (!route || !route->open) {
    if (auto error = access_.CheckKey(request)) {
      HttpResponse response = state_->Fail(*error);
      response.headers.push_back({"WWW-Authenticate", "Bearer"});
      return response;
    }
  }
  if (request.method == "OPTIONS" && (route || request.path == "*")) {
    return HttpResponse{.status = 204, .headers = {{"Allow", allow}}};
  }
  if (!route) return NotFound(request);
  if (request.method != route->method && !(get && request.method == "HEAD")) {
    return NotAllowed(request, allow);
  }
  if (get) {
    const size_t rest = route->path.find(kIdSuffix);
    return Get(route->path, rest == std::string_view::npos
                                ? std::string_view()
                                : std::string_view(request.path).substr(rest));
  }
  const std::string_view coding = request.Header("Content-Encoding");
  if (!coding.empty() && coding != "identity") {
    return state_->Fail(HttpLayerError(
        415, fmt::format("The body is encoded as '{}': send it as it is, without Content-Encoding.",
                         Shorten(coding))));
  }
  if (IsForm(request)) {
    return state_->Fail(HttpLayerError(
        415, "The body is form data: send a JSON object, as Content-Type: application/json."));
  }
  return std::nullopt;
}

void Api::Post(std::string_view path, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  if (path == "/tokenize" || path == "/detokenize") {
    return RunOnWorker(state_, workers_, path == "/tokenize" ? Tokenize : Detokenize,
                       std::move(request.body), std::move(exchange));
  }
  if (!options_.answers_requests) {
    return exchange->Respond(state_->Fail(HttpLayerError(
        421,
        "This is a prefill node: it computes prompts for decode nodes and answers no requests. "
        "Send them to a node with --role decode or both.")));
  }
  ApiResult<RequestContext> context = ReadContext(request, access_, state_->clock.Now());
  if (!context.ok()) return exchange->Respond(state_->Fail(context.error()));
  Answer::Run(state_, workers_, path == "/v1/completions" ? PlanCompletion : PlanChat,
              std::move(context.value()), std::move(request.body), std::move(exchange));
}

HttpResponse Api::ErrorResponse(int status, std::string_view message) {
  HttpResponse response = state_->Fail(HttpLayerError(status, message));
  for (HttpHeader& header : access_.CorsHeaders()) response.headers.push_back(std::move(header));
  return response;
}

HttpResponse Api::NotFound(const HttpRequest& request) {
  const std::string_view path = std::string_view(request.path).substr(0, kShownPathBytesMax);
  std::vector<std::string_view> known;
  for (const ApiRoute& route : kRoutes) {
    if (route.method == request.method || request.method != "POST") known.push_back(route.path);
  }
  // Most are a base URL without /v1, or with it twice.
  std::optional<std::string_view> meant;
  for (const std::string_view route : known) {
    const bool part = path.starts_with('/') && path.size() > 1 && route.ends_with(path);
    if (part || path.ends_with(route)) meant = route;
  }
  if (!meant) meant = NearestWord(path, known);
  return state_->Fail(
      HttpLayerError(404, fmt::format("Unknown path: {} {}{}", request.method, path,
                                      meant ? fmt::format(". Did you mean {}?", *meant) : "")));
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
  if (route == "/openapi.json") return {.body = openapi_};
  if (route == "/tokenizer_info") return {.body = tokenizer_info_};
  if (route == "/version") return JsonResponse({{"version", TANDEM_VERSION}});
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = state_->metrics.Render(state_->engine.stats(), state_->model.name,
                                         options_.connections(), options_.extra_metrics());
  return response;
}

HttpResponse Api::Models() const {
  const int32_t context = state_->engine.max_context_tokens();
  Json list = Json::array({ModelJson(state_->model, state_->model.name, context)});
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
