#include "messenger/membership.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

constexpr size_t kMaxHostBytes = 253;  // of a DNS name

Result<HostPort> ParseAddress(std::string_view text, int least_port) {
  const std::string shown(text.substr(0, 300));
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return InvalidArgumentError("'{}' has no port: write HOST:PORT", shown);
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return InvalidArgumentError("'{}': write an IPv6 address in brackets, [::1]:PORT", shown);
  }
  if (host.empty() || host.size() > kMaxHostBytes) {
    return InvalidArgumentError("'{}' has no host: write HOST:PORT", shown);
  }
  for (const char c : host) {
    if (c <= ' ' || c > '~' || c == '/' || c == ',' || c == '@' || c == '[' || c == ']') {
      return InvalidArgumentError("'{}' is no HOST:PORT", shown);
    }
  }
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < least_port ||
      port > 65535) {
    return InvalidArgumentError("'{}': the port must be a number from {} to 65535", shown,
                                least_port);
  }
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

void SortUnique(std::vector<std::string>* nodes) {
  std::sort(nodes->begin(), nodes->end());
  nodes->erase(std::unique(nodes->begin(), nodes->end()), nodes->end());
}

}  // namespace

std::string HostPort::ToString() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<HostPort> ParseHostPort(std::string_view text) { return ParseAddress(text, 1); }
Result<HostPort> ParseListenAddress(std::string_view text) { return ParseAddress(text, 0); }

Membership::Membership(std::vector<std::string> fixed,
                       std::vector<std::unique_ptr<MembershipSource>> sources, TimeNs interval,
                       std::function<void()> wake)
    : fixed_(std::move(fixed)), interval_(interval), wake_(std::move(wake)) {
  for (auto& source : sources) sources_.push_back({std::move(source), {}, false});
  nodes_ = Join();
  if (!sources_.empty()) thread_ = std::thread([this] { Loop(); });
}

Membership::~Membership() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    ending_changed_.NotifyOne();
  }
  thread_.join();
}

std::optional<std::vector<std::string>> Membership::TakeChange() {
  MutexLock lock(mutex_);
  if (!changed_) return std::nullopt;
  changed_ = false;
  return nodes_;
}

void Membership::Loop() {
  for (;;) {
    LookAtAll();
    MutexLock lock(mutex_);
    if (!ending_) ending_changed_.WaitFor(mutex_, interval_);
    if (ending_) return;
  }
}

void Membership::LookAtAll() {
  for (Source& source : sources_) {
    LookAt(source);
    std::vector<std::string> nodes = Join();
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      if (nodes == nodes_) continue;
      nodes_ = std::move(nodes);
      changed_ = true;
    }
    if (wake_) wake_();
  }
}

void Membership::LookAt(Source& source) const {
  Result<std::vector<std::string>> nodes = source.source->Look();
  if (!nodes.ok()) {
    if (!source.failing) {
      LogWarning("{}: {}; the prefill nodes stay as they were", source.source->name(),
                 nodes.status().message());
    }
    source.failing = true;
    return;
  }
  if (source.failing) LogWarning("{}: there again", source.source->name());
  source.failing = false;
  std::vector<std::string> good;
  for (const std::string& node : *nodes) {
    const auto address = ParseHostPort(node);
    if (address.ok()) {
      good.push_back(address->ToString());
    } else {
      LogDebug("{}: {}", source.source->name(), address.status().message());
    }
  }
  source.last = std::move(good);
}

std::vector<std::string> Membership::Join() const {
  std::vector<std::string> nodes = fixed_;
  for (const Source& source : sources_) {
    nodes.insert(nodes.end(), source.last.begin(), source.last.end());
  }
  SortUnique(&nodes);
  if (nodes.size() > kMaxNodes) nodes.resize(kMaxNodes);
  return nodes;
}

}  // namespace tandem
