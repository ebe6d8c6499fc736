#include "cli/handoff_fabric.h"

#include <utility>

#include "fabric/fabric_engine.h"

namespace tandem {

Result<std::unique_ptr<TransferEngine>> MakeHandoffFabric(std::vector<std::string> hosts,
                                                          bool same_host) {
  FabricEngine::Config config;
  config.same_host = same_host;
  config.hosts = std::move(hosts);
  auto engine = FabricEngine::Create(config);
  if (!engine.ok()) return engine.status().WithContext("--handoff-nic");
  return std::unique_ptr<TransferEngine>(std::move(*engine));
}

}  // namespace tandem
