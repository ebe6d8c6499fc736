// What: HandoffNode: this process as a node among others: what the flags say, made into a
//   MessengerHost over a real network and, on a prefill node with etcd, a registration.
// Not here: driving the messenger (messenger_host.h), flags (handoff_options.h).
// Threads: as MessengerHost.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/handoff_options.h"
#include "cli/messenger_host.h"
#include "core/engine_client.h"
#include "core/handoff_port.h"
#include "core/layer_counter.h"
#include "messenger/handoff_format.h"

namespace tandem {

class HandoffNode {
 public:
  // Requires options.any(). `pools`, `layers` and `clock` as MessengerHostParts. Errors name the
  // flag.
  static Result<std::unique_ptr<HandoffNode>> Create(const HandoffOptions& options,
                                                     HandoffFormat format,
                                                     std::vector<std::span<std::byte>> pools,
                                                     const LayerCounter* layers,
                                                     const Clock* clock);

  HandoffPort& port() { return *host_; }
  // As MessengerHost; a node that is to register does it now.
  void Start(EngineClient* engine, std::function<void(HandoffEvent)> deliver);
  void Stop();

  HandoffCounts counts() const { return host_->stats(); }
  // Where decode nodes connect to, with the port that was taken.
  std::string address() const { return address_.ToString(); }

 private:
  HandoffNode() = default;

  struct Registration {
    EtcdClient client;
    std::string prefix;
    std::string address;
  };

  std::unique_ptr<MessengerHost> host_;
  HostPort address_;
  std::optional<Registration> to_register_;
  std::unique_ptr<EtcdRegistration> registration_;
};

}  // namespace tandem
