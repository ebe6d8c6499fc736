#include "server/server_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace tandem {
namespace {

uint64_t SystemEntropy() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

ServerState::ServerState(ServedModel served, EngineClient& engine_client, const Clock& engine_clock)
    : model(std::move(served)),
      prompt(model.tokenizer, model.chat_template),
      engine(engine_client),
      clock(engine_clock),
      random_(SystemEntropy()) {}

std::string ServerState::NewId(std::string_view prefix) {
  MutexLock lock(mutex_);
  const uint64_t high = random_.Next();
  return fmt::format("{}{:016x}{:016x}", prefix, high, random_.Next());
}

uint64_t ServerState::NewSeed() {
  MutexLock lock(mutex_);
  return random_.Next();
}

HttpResponse ServerState::Fail(const ApiError& error) {
  metrics.CountError(error.code);
  return ToResponse(error);
}

void ServerState::BeginWork() {
  MutexLock lock(mutex_);
  if (working_++ == 0) work_since_ = clock.Now();
}

void ServerState::EndWork() {
  MutexLock lock(mutex_);
  --working_;
}

TimeNs ServerState::StepAge(const EngineStats& stats) const {
  MutexLock lock(mutex_);
  if (working_ == 0) return 0;
  return std::max<TimeNs>(0, clock.Now() - std::max(stats.last_step_finished, work_since_));
}

}  // namespace tandem
