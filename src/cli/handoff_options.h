// What: the flags of `serve` that say what part a node has in the hand-off between prefill and
//   decode nodes; checked together, and made into what the parts behind them take.
// Not here: the protocol (messenger/), who drives it (messenger_host.h).
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "messenger/membership.h"
#include "messenger/tcp_control.h"

namespace CLI {
class App;
}

namespace tandem {

struct HandoffOptions {
  std::string role = "both";  // prefill, decode, both
  std::string prefill;        // HOST:PORT,...; empty: none
  std::string prefill_file;   // one a line; empty: none
  std::string etcd;           // URLs; empty: none
  std::string listen;         // HOST:PORT; empty: computes nothing for others
  std::string advertise;      // HOST:PORT that others reach; empty: as `listen`
  std::string nics;           // ADDRESS,...; empty: see FabricHosts
  std::string key_file;       // empty: $TANDEM_HANDOFF_KEY
  bool network_only = false;  // between processes of this machine too
  int32_t min_tokens = 64;    // fewer missing tokens are computed here
  int32_t timeout_s = 30;     // without news of a hand-off
  std::string trace_path;     // of every layer that is sent; empty: none

  // It computes prompts for others; it has its prompts computed by others.
  bool sends() const { return !listen.empty(); }
  bool fetches() const { return !prefill.empty() || !prefill_file.empty() || FollowsEtcd(); }
  bool any() const { return sends() || fetches(); }
  bool FollowsEtcd() const { return role == "decode" && !etcd.empty(); }
};

void AddHandoffFlags(CLI::App* app, HandoffOptions* options);

// INVALID_ARGUMENT when flags contradict each other or lack one another, by their names.
Status CheckHandoffOptions(const HandoffOptions& options, int32_t tensor_parallel);

// This machine's addresses over which state moves: --handoff-nic, else that of --handoff-listen,
// else the loopback.
std::vector<std::string> FabricHosts(const HandoffOptions& options);

// The key of the file, else of $TANDEM_HANDOFF_KEY, else none.
Result<LinkSecret> HandoffSecret(const HandoffOptions& options);

// The nodes of --prefill.
Result<std::vector<std::string>> FixedPrefillNodes(const HandoffOptions& options);
// --prefill-file and --etcd, for the models of `model` (EtcdPrefix).
Result<std::vector<std::unique_ptr<MembershipSource>>> PrefillNodeSources(
    const HandoffOptions& options, std::string_view model);

}  // namespace tandem
