#include "fabric/host/host_nic.h"

#include <sys/epoll.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/hash.h"
#include "fabric/random.h"
#include "os/file.h"

namespace tandem {
namespace {

constexpr size_t kIncomingMost = 256;  // same-host peers that write to this process
constexpr size_t kEventsAtOnce = 64;
constexpr size_t kHostBytes = 16;
constexpr size_t kBootIdBytes = 64;  // more than the file has

// Processes reach each other's sockets in one network namespace of one boot of one machine.
Result<std::string> HostIdentity() {
  TANDEM_ASSIGN_OR_RETURN(
      const std::string boot,
      ReadSmallFile(RealFileSystem(), "/proc/sys/kernel/random/boot_id", kBootIdBytes));
  struct stat space = {};
  if (stat("/proc/self/ns/net", &space) != 0) {
    return UnavailableError("/proc/self/ns/net: {}", strerror(errno));
  }
  Hasher hasher;
  hasher.Update(boot);
  hasher.Update(static_cast<uint64_t>(space.st_ino));
  return hasher.Digest().ToHex().substr(0, kHostBytes);
}

}  // namespace

Result<std::unique_ptr<HostNic>> HostNic::Open() {
  std::unique_ptr<HostNic> nic(new HostNic);
  TANDEM_ASSIGN_OR_RETURN(nic->host_, HostIdentity());
  nic->name_ = fmt::format("tandem-{:016x}", SecretUint64());
  TANDEM_ASSIGN_OR_RETURN(nic->listener_, host::Listen(nic->name_));
  nic->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!nic->epoll_.ok() || !nic->Watch(nic->listener_.get(), Source::kListener, 0)) {
    return UnavailableError("waiting for peers on this host: {}", strerror(errno));
  }
  return nic;
}

bool HostNic::Reaches(std::string_view address) const {
  return address.size() > kHostBytes && address.substr(0, kHostBytes) == host_;
}

