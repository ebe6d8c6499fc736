#include "fabric/host/outgoing_link.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "fabric/host/packets.h"
#include "fabric/random.h"
#include "fabric/wire.h"

namespace tandem {
namespace {

constexpr size_t kMessagesMost = 64;   // not acknowledged
constexpr size_t kPacketBytes = 1024;  // of the receiver's
constexpr int kPacketsAtOnce = 64;

}  // namespace

Result<std::unique_ptr<OutgoingLink>> OutgoingLink::Open(const std::string& name) {
  std::unique_ptr<OutgoingLink> link(new OutgoingLink);
  TANDEM_ASSIGN_OR_RETURN(link->socket_, host::Connect(name));
  // A socket's name is anybody's: without this, another user's process could listen there.
  const auto receiver = host::PeerProcess(link->socket_.get());
  if (!receiver.ok()) return receiver.status();
  Fd ring;
  TANDEM_ASSIGN_OR_RETURN(link->ring_, RingMapping::Create(&ring));
  link->bell_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  link->receiver_bell_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!link->bell_.ok() || !link->receiver_bell_.ok()) {
    return ResourceExhaustedError("descriptors for a same-host link: {}", strerror(errno));
  }
  link->nonce_ = std::make_unique<uint64_t>(SecretUint64());
  std::string hello(1, host::kHello);
  wire::Append(&hello, host::kMagic);
  wire::Append(&hello, reinterpret_cast<uint64_t>(link->nonce_.get()));
  wire::Append(&hello, *link->nonce_);
  const int fds[host::kHelloFds] = {ring.get(), link->receiver_bell_.get(), link->bell_.get()};
  const auto bytes = std::as_bytes(std::span(hello.data(), hello.size()));
  if (host::SendPacket(link->socket_.get(), bytes, fds) != host::Io::kOk) {
    return UnavailableError("a same-host peer takes no greeting: {}", strerror(errno));
  }
  return link;
}

OutgoingLink::~OutgoingLink() {
  if (!socket_.ok()) return;
  for (; reaped_ != head_; ++reaped_) {
    std::atomic<uint32_t>& state = ring_->at(reaped_).state;
    uint32_t seen = state.load(std::memory_order_acquire);
    while ((seen == SharedRing::kPosted || seen == SharedRing::kTaken) &&
           !state.compare_exchange_weak(seen, SharedRing::kWithdrawn, std::memory_order_acq_rel)) {
    }
  }
}

Nic::Taken OutgoingLink::Write(const NicWrite& write) {
  if (!up_ || head_ - reaped_ == SharedRing::kEntries) return Nic::Taken::kLater;
  SharedRing::Entry& entry = ring_->at(head_);
  entry.bytes = write.bytes;
  entry.immediate = write.immediate;
  entry.source = reinterpret_cast<uint64_t>(write.from);
  entry.key = write.remote->key;
  entry.offset = write.remote_offset;
  entry.state.store(SharedRing::kPosted, std::memory_order_release);
  contexts_[head_ % SharedRing::kEntries] = write.context;
  ring_->head.store(++head_, std::memory_order_release);
  RingBell(&ring_->receiver_asleep, receiver_bell_.get());
  return Nic::Taken::kYes;
}

Nic::Taken OutgoingLink::Send(std::span<const std::byte> message, uint64_t context) {
  if (!up_ || messages_.size() == kMessagesMost) return Nic::Taken::kLater;
  std::string packet(1, host::kMessage);
  wire::Append(&packet, ++last_message_);
  packet.append(reinterpret_cast<const char*>(message.data()), message.size());
  TANDEM_CHECK_LE(packet.size(), host::kPacketBytes);
  switch (host::SendPacket(socket_.get(), std::as_bytes(std::span(packet.data(), packet.size())))) {
    case host::Io::kLater: return Nic::Taken::kLater;
    case host::Io::kClosed: return Nic::Taken::kNever;
    case host::Io::kOk: break;
  }
  messages_.emplace(last_message_, context);
  return Nic::Taken::kYes;
}

Status OutgoingLink::OnPacket(NicLinkId self, const host::Packet& packet,
                              std::vector<NicEvent>* events) {
  const std::string_view text(reinterpret_cast<const char*>(packet.bytes.data()),
                              packet.bytes.size());
  NicEvent event;
  switch (text[0]) {
    case host::kWelcome:
      if (up_) break;
      up_ = true;
      event.kind = NicEvent::Kind::kLinkUp;
      event.link = self;
      events->push_back(std::move(event));
      return OkStatus();
    case host::kRefused:
      return UnavailableError("the peer refuses the same-host path: {}", text.substr(1));
    case host::kAck: {
      uint64_t id = 0;
      wire::Reader(text.substr(1)).Read(&id);
      const auto message = messages_.find(id);
      if (message == messages_.end()) break;
      event.context = message->second;
      messages_.erase(message);
      events->push_back(std::move(event));
      return OkStatus();
    }
    default: break;
  }
  return UnavailableError("a same-host peer sent something unexpected");
}

Status OutgoingLink::ReadSocket(NicLinkId self, std::vector<NicEvent>* events) {
  host::Packet packet;
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    switch (host::ReceivePacket(socket_.get(), kPacketBytes, &packet)) {
      case host::Io::kLater: return OkStatus();
      case host::Io::kClosed:
        return UnavailableError("the peer's process has ended or closed the link");
      case host::Io::kOk: TANDEM_RETURN_IF_ERROR(OnPacket(self, packet, events));
    }
  }
  return OkStatus();
}

bool OutgoingLink::Reap(std::vector<NicEvent>* events) {
  bool any = false;
  for (; reaped_ != head_; ++reaped_) {
    const uint32_t state = ring_->at(reaped_).state.load(std::memory_order_acquire);
    if (state == SharedRing::kPosted || state == SharedRing::kTaken) break;
    NicEvent event;
    event.context = contexts_[reaped_ % SharedRing::kEntries];
    if (state != SharedRing::kDone) {
      event.kind = NicEvent::Kind::kFailed;
      event.status = state == SharedRing::kNoRegion
                         ? FailedPreconditionError(
                               "the peer has no such region: it is closed, or "
                               "the key or the range is wrong")
                         : UnavailableError("the peer could not read the bytes");
    }
    events->push_back(std::move(event));
    any = true;
  }
  return any;
}

bool OutgoingLink::PrepareWait() {
  ring_->writer_asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (reaped_ == head_) return true;
  const uint32_t state = ring_->at(reaped_).state.load(std::memory_order_acquire);
  return state == SharedRing::kPosted || state == SharedRing::kTaken;
}

void OutgoingLink::Awake() { ring_->writer_asleep.store(0, std::memory_order_relaxed); }

}  // namespace tandem
