// What: everything that reaches the engine from outside, as timestamped values on one queue. The
//   same events and the same configuration give the same decisions: that is what replay means.
// Not here: the queue and the clock (the host's, cli/engine_host.h).
// Threads: values.
#pragma once

#include <variant>

#include "base/clock.h"
#include "base/ids.h"
#include "core/handoff_port.h"
#include "core/request.h"
#include "core/step_plan.h"

namespace tandem {

struct ArrivalEvent {
  Request request;
};

struct CancelEvent {
  RequestId request;
};

struct ResultEvent {
  StepResult result;
};

struct EngineEvent {
  TimeNs at = 0;
  std::variant<ArrivalEvent, CancelEvent, ResultEvent, HandoffEvent> body;
};

}  // namespace tandem
