// What: RequestContext: what a request for text brings beside its body: when it came, whose it is,
//   and the deadlines in its headers.
// Not here: the same deadlines as fields of the body, which win (generation_fields.h).
// Threads: values and a pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/access.h"
#include "server/api_error.h"
#include "server/http_message.h"

namespace tandem {

inline constexpr std::string_view kDeadlineHeader = "x-deadline-ms";
inline constexpr std::string_view kTtftTargetHeader = "x-ttft-target-ms";

struct RequestContext {
  TimeNs arrival = 0;  // on the engine's clock
  std::string tenant;  // AccessPolicy::TenantOf
  std::optional<double> deadline_ms;
  std::optional<double> ttft_target_ms;
};

// 400 for a header that is no number in the range of its field.
ApiResult<RequestContext> ReadContext(const HttpRequest& request, const AccessPolicy& access,
                                      TimeNs arrival);

}  // namespace tandem
