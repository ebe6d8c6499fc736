#include "fabric/libfabric/fi_nic.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "fabric/random.h"

namespace tandem {
namespace {

constexpr uint32_t kApi = FI_VERSION(1, 17);
constexpr size_t kReceives = 32;   // messages between two polls; more wait in the network
constexpr size_t kMessages = 256;  // on their way out, of all links
// What a message carries besides its text: its kind and what TransferCore puts before it.
constexpr size_t kMessageOverhead = 64;
constexpr size_t kMessageBytes = TransferEngine::kMaxMessageBytes + kMessageOverhead;
constexpr size_t kCompletionsAtOnce = 64;
constexpr uint32_t kDepthMost = 128;    // of one link: enough to fill it, soon over
constexpr size_t kEndpointsMost = 256;  // regions of one peer over the life of a link
constexpr size_t kCqEntries = 8192;

// The kinds of contexts, in the two highest bits: no pointer of a process has any of them.
enum class ContextKind : uint64_t { kForeign = 0, kWrite = 1, kReceive = 2, kSend = 3 };
constexpr int kKindShift = 62;
constexpr uint64_t kValueMask = (uint64_t{1} << kKindShift) - 1;

void* ToContext(ContextKind kind, uint64_t value) {
  return reinterpret_cast<void*>(static_cast<uint64_t>(kind) << kKindShift | value);
}
ContextKind KindOf(const void* context) {
  return static_cast<ContextKind>(reinterpret_cast<uint64_t>(context) >> kKindShift);
}
uint64_t ValueOf(const void* context) { return reinterpret_cast<uint64_t>(context) & kValueMask; }

constexpr char kHello = 'h';
constexpr char kText = 'm';

}  // namespace

Result<fi::Info> FindProvider(const std::string& host) {
  const fi::Info hints(fi_allocinfo());
  if (hints == nullptr) return ResourceExhaustedError("no memory for libfabric");
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = 0;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  fi_info* found = nullptr;
  const int result =
      fi_getinfo(kApi, host.c_str(), nullptr, FI_SOURCE | FI_NUMERICHOST, hints.get(), &found);
  const fi::Info all(found);
  TANDEM_RETURN_IF_ERROR(fi::ToStatus(result, "libfabric finds no provider for " + host));
  for (const std::string_view name : kFiProviders) {
    for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
      const bool carries_immediates = info->domain_attr->cq_data_size >= sizeof(Immediate);
      if (name != info->fabric_attr->prov_name || !carries_immediates) continue;
      fi::Info copy(fi_dupinfo(info));
      if (copy == nullptr) return ResourceExhaustedError("no memory for libfabric");
      return copy;
    }
  }
  return UnavailableError("libfabric has no provider for {} that Tandem can use", host);
}

Result<std::unique_ptr<FiNic>> FiNic::Open(const std::string& host) {
  TANDEM_ASSIGN_OR_RETURN(fi::Info info, FindProvider(host));
  std::unique_ptr<FiNic> nic(new FiNic);
  const Status started = nic->Start(std::move(info));
  if (!started.ok()) return started.WithContext("opening " + host);
  return nic;
}

FiNic::~FiNic() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
  links_.clear();  // before what they stand on
}

Status FiNic::Start(fi::Info info) {
  info_ = std::move(info);
  name_ = info_->fabric_attr->prov_name;
  if (name_ == "net") name_ = "tcp";  // one provider, renamed in libfabric 1.18
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return ResourceExhaustedError("a descriptor: {}", strerror(errno));
  fid_fabric* fabric = nullptr;
  TANDEM_RETURN_IF_ERROR(fi::ToStatus(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fabric"));
  fabric_.reset(fabric);
  TANDEM_ASSIGN_OR_RETURN(main_, OpenPort());
  TANDEM_ASSIGN_OR_RETURN(address_, NameOfEndpoint(main_.ep.get()));
  link_depth_ = static_cast<uint32_t>(std::clamp<size_t>(info_->tx_attr->size / 2, 1, kDepthMost));
  outgoing_.resize(kMessages);
  incoming_.resize(kReceives);
  for (size_t i = 0; i < kReceives; ++i) {
    incoming_[i].bytes.resize(kMessageBytes);
    TANDEM_ASSIGN_OR_RETURN(incoming_[i].mr, RegisterMemory(main_, incoming_[i].bytes, FI_RECV));
    PostReceive(i);
  }
  return OkStatus();
}

Result<FiNic::Port> FiNic::OpenPort() {
  Port port;
  fid_domain* domain = nullptr;
  TANDEM_RETURN_IF_ERROR(
      fi::ToStatus(fi_domain(fabric_.get(), info_.get(), &domain, nullptr), "domain"));
  port.domain.reset(domain);
  fi_av_attr av_attr = {};
  av_attr.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  TANDEM_RETURN_IF_ERROR(
      fi::ToStatus(fi_av_open(domain, &av_attr, &av, nullptr), "address vector"));
  port.av.reset(av);
  TANDEM_RETURN_IF_ERROR(OpenQueue(&port));
  TANDEM_ASSIGN_OR_RETURN(port.ep, OpenEndpoint(port));
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, port.wait_fd, &event) != 0) {
    return ResourceExhaustedError("watching a completion queue: {}", strerror(errno));
  }
  return port;
}