bool HostNic::Watch(int fd, Source source, uint32_t id) {
  const bool is_bell = source == Source::kIncomingBell || source == Source::kOutgoingBell;
  epoll_event event = {};
  // A bell is never read: each ring is an edge.
  event.events = is_bell ? EPOLLIN | EPOLLET : EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(source) << 32 | id;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// Closing would not do: the process at the other end has the same bell.
void HostNic::Unwatch(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

// ---------------------------------------------------------------- regions

Result<NicRegionId> HostNic::RegisterLocal(std::span<std::byte> /*memory*/) {
  const NicRegionId id(++last_region_);
  keys_.emplace(id, 0);
  return id;
}

Result<NicRegionId> HostNic::RegisterRemote(std::span<std::byte> memory,
                                            RemoteRegion::Nic* remote) {
  const NicRegionId id(++last_region_);
  *remote = {.base = 0, .key = SecretUint64(), .endpoint = {}};
  TANDEM_CHECK(regions_.emplace(remote->key, memory).second);
  keys_.emplace(id, remote->key);
  return id;
}

void HostNic::CloseRegion(NicRegionId id) {
  const auto it = keys_.find(id);
  TANDEM_CHECK(it != keys_.end());
  regions_.erase(it->second);
  keys_.erase(it);
}

// ---------------------------------------------------------------- links

Result<NicLinkId> HostNic::OpenLink(std::string_view address) {
  if (!Reaches(address)) return InvalidArgumentError("not an address of this host");
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<OutgoingLink> link,
                          OutgoingLink::Open(std::string(address.substr(kHostBytes))));
  const uint32_t id = ++last_link_;
  if (!Watch(link->socket(), Source::kOutgoing, id) ||
      !Watch(link->bell(), Source::kOutgoingBell, id)) {
    return ResourceExhaustedError("watching a same-host link: {}", strerror(errno));
  }
  outgoing_.emplace(id, std::move(link));
  return NicLinkId(id);
}

void HostNic::CloseLink(NicLinkId link) {
  const auto it = outgoing_.find(link.value());
  TANDEM_CHECK(it != outgoing_.end());
  Unwatch(it->second->bell());
  outgoing_.erase(it);
  lost_.erase(link.value());
}

Nic::Taken HostNic::Write(NicLinkId link, const NicWrite& write) {
  const auto it = outgoing_.find(link.value());
  return it == outgoing_.end() ? Taken::kNever : it->second->Write(write);
}

Nic::Taken HostNic::Send(NicLinkId link, std::span<const std::byte> message, uint64_t context) {
  const auto it = outgoing_.find(link.value());
  return it == outgoing_.end() ? Taken::kNever : it->second->Send(message, context);
}

void HostNic::LoseOutgoing(uint32_t id, const Status& why, std::vector<NicEvent>* events) {
  if (!lost_.insert(id).second) return;
  NicEvent event;
  event.kind = NicEvent::Kind::kLinkLost;
  event.link = NicLinkId(id);
  event.status = why;
  events->push_back(std::move(event));
}

void HostNic::AcceptAll() {
  while (true) {
    Fd socket = host::Accept(listener_.get());
    if (!socket.ok()) return;
    if (incoming_.size() >= kIncomingMost) continue;  // closed: the peer uses a network
    const uint32_t id = ++last_incoming_;
    if (!Watch(socket.get(), Source::kIncoming, id)) continue;
    incoming_.emplace(id, std::make_unique<IncomingLink>(std::move(socket)));
  }
}

HostNic::IncomingLinks::iterator HostNic::CloseIncoming(IncomingLinks::iterator link) {
  if (link->second->bell() >= 0) Unwatch(link->second->bell());
  return incoming_.erase(link);
}

// ---------------------------------------------------------------- progress

void HostNic::OnReady(Source source, uint32_t id, std::vector<NicEvent>* events) {
  switch (source) {
    case Source::kListener: AcceptAll(); return;
    case Source::kIncoming: {
      const auto it = incoming_.find(id);
      if (it == incoming_.end()) return;
      const bool had_bell = it->second->bell() >= 0;
      const bool stays = it->second->ReadSocket(events);
      const bool new_bell = !had_bell && it->second->bell() >= 0;
      if (!stays || (new_bell && !Watch(it->second->bell(), Source::kIncomingBell, id))) {
        CloseIncoming(it);
      }
      return;
    }
    case Source::kIncomingBell:
    case Source::kOutgoingBell: return;  // Poll looks at all rings
    case Source::kOutgoing: {
      const auto it = outgoing_.find(id);
      if (it == outgoing_.end() || lost_.contains(id)) return;
      const Status status = it->second->ReadSocket(NicLinkId(id), events);
      if (status.ok()) return;
      it->second->Reap(events);  // what was copied before it ended
      LoseOutgoing(id, status, events);
      return;
    }
  }
}

void HostNic::WakeAll() {
  if (!asleep_) return;
  asleep_ = false;
  for (const auto& [id, link] : incoming_) link->Awake();
  for (const auto& [id, link] : outgoing_) link->Awake();
}

bool HostNic::Poll(std::vector<NicEvent>* events) {
  WakeAll();
  std::array<epoll_event, kEventsAtOnce> ready;
  const int count =
      epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    const uint64_t data = ready[static_cast<size_t>(i)].data.u64;
    OnReady(static_cast<Source>(data >> 32), static_cast<uint32_t>(data), events);
  }
  bool any = count > 0;
  for (const auto& [id, link] : outgoing_) any |= link->Reap(events);
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    it = it->second->Copy(regions_, events, &any) ? std::next(it) : CloseIncoming(it);
  }
  return any;
}

bool HostNic::PrepareWait() {
  asleep_ = true;
  bool ready = true;
  for (const auto& [id, link] : incoming_) ready &= link->PrepareWait();
  for (const auto& [id, link] : outgoing_) ready &= link->PrepareWait();
  return ready;
}

}  // namespace tandem
