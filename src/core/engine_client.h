// What: the seam between whoever has requests (server, terminal) and the engine.
// Not here: text and HTTP; what is behind it (cli/engine_host.h, fakes in tests).
// Threads: every method from any thread. Sinks are called on the engine's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "core/engine_stats.h"
#include "core/request.h"

namespace tandem {

// Receives one request's outputs, in order; the last has `finish` set, and the sink is destroyed
// after it.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Must not block and must not call back into the engine client.
  virtual void OnOutput(const RequestOutput& output) = 0;
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  // Queues a request; its id is chosen here and returned at once. Its arrival, on the engine's
  // clock, is kept if it is set, so that deadlines count from the client's call; else it is now.
  // Errors: RESOURCE_EXHAUSTED (queue full: retry later), OUT_OF_RANGE (can never fit, with the
  // numbers), INVALID_ARGUMENT, UNAVAILABLE (shutting down). On an error the sink is destroyed
  // without a call.
  virtual Result<RequestId> Submit(Request request, std::unique_ptr<RequestSink> sink) = 0;

  // Stops a request; its sink gets a last output with kCancelled unless it has ended already.
  // Unknown ids are ignored.
  virtual void Cancel(RequestId id) = 0;

  // The most tokens (prompt + output) a request may hold.
  virtual int32_t max_context_tokens() const = 0;

  virtual EngineStats stats() const = 0;
};

}  // namespace tandem
