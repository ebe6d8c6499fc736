// What: how a node of the hand-off's tests is set up: short times, sizes, and prompts for it.
// Not here: the nodes (cluster.h).
// Threads: values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "fabric/sim/sim_engine.h"
#include "messenger/messenger_config.h"
#include "messenger/testing/fake_decoder.h"
#include "messenger/testing/fake_prefiller.h"

namespace tandem::testing {

// Times so short that a seed is over in a few simulated seconds.
inline MessengerConfig FastConfig() {
  MessengerConfig config;
  config.format = FakeFormat();
  config.heartbeat_interval = 20 * kNsPerMs;
  config.greeting_timeout = 200 * kNsPerMs;
  config.progress_timeout = 150 * kNsPerMs;
  config.fetch_timeout = 400 * kNsPerMs;
  config.stop_timeout = 40 * kNsPerMs;
  config.write_timeout = 100 * kNsPerMs;
  config.reconnect_first = 5 * kNsPerMs;
  config.reconnect_most = 50 * kNsPerMs;
  config.reconnect_refused = 200 * kNsPerMs;
  config.layer_poll = 20 * kNsPerUs;
  config.pages_per_write = 4;
  config.writes_in_flight = 6;
  return config;
}
// Within that a fetch is over: its time, the time to stop, and some to notice.
inline TimeNs FetchBound(const MessengerConfig& config) {
  return config.fetch_timeout + config.stop_timeout + 100 * kNsPerMs;
}

struct NodeOptions {
  MessengerConfig config;  // its roles too
  FakePrefillerOptions prefill;
  FakeDecoderOptions decode;
  SimFabric::Limits limits;
  std::string secret = "secret";
  TimeNs turn_most = 20 * kNsPerUs;  // from a wake-up to the turn of the loop: large is slow
  bool adds_nodes = true;            // knows all prefill nodes from its start
  std::function<void(const LayerTiming&)> on_layer = {};
};

inline NodeOptions PrefillNode() {
  NodeOptions options{.config = FastConfig()};
  options.config.prefill = true;
  return options;
}

inline NodeOptions DecodeNode() {
  NodeOptions options{.config = FastConfig()};
  options.config.decode = true;
  options.decode.fetch_bound = FetchBound(options.config);
  return options;
}

// Of 1 to `most` tokens; prompts share beginnings.
inline std::vector<TokenId> RandomPrompt(SplitMix64* random, int32_t most) {
  const auto tokens = static_cast<int32_t>(1 + random->Below(static_cast<uint64_t>(most)));
  const auto shared = static_cast<int32_t>(random->Below(static_cast<uint64_t>(tokens) + 1));
  const uint64_t family = random->Below(2);
  std::vector<TokenId> out;
  for (int32_t i = 0; i < tokens; ++i) {
    const uint64_t value =
        i < shared ? family * 1000 + static_cast<uint64_t>(i) % 17 : random->Below(1000);
    out.push_back(TokenId(static_cast<int32_t>(value)));
  }
  return out;
}

// Of `count` tokens that no other prompt has.
inline std::vector<TokenId> FreshPrompt(SplitMix64* random, int32_t count) {
  std::vector<TokenId> out;
  for (int32_t i = 0; i < count; ++i) {
    out.push_back(TokenId(static_cast<int32_t>(random->Below(1u << 30))));
  }
  return out;
}

}  // namespace tandem::testing
