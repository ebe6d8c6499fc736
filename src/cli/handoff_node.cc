#include "cli/handoff_node.h"

#include <random>
#include <utility>

#include "cli/handoff_fabric.h"

namespace tandem {
namespace {

// Nodes that can have to do with each other: the same model in the same numerics. Whether the
// layout is the same, they tell each other.
std::string EtcdModel(const HandoffFormat& format) {
  return fmt::format("{}-{}", format.identity.ToHex(), format.numerics);
}

MessengerConfig MakeMessengerConfig(const HandoffOptions& options, HandoffFormat format) {
  MessengerConfig config;
  config.prefill = options.sends();
  config.decode = options.fetches();
  config.format = std::move(format);
  std::random_device random;
  config.instance = uint64_t{random()} << 32 | random();
  config.progress_timeout = options.timeout_s * kNsPerS;
  return config;
}

}  // namespace

Result<std::unique_ptr<HandoffNode>> HandoffNode::Create(const HandoffOptions& options,
                                                         HandoffFormat format,
                                                         std::vector<std::span<std::byte>> pools,
                                                         const LayerCounter* layers,
                                                         const Clock* clock) {
  std::unique_ptr<HandoffNode> node(new HandoffNode);
  const std::string model = EtcdModel(format);
  MessengerHostConfig config;
  config.messenger = MakeMessengerConfig(options, std::move(format));
  TANDEM_ASSIGN_OR_RETURN(config.control.secret, HandoffSecret(options));
  if (options.sends()) {
    TANDEM_ASSIGN_OR_RETURN(config.control.listen, ParseListenAddress(options.listen));
    node->address_ = *config.control.listen;
  }
  TANDEM_ASSIGN_OR_RETURN(config.nodes, FixedPrefillNodes(options));
  TANDEM_ASSIGN_OR_RETURN(config.sources, PrefillNodeSources(options, model));
  config.trace_path = options.trace_path;
  MessengerHostParts parts;
  TANDEM_ASSIGN_OR_RETURN(parts.fabric,
                          MakeHandoffFabric(FabricHosts(options), !options.network_only));
  parts.clock = clock;
  parts.pools = std::move(pools);
  parts.layers = layers;
  TANDEM_ASSIGN_OR_RETURN(node->host_, MessengerHost::Create(std::move(config), std::move(parts)));
  if (options.sends()) node->address_.port = node->host_->port();
  if (options.sends() && !options.etcd.empty()) {
    TANDEM_ASSIGN_OR_RETURN(EtcdClient client, EtcdClient::Create(options.etcd));
    node->to_register_ = {std::move(client), EtcdPrefix(model),
                          options.advertise.empty() ? node->address() : options.advertise};
  }
  return node;
}

void HandoffNode::Start(EngineClient* engine, std::function<void(HandoffEvent)> deliver) {
  host_->Start(engine, std::move(deliver));
  if (!to_register_.has_value()) return;
  registration_ = std::make_unique<EtcdRegistration>(std::move(to_register_->client),
                                                     to_register_->prefix, to_register_->address);
}

void HandoffNode::Stop() {
  registration_.reset();
  host_->Stop();
}

}  // namespace tandem