Status FiNic::OpenQueue(Port* port) {
  fi_cq_attr attr = {};
  attr.size = kCqEntries;
  attr.format = FI_CQ_FORMAT_DATA;
  attr.wait_obj = FI_WAIT_FD;
  if (info_->fabric_attr->prov_name == std::string_view("net")) {
    fi_wait_attr wait_attr = {};
    wait_attr.wait_obj = FI_WAIT_FD;
    fid_wait* wait = nullptr;
    TANDEM_RETURN_IF_ERROR(
        fi::ToStatus(fi_wait_open(fabric_.get(), &wait_attr, &wait), "wait set"));
    port->wait_set.reset(wait);
    attr.wait_obj = FI_WAIT_SET;
    attr.wait_set = wait;
  }
  fid_cq* cq = nullptr;
  TANDEM_RETURN_IF_ERROR(
      fi::ToStatus(fi_cq_open(port->domain.get(), &attr, &cq, nullptr), "completion queue"));
  port->cq.reset(cq);
  fid* waited = port->wait_set ? &port->wait_set->fid : &cq->fid;
  return fi::ToStatus(fi_control(waited, FI_GETWAIT, &port->wait_fd), "a descriptor to wait for");
}

Result<fi::Ep> FiNic::OpenEndpoint(const Port& port) {
  fid_ep* raw = nullptr;
  TANDEM_RETURN_IF_ERROR(
      fi::ToStatus(fi_endpoint(port.domain.get(), info_.get(), &raw, nullptr), "endpoint"));
  fi::Ep ep(raw);
  TANDEM_RETURN_IF_ERROR(
      fi::ToStatus(fi_ep_bind(raw, &port.av->fid, 0), "binding the address vector"));
  TANDEM_RETURN_IF_ERROR(fi::ToStatus(fi_ep_bind(raw, &port.cq->fid, FI_TRANSMIT | FI_RECV),
                                      "binding the completion queue"));
  TANDEM_RETURN_IF_ERROR(fi::ToStatus(fi_enable(raw), "enabling the endpoint"));
  return ep;
}

Result<std::string> FiNic::NameOfEndpoint(fid_ep* ep) {
  std::array<char, RemoteRegion::kMaxEndpointBytes> name = {};
  size_t size = name.size();
  TANDEM_RETURN_IF_ERROR(fi::ToStatus(fi_getname(&ep->fid, name.data(), &size), "endpoint's name"));
  return std::string(name.data(), size);
}

bool FiNic::Reaches(std::string_view address) const {
  // Addresses of one kind have one length, and socket addresses begin with their family.
  const size_t family = std::min<size_t>(sizeof(uint16_t), address_.size());
  return address.size() == address_.size() &&
         (info_->addr_format != FI_SOCKADDR_IN && info_->addr_format != FI_SOCKADDR_IN6
              ? true
              : address.substr(0, family) == std::string_view(address_).substr(0, family));
}

// ---------------------------------------------------------------- regions

Result<fi::Mr> FiNic::RegisterMemory(const Port& port, std::span<std::byte> memory,
                                     uint64_t access) {
  if (access != FI_REMOTE_WRITE && !local_mr()) return fi::Mr();
  constexpr int kAttempts = 8;  // of keys that somebody has already: never seen
  for (int attempt = 0;; ++attempt) {
    fid_mr* raw = nullptr;
    const int result = fi_mr_reg(port.domain.get(), memory.data(), memory.size(), access,
                                 /*offset=*/0, SecretUint64(), /*flags=*/0, &raw, nullptr);
    if (result == -FI_ENOKEY && attempt < kAttempts) continue;
    TANDEM_RETURN_IF_ERROR(fi::ToStatus(result, "registering memory"));
    return fi::Mr(raw);
  }
}

