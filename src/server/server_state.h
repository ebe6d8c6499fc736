// What: what all requests of one server share: the served model, the engine, time, metrics,
//   workers.
// Not here: sockets (http_server.h), one request's life (answer.h).
// Threads: every method from any thread; the public members are immutable or synchronise
//   themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/rng.h"
#include "base/thread_annotations.h"
#include "core/engine_client.h"
#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/worker_pool.h"

namespace tandem {

class ServerState {
 public:
  // `engine` and `clock` (the engine's) must outlive every request.
  ServerState(ServedModel served, EngineClient& engine_client, const Clock& engine_clock);

  const ServedModel model;
  const ChatPrompt prompt;
  EngineClient& engine;
  const Clock& clock;
  ServerMetrics metrics;
  std::atomic<bool> draining{false};

  // `prefix` and 32 hex digits, different for every call.
  std::string NewId(std::string_view prefix);
  // For a request that names no seed.
  uint64_t NewSeed();

  // The error as an answer, counted.
  HttpResponse Fail(const ApiError& error);

  // Bracket every request that is in the engine.
  void BeginWork();
  void EndWork();
  // How long the engine has had work without finishing a step; 0 when it has none.
  TimeNs StepAge(const EngineStats& stats) const;

 private:
  mutable Mutex mutex_;
  SplitMix64 random_ TANDEM_GUARDED_BY(mutex_);
  int64_t working_ TANDEM_GUARDED_BY(mutex_) = 0;
  TimeNs work_since_ TANDEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem
