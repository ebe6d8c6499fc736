// What: EngineDriver: a FabricEngine for tests: polls it, remembers what ended, waits for things
//   with a generous limit.
// Not here: processes (child_process.h), the fake NIC (fake_nic.h).
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/fabric_engine.h"

namespace tandem {

inline constexpr TimeNs kPatience = 30 * kNsPerS;  // no test waits so long unless it fails

class EngineDriver {
 public:
  explicit EngineDriver(const FabricEngine::Config& config) {
    auto engine = FabricEngine::Create(config);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.status().ToString();
      std::abort();
    }
    engine_ = std::move(*engine);
  }

  FabricEngine& engine() { return *engine_; }
  TimeNs Now() const { return engine_->clock().Now(); }

  void Poll() {
    std::vector<FabricEvent> events;
    engine_->Poll(&events);
    for (FabricEvent& event : events) {
      if (auto* ended = std::get_if<TransferEnded>(&event)) {
        ended_[ended->transfer].push_back(ended->status);
      } else if (auto* met = std::get_if<ExpectationEnded>(&event)) {
        expectations_[met->first].push_back(*met);
      } else if (auto* message = std::get_if<MessageReceived>(&event)) {
        messages_.push_back(std::move(*message));
      } else if (auto* changed = std::get_if<PeerChanged>(&event)) {
        states_[changed->peer].push_back(changed->state);
      }
    }
  }

  // False when it does not come true in time.
  bool Until(const std::function<bool()>& condition, TimeNs patience = kPatience) {
    const TimeNs end = Now() + patience;
    while (true) {
      Poll();
      if (condition()) return true;
      if (Now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void Rest(TimeNs time) {
    Until([] { return false; }, time);
  }

  bool UntilState(PeerId peer, PeerState state) {
    return Until([&] { return !states_[peer].empty() && states_[peer].back() == state; });
  }
  // The status it ended with; INTERNAL when it does not end.
  Status EndOf(TransferId transfer) {
    if (!Until([&] { return ended_.contains(transfer); })) return InternalError("it does not end");
    return ended_[transfer].front();
  }
  size_t times_ended(TransferId transfer) { return ended_[transfer].size(); }
  bool UntilMet(const Expectation& expectation) {
    return Until([&] { return expectations_.contains(expectation.first); }) &&
           expectations_[expectation.first].front().status.ok();
  }
  const std::vector<ExpectationEnded>& ends_of(const Expectation& expectation) {
    return expectations_[expectation.first];
  }
  std::vector<MessageReceived>& messages() { return messages_; }
  const std::vector<PeerState>& states(PeerId peer) { return states_[peer]; }

 private:
  std::unique_ptr<FabricEngine> engine_;
  std::map<TransferId, std::vector<Status>> ended_;
  std::map<Immediate, std::vector<ExpectationEnded>> expectations_;
  std::map<PeerId, std::vector<PeerState>> states_;
  std::vector<MessageReceived> messages_;
};

// The ways between two engines that the tests go.
struct Way {
  std::string name;
  std::vector<std::string> hosts;
  bool same_host = false;
};
inline std::vector<Way> AllWays() {
  return {{"Network", {"127.0.0.1"}, false},
          {"TwoNics", {"127.0.0.1", "127.0.0.2"}, false},
          {"SameHost", {}, true}};
}
inline FabricEngine::Config ConfigOf(const Way& way) {
  FabricEngine::Config config;
  config.hosts = way.hosts;
  config.same_host = way.same_host;
  return config;
}

}  // namespace tandem