Result<NicRegionId> FiNic::RegisterLocal(std::span<std::byte> memory) {
  Region region;
  TANDEM_ASSIGN_OR_RETURN(region.mr, RegisterMemory(main_, memory, FI_WRITE));
  const NicRegionId id(++last_region_);
  regions_.emplace(id, std::move(region));
  return id;
}

Result<NicRegionId> FiNic::RegisterRemote(std::span<std::byte> memory, RemoteRegion::Nic* remote) {
  Region region;
  TANDEM_ASSIGN_OR_RETURN(region.port, OpenPort());
  TANDEM_ASSIGN_OR_RETURN(region.mr, RegisterMemory(region.port, memory, FI_REMOTE_WRITE));
  TANDEM_ASSIGN_OR_RETURN(remote->endpoint, NameOfEndpoint(region.port.ep.get()));
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  remote->base = by_address ? reinterpret_cast<uint64_t>(memory.data()) : 0;
  remote->key = fi_mr_key(region.mr.get());
  const NicRegionId id(++last_region_);
  regions_.emplace(id, std::move(region));
  return id;
}

void FiNic::CloseRegion(NicRegionId id) {
  const auto it = regions_.find(id);
  TANDEM_CHECK(it != regions_.end());
  const Port& port = it->second.port;
  if (port.ep) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, port.wait_fd, nullptr);
  regions_.erase(it);
}

// ---------------------------------------------------------------- links

Result<NicLinkId> FiNic::OpenLink(std::string_view address) {
  if (!Reaches(address)) return InvalidArgumentError("not an address of {}", name_);
  Link link;
  link.address = address;
  TANDEM_ASSIGN_OR_RETURN(link.ep, OpenEndpoint(main_));
  link.main = Resolve(&link, link.address);
  if (link.main == FI_ADDR_UNSPEC) return UnavailableError("{} refuses the address", name_);
  const NicLinkId id(++last_link_);
  links_.emplace(id, std::move(link));
  ++hellos_wanted_;
  return id;
}

void FiNic::CloseLink(NicLinkId id) {
  const auto it = links_.find(id);
  TANDEM_CHECK(it != links_.end());
  Link& link = it->second;
  if (link.hello_wanted) --hellos_wanted_;
  link.ep.reset();
  for (auto& [endpoint, number] : link.endpoints) fi_av_remove(main_.av.get(), &number, 1, 0);
  for (size_t i = 0; i < outgoing_.size(); ++i) {
    if (outgoing_[i].used && outgoing_[i].link == id) FreeOutgoing(i);
  }
  std::erase_if(writes_, [id](const auto& write) { return write.second == id; });
  links_.erase(it);
}

fi_addr_t FiNic::Resolve(Link* link, const std::string& endpoint) {
  const std::string& name = endpoint.empty() ? link->address : endpoint;
  const auto known = link->endpoints.find(name);
  if (known != link->endpoints.end()) return known->second;
  if (name.size() != link->address.size() || link->endpoints.size() >= kEndpointsMost) {
    return FI_ADDR_UNSPEC;
  }
  fi_addr_t number = FI_ADDR_UNSPEC;
  if (fi_av_insert(main_.av.get(), name.data(), 1, &number, 0, nullptr) != 1) return FI_ADDR_UNSPEC;
  link->endpoints.emplace(name, number);
  return number;
}

Nic::Taken FiNic::Write(NicLinkId id, const NicWrite& write) {
  const auto it = links_.find(id);
  if (it == links_.end()) return Taken::kNever;
  Link& link = it->second;
  const fi_addr_t to = Resolve(&link, write.remote->endpoint);
  if (to == FI_ADDR_UNSPEC || write.bytes > info_->ep_attr->max_msg_size) return Taken::kNever;
  const Region& local = regions_.at(write.local);
  iovec from = {const_cast<std::byte*>(write.from), write.bytes};
  void* descriptor = local.mr ? fi_mr_desc(local.mr.get()) : nullptr;
  const fi_rma_iov target = {write.remote->base + write.remote_offset, write.bytes,
                             write.remote->key};
  fi_msg_rma message = {};
  message.msg_iov = &from;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = to;
  message.rma_iov = &target;
  message.rma_iov_count = 1;
  message.context = ToContext(ContextKind::kWrite, write.context);
  message.data = write.immediate;
  const ssize_t result = fi_writemsg(link.ep.get(), &message,
                                     FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMPLETION);
  if (result == -FI_EAGAIN) return Taken::kLater;
  if (result != 0) return Taken::kNever;
  writes_.emplace(write.context, id);
  return Taken::kYes;
}

