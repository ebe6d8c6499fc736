// What: the network over which this node's hand-offs run.
// Not here: networks themselves (fabric/), which addresses are meant (handoff_options.h).
// Threads: one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/transfer_engine.h"

namespace tandem {

// Over this machine's addresses `hosts`, and with `same_host` over memory to processes of the same
// machine. Errors name the flag.
Result<std::unique_ptr<TransferEngine>> MakeHandoffFabric(std::vector<std::string> hosts,
                                                          bool same_host);

}  // namespace tandem
