#include "cli/handoff_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cli/flag_checks.h"
#include "messenger/membership_etcd.h"
#include "messenger/membership_file.h"
#include "os/file.h"

namespace tandem {
namespace {

constexpr const char* kHandoffGroup = "Prefill and decode nodes";
constexpr const char* kKeyVariable = "TANDEM_HANDOFF_KEY";
constexpr int32_t kMaxTokens = 1 << 24;

// Addresses that everybody has, so that they say nothing to others.
bool IsAnyAddress(const HostPort& address) {
  return address.host == "0.0.0.0" || address.host == "::" || address.host == "*";
}

bool IsLoopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

// The parts of "a,b,c"; one empty part of an empty text is none.
std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Status CheckPrefillRole(const HandoffOptions& o) {
  if (o.role != "prefill") return OkStatus();
  if (!o.sends()) {
    return InvalidArgumentError(
        "--role prefill needs --handoff-listen HOST:PORT, where decode nodes reach it");
  }
  for (const auto& [flag, value] :
       {std::pair("--prefill", &o.prefill), std::pair("--prefill-file", &o.prefill_file)}) {
    if (!value->empty()) {
      return InvalidArgumentError(
          "{} does not go with --role prefill: decode nodes name prefill nodes, not the other way "
          "round",
          flag);
    }
  }
  return OkStatus();
}

Status CheckDecodeRole(const HandoffOptions& o) {
  if (o.role != "decode") return OkStatus();
  if (!o.fetches()) {
    return InvalidArgumentError(
        "--role decode needs prefill nodes: --prefill HOST:PORT,..., --prefill-file FILE or --etcd "
        "URL");
  }
  if (o.sends()) {
    return InvalidArgumentError(
        "--handoff-listen does not go with --role decode: only prefill nodes are connected to");
  }
  return OkStatus();
}

Status CheckEtcd(const HandoffOptions& o) {
  if (o.etcd.empty()) {
    if (o.advertise.empty()) return OkStatus();
    return InvalidArgumentError("--handoff-advertise says what etcd is told: it needs --etcd URL");
  }
  if (o.role == "both") {
    return InvalidArgumentError(
        "--etcd needs --role prefill, which registers this node, or --role decode, which follows "
        "those that are");
  }
  TANDEM_RETURN_IF_ERROR(EtcdClient::Create(o.etcd).status().WithContext("--etcd"));
  if (o.role == "decode") {
    if (o.advertise.empty()) return OkStatus();
    return InvalidArgumentError("--handoff-advertise does not go with --role decode");
  }
  if (!o.advertise.empty()) {
    return ParseHostPort(o.advertise).status().WithContext("--handoff-advertise");
  }
  TANDEM_ASSIGN_OR_RETURN(const HostPort listen, ParseListenAddress(o.listen));
  if (IsAnyAddress(listen)) {
    return InvalidArgumentError(
        "--handoff-listen {}: decode nodes need an address of this machine; say which with "
        "--handoff-advertise HOST:PORT",
        o.listen);
  }
  return OkStatus();
}

// A prefill node elsewhere cannot write to our loopback.
Status CheckNics(const HandoffOptions& o) {
  const std::vector<std::string> nics = SplitList(o.nics);
  for (const std::string& nic : nics) {
    if (nic.empty()) return InvalidArgumentError("--handoff-nic '{}': an address is empty", o.nics);
  }
  if (!nics.empty()) return OkStatus();
  for (const std::string& node : SplitList(o.prefill)) {
    const auto address = ParseHostPort(node);
    if (!address.ok() || IsLoopback(address->host) || o.sends()) continue;
    return InvalidArgumentError(
        "--prefill {}: to reach this machine's memory that node needs one of its addresses; say "
        "which with --handoff-nic ADDRESS",
        node);
  }
  if (!o.sends()) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const HostPort listen, ParseListenAddress(o.listen));
  if (!IsAnyAddress(listen)) return OkStatus();
  return InvalidArgumentError(
      "--handoff-listen {}: say over which address state moves with --handoff-nic ADDRESS",
      o.listen);
}

// What only matters with a hand-off, where there is none.
Status CheckUnused(const HandoffOptions& o) {
  const HandoffOptions defaults;
  if (o.any()) {
    if (!o.fetches() && o.min_tokens != defaults.min_tokens) {
      return InvalidArgumentError(
          "--handoff-min-tokens is for nodes that have prompts computed elsewhere: it needs "
          "--prefill");
    }
    if (!o.sends() && !o.trace_path.empty()) {
      return InvalidArgumentError(
          "--handoff-trace is for nodes that compute prompts for others: it needs "
          "--handoff-listen");
    }
    return OkStatus();
  }
  for (const auto& [flag, used] :
       {std::pair("--handoff-key-file", !o.key_file.empty()),
        std::pair("--handoff-nic", !o.nics.empty()),
        std::pair("--handoff-network-only", o.network_only),
        std::pair("--handoff-min-tokens", o.min_tokens != defaults.min_tokens),
        std::pair("--handoff-timeout", o.timeout_s != defaults.timeout_s),
        std::pair("--handoff-trace", !o.trace_path.empty())}) {
    if (used) {
      return InvalidArgumentError(
          "{} needs other nodes: --handoff-listen HOST:PORT on a prefill node, --prefill "
          "HOST:PORT on a decode node",
          flag);
    }
  }
  return OkStatus();
}

}  // namespace