// ---------------------------------------------------------------- messages

void FiNic::PostReceive(size_t index) {
  Incoming& in = incoming_[index];
  const ssize_t result = fi_recv(main_.ep.get(), in.bytes.data(), in.bytes.size(),
                                 in.mr ? fi_mr_desc(in.mr.get()) : nullptr, FI_ADDR_UNSPEC,
                                 ToContext(ContextKind::kReceive, index));
  if (result != 0) LogError("{} takes no buffer for messages: {}", name_, fi_strerror(-result));
}

Nic::Taken FiNic::PostMessage(NicLinkId id, Link* link, char kind,
                              std::span<const std::byte> message, uint64_t context) {
  const auto free = std::find_if(outgoing_.begin(), outgoing_.end(),
                                 [](const Outgoing& out) { return !out.used; });
  if (free == outgoing_.end()) return Taken::kLater;
  TANDEM_CHECK_LT(message.size(), kMessageBytes);
  const auto index = static_cast<uint64_t>(free - outgoing_.begin());
  free->bytes.assign(1, static_cast<std::byte>(kind));
  free->bytes.insert(free->bytes.end(), message.begin(), message.end());
  auto mr = RegisterMemory(main_, free->bytes, FI_SEND);
  if (!mr.ok()) return Taken::kNever;
  free->mr = std::move(mr).value();
  iovec from = {free->bytes.data(), free->bytes.size()};
  void* descriptor = free->mr ? fi_mr_desc(free->mr.get()) : nullptr;
  fi_msg post = {};
  post.msg_iov = &from;
  post.desc = &descriptor;
  post.iov_count = 1;
  post.addr = link->main;
  post.context = ToContext(ContextKind::kSend, uint64_t{free->generation} << 16 | index);
  const ssize_t result = fi_sendmsg(link->ep.get(), &post, FI_DELIVERY_COMPLETE | FI_COMPLETION);
  if (result == -FI_EAGAIN) return Taken::kLater;
  if (result != 0) return Taken::kNever;
  free->used = true;
  free->link = id;
  free->context = context;
  return Taken::kYes;
}

void FiNic::FreeOutgoing(size_t index) {
  outgoing_[index].used = false;
  ++outgoing_[index].generation;
  outgoing_[index].mr.reset();
}

Nic::Taken FiNic::Send(NicLinkId id, std::span<const std::byte> message, uint64_t context) {
  const auto it = links_.find(id);
  if (it == links_.end()) return Taken::kNever;
  return PostMessage(id, &it->second, kText, message, context);
}

// ---------------------------------------------------------------- completions

bool FiNic::PollPort(const Port& port, std::vector<NicEvent>* events) {
  std::array<fi_cq_data_entry, kCompletionsAtOnce> entries;
  const ssize_t count = fi_cq_read(port.cq.get(), entries.data(), entries.size());
  if (count > 0) {
    for (ssize_t i = 0; i < count; ++i) OnCompletion(entries[static_cast<size_t>(i)], events);
    return true;
  }
  if (count == -FI_EAVAIL) return ReadErrors(port, events);
  if (count != -FI_EAGAIN) {
    LogError("{}'s completion queue: {}", name_, fi_strerror(static_cast<int>(-count)));
  }
  return false;
}

bool FiNic::PostHellos(std::vector<NicEvent>* events) {
  bool any = false;
  for (auto& [id, link] : links_) {
    if (!link.hello_wanted) continue;
    const Taken taken = PostMessage(id, &link, kHello, {}, 0);
    if (taken == Taken::kLater) continue;
    link.hello_wanted = false;
    --hellos_wanted_;
    any = true;
    if (taken == Taken::kNever) Lose(id, UnavailableError("{} cannot connect", name_), events);
  }
  return any;
}

bool FiNic::Poll(std::vector<NicEvent>* events) {
  bool any = PollPort(main_, events);
  for (const auto& [id, region] : regions_) {
    if (region.port.cq) any |= PollPort(region.port, events);
  }
  if (hellos_wanted_ > 0) any |= PostHellos(events);
  return any;
}

