#include "server/request_context.h"

#include <charconv>

#include "server/generation_table.h"

namespace tandem {
namespace {

MaybeError ReadHeader(const HttpRequest& request, std::string_view name,
                      std::optional<double>& out) {
  const std::string_view text = request.Header(name);
  if (text.empty()) return std::nullopt;
  double number = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || rest != text.data() + text.size()) {
    return ValueError(name, fmt::format("'{}' is no number of milliseconds", Shorten(text)));
  }
  return Store(ReadNumber(Json(number), name, kDeadlineType), out);
}

}  // namespace

ApiResult<RequestContext> ReadContext(const HttpRequest& request, const AccessPolicy& access,
                                      TimeNs arrival) {
  RequestContext context;
  context.arrival = arrival;
  context.tenant = access.TenantOf(request);
  if (auto error = ReadHeader(request, kDeadlineHeader, context.deadline_ms)) return *error;
  if (auto error = ReadHeader(request, kTtftTargetHeader, context.ttft_target_ms)) return *error;
  return context;
}

}  // namespace tandem