void AddHandoffFlags(CLI::App* app, HandoffOptions* o) {
  app->option_defaults()->group(kHandoffGroup);
  app->add_option("--role", o->role,
                  "prefill: computes prompts for others; decode: has them computed; both: serves "
                  "alone, and does what the flags below say")
      ->type_name("NAME")
      ->check(OneOf({"prefill", "decode", "both"}))
      ->capture_default_str();
  app->add_option("--prefill", o->prefill, "Prefill nodes: HOST:PORT, several with commas between")
      ->type_name("LIST");
  app->add_option("--prefill-file", o->prefill_file,
                  "Prefill nodes, one a line; followed as it changes")
      ->type_name("FILE");
  app->add_option("--etcd", o->etcd,
                  "etcd, as http://HOST:PORT: prefill nodes register there, decode nodes follow")
      ->type_name("URL");
  app->add_option("--handoff-listen", o->listen, "Where decode nodes reach this prefill node")
      ->type_name("HOST:PORT");
  app->add_option("--handoff-advertise", o->advertise,
                  "What etcd is told (default: as --handoff-listen)")
      ->type_name("HOST:PORT");
  app->add_option("--handoff-nic", o->nics,
                  "Addresses of this machine over which state moves, with commas between (default: "
                  "that of --handoff-listen, else 127.0.0.1)")
      ->type_name("LIST");
  app->add_flag("--handoff-network-only", o->network_only,
                "Also between processes of this machine, whose memory would be faster");
  app->add_option("--handoff-key-file", o->key_file,
                  "Secret that all nodes share (default: $TANDEM_HANDOFF_KEY). Without one: this "
                  "machine only")
      ->type_name("FILE");
  app->add_option("--handoff-min-tokens", o->min_tokens,
                  "Prompts that lack fewer tokens are computed here")
      ->type_name("N")
      ->check(WholeNumber(1, kMaxTokens))
      ->capture_default_str();
  app->add_option(
         "--handoff-timeout", o->timeout_s,
         "Seconds without news until a hand-off is given up and the prompt tried elsewhere")
      ->type_name("S")
      ->check(WholeNumber(1, 3600))
      ->capture_default_str();
  app->add_option("--handoff-trace", o->trace_path,
                  "Write when each layer of each chunk was computed and sent to this file")
      ->type_name("FILE");
}

Status CheckHandoffOptions(const HandoffOptions& o, int32_t tensor_parallel) {
  TANDEM_RETURN_IF_ERROR(CheckPrefillRole(o));
  TANDEM_RETURN_IF_ERROR(CheckDecodeRole(o));
  TANDEM_RETURN_IF_ERROR(CheckEtcd(o));
  TANDEM_RETURN_IF_ERROR(CheckUnused(o));
  if (o.any() && tensor_parallel > 1) {
    return InvalidArgumentError("--tensor-parallel {} and hand-off do not go together yet: use 1",
                                tensor_parallel);
  }
  if (o.sends()) {
    TANDEM_RETURN_IF_ERROR(ParseListenAddress(o.listen).status().WithContext("--handoff-listen"));
  }
  TANDEM_RETURN_IF_ERROR(FixedPrefillNodes(o).status());
  return CheckNics(o);
}

std::vector<std::string> FabricHosts(const HandoffOptions& options) {
  if (!options.nics.empty()) return SplitList(options.nics);
  if (const auto listen = ParseListenAddress(options.listen); listen.ok()) {
    return {listen->host == "localhost" ? "127.0.0.1" : listen->host};
  }
  return {"127.0.0.1"};
}

Result<LinkSecret> HandoffSecret(const HandoffOptions& options) {
  if (!options.key_file.empty()) {
    auto secret = LinkSecret::FromFile(options.key_file);
    if (!secret.ok()) return secret.status().WithContext("--handoff-key-file");
    return secret;
  }
  const char* const variable = std::getenv(kKeyVariable);
  if (variable == nullptr || *variable == '\0') return LinkSecret();
  auto secret = LinkSecret::Create(variable);
  if (!secret.ok()) return secret.status().WithContext(fmt::format("${}", kKeyVariable));
  return secret;
}

Result<std::vector<std::string>> FixedPrefillNodes(const HandoffOptions& options) {
  std::vector<std::string> nodes;
  for (const std::string& text : SplitList(options.prefill)) {
    const auto address = ParseHostPort(text);
    if (!address.ok()) return address.status().WithContext("--prefill");
    nodes.push_back(address->ToString());
  }
  return nodes;
}

Result<std::vector<std::unique_ptr<MembershipSource>>> PrefillNodeSources(
    const HandoffOptions& options, std::string_view model) {
  std::vector<std::unique_ptr<MembershipSource>> sources;
  if (!options.prefill_file.empty()) {
    sources.push_back(
        std::make_unique<FileMembershipSource>(RealFileSystem(), options.prefill_file));
    // Later a file that is gone keeps its nodes; at the start it is a slip.
    const auto first = sources.back()->Look();
    if (!first.ok()) return first.status().WithContext("--prefill-file");
  }
  if (options.FollowsEtcd()) {
    TANDEM_ASSIGN_OR_RETURN(EtcdClient client, EtcdClient::Create(options.etcd));
    sources.push_back(std::make_unique<EtcdMembershipSource>(std::move(client), EtcdPrefix(model)));
  }
  return sources;
}

}  // namespace tandem