void FiNic::OnCompletion(const fi_cq_data_entry& entry, std::vector<NicEvent>* events) {
  // By what happened, never by FI_REMOTE_CQ_DATA: some providers set that at the sender too.
  if ((entry.flags & FI_REMOTE_WRITE) != 0) {
    NicEvent event;
    event.kind = NicEvent::Kind::kImmediate;
    event.immediate = static_cast<Immediate>(entry.data);
    events->push_back(std::move(event));
    return;
  }
  const uint64_t value = ValueOf(entry.op_context);
  switch (KindOf(entry.op_context)) {
    case ContextKind::kWrite:
      if (writes_.erase(value) == 0) return;  // of a link that is closed
      events->emplace_back().context = value;
      return;
    case ContextKind::kReceive:
      if (value < incoming_.size()) OnReceived(value, entry.len, events);
      return;
    case ContextKind::kSend: OnSent(value, OkStatus(), events); return;
    case ContextKind::kForeign: return;
  }
}

void FiNic::OnReceived(size_t index, size_t size, std::vector<NicEvent>* events) {
  const std::vector<std::byte>& bytes = incoming_[index].bytes;
  if (size >= 1 && size <= bytes.size() && bytes[0] == static_cast<std::byte>(kText)) {
    NicEvent event;
    event.kind = NicEvent::Kind::kMessage;
    event.bytes.assign(bytes.begin() + 1, bytes.begin() + static_cast<ptrdiff_t>(size));
    events->push_back(std::move(event));
  }
  PostReceive(index);
}

void FiNic::OnSent(uint64_t slot, const Status& status, std::vector<NicEvent>* events) {
  const size_t index = slot & 0xffff;
  if (index >= outgoing_.size()) return;
  Outgoing& out = outgoing_[index];
  if (!out.used || out.generation != static_cast<uint32_t>(slot >> 16)) return;
  const NicLinkId link = out.link;
  const uint64_t context = out.context;
  FreeOutgoing(index);
  NicEvent event;
  event.link = link;
  event.context = context;
  event.status = status;
  if (context != 0) {
    event.kind = status.ok() ? NicEvent::Kind::kDone : NicEvent::Kind::kFailed;
    events->push_back(std::move(event));
  } else if (status.ok()) {
    event.kind = NicEvent::Kind::kLinkUp;
    events->push_back(std::move(event));
  }
  if (!status.ok()) Lose(link, status, events);
}

bool FiNic::ReadErrors(const Port& port, std::vector<NicEvent>* events) {
  bool any = false;
  fi_cq_err_entry error = {};
  while (fi_cq_readerr(port.cq.get(), &error, 0) == 1) {
    any = true;
    OnError(error, events);
    error = {};
  }
  return any;
}

void FiNic::OnError(const fi_cq_err_entry& error, std::vector<NicEvent>* events) {
  const uint64_t value = ValueOf(error.op_context);
  const Status status =
      error.err == FI_EACCES || error.err == FI_EKEYREJECTED
          ? FailedPreconditionError("the peer has no such region: {}", fi_strerror(error.err))
          : UnavailableError("the connection is lost, or the peer has no such region: {}",
                             fi_strerror(error.err));
  switch (KindOf(error.op_context)) {
    case ContextKind::kWrite: {
      const auto it = writes_.find(value);
      if (it == writes_.end()) return;
      const NicLinkId link = it->second;
      writes_.erase(it);
      NicEvent event;
      event.kind = NicEvent::Kind::kFailed;
      event.context = value;
      event.status = status;
      events->push_back(std::move(event));
      Lose(link, status, events);
      return;
    }
    case ContextKind::kReceive:
      if (value < incoming_.size()) PostReceive(value);
      return;
    case ContextKind::kSend: OnSent(value, status, events); return;
    case ContextKind::kForeign: return;  // a peer that went away: its own affair
  }
}

void FiNic::Lose(NicLinkId id, const Status& why, std::vector<NicEvent>* events) {
  const auto it = links_.find(id);
  if (it == links_.end() || it->second.lost) return;
  it->second.lost = true;
  NicEvent event;
  event.kind = NicEvent::Kind::kLinkLost;
  event.link = id;
  event.status = why;
  events->push_back(std::move(event));
}

bool FiNic::PrepareWait() {
  const auto ready = [this](const Port& port) {
    if (port.wait_set) return fi_wait(port.wait_set.get(), /*timeout=*/0) == -FI_ETIMEDOUT;
    fid* waited[] = {&port.cq->fid};
    return fi_trywait(fabric_.get(), waited, 1) == FI_SUCCESS;
  };
  if (!ready(main_)) return false;
  return std::all_of(regions_.begin(), regions_.end(), [&](const auto& region) {
    return !region.second.port.cq || ready(region.second.port);
  });
}

}  // namespace tandem
