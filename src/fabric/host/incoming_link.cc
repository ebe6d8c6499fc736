#include "fabric/host/incoming_link.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "fabric/host/packets.h"
#include "fabric/wire.h"

namespace tandem {
namespace {

constexpr size_t kAcksMost = 1024;  // a writer that reads none of them has gone wrong
constexpr int kPacketsAtOnce = 64;

std::string_view TextOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

ssize_t ReadFrom(pid_t pid, std::span<const iovec> to, std::span<const iovec> from) {
  return process_vm_readv(pid, to.data(), to.size(), from.data(), from.size(), 0);
}

}  // namespace

// ---------------------------------------------------------------- packets

bool IncomingLink::ReadSocket(std::vector<NicEvent>* events) {
  host::Packet packet;
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    switch (host::ReceivePacket(socket_.get(), host::kPacketBytes, &packet)) {
      case host::Io::kLater: return true;
      case host::Io::kClosed: return false;
      case host::Io::kOk: break;
    }
    if (!introduced_) {
      if (!Introduce(&packet)) return false;
      continue;
    }
    wire::Reader reader(TextOf(packet.bytes));
    char kind = 0;
    uint64_t id = 0;
    if (!reader.Read(&kind) || kind != host::kMessage || !reader.Read(&id)) return false;
    NicEvent event;
    event.kind = NicEvent::Kind::kMessage;
    event.bytes.assign(packet.bytes.begin() + sizeof(kind) + sizeof(id), packet.bytes.end());
    events->push_back(std::move(event));
    if (!Acknowledge(id)) return false;
  }
  return true;
}

bool IncomingLink::Acknowledge(uint64_t id) {
  acks_.push_back(id);
  while (!acks_.empty()) {
    std::string ack(1, host::kAck);
    wire::Append(&ack, acks_.front());
    const host::Io io = host::SendPacket(socket_.get(), BytesOf(ack));
    if (io == host::Io::kClosed) return false;
    if (io == host::Io::kLater) break;
    acks_.pop_front();
  }
  return acks_.size() <= kAcksMost;
}

bool IncomingLink::Introduce(host::Packet* packet) {
  const Status status = Accept(packet);
  std::string answer(1, status.ok() ? host::kWelcome : host::kRefused);
  answer += status.message();
  const host::Io sent = host::SendPacket(socket_.get(), BytesOf(answer));
  introduced_ = status.ok();
  return introduced_ && sent == host::Io::kOk;
}

Status IncomingLink::Accept(host::Packet* packet) {
  wire::Reader reader(TextOf(packet->bytes));
  char kind = 0;
  uint32_t magic = 0;
  uint64_t address = 0;
  uint64_t nonce = 0;
  reader.Read(&kind);
  reader.Read(&magic);
  reader.Read(&address);
  reader.Read(&nonce);
  if (!reader.done() || kind != host::kHello || magic != host::kMagic ||
      packet->fds.size() != host::kHelloFds) {
    return InvalidArgumentError("the peer is of another version");
  }
  TANDEM_ASSIGN_OR_RETURN(writer_, host::PeerProcess(socket_.get()));
  TANDEM_ASSIGN_OR_RETURN(writer_watch_, host::WatchProcess(writer_));
  TANDEM_ASSIGN_OR_RETURN(ring_, RingMapping::Open(packet->fds[0].get()));
  bell_ = std::move(packet->fds[1]);
  writer_bell_ = std::move(packet->fds[2]);
  // The proof that its memory can be read, and that it is the process that we think it is.
  uint64_t found = 0;
  const iovec to = {&found, sizeof(found)};
  const iovec from = {reinterpret_cast<void*>(address), sizeof(found)};
  if (ReadFrom(writer_, {&to, 1}, {&from, 1}) != static_cast<ssize_t>(sizeof(found))) {
    return UnavailableError(
        "the memory of process {} cannot be read ({}): see process_vm_readv(2), "
        "kernel.yama.ptrace_scope",
        writer_, strerror(errno));
  }
  if (found != nonce) return InvalidArgumentError("the peer is not who it says");
  return OkStatus();
}

// ---------------------------------------------------------------- copying

// The next entry becomes `request_`. False when the writer has withdrawn it.
bool IncomingLink::TakeNext() {
  SharedRing::Entry& entry = ring_->at(next_);
  uint32_t expected = SharedRing::kPosted;
  if (!entry.state.compare_exchange_strong(expected, SharedRing::kTaken,
                                           std::memory_order_acq_rel)) {
    return false;
  }
  request_ = {entry.bytes, entry.immediate, entry.source, entry.key, entry.offset};
  taken_ = true;
  copied_ = 0;
  return true;
}

void IncomingLink::CollectParts(const KeyedRegions& regions, uint64_t head) {
  parts_.clear();
  refused_.clear();
  uint64_t budget = kBatchBytes;
  while (budget > 0 && parts_.size() < kPartsMost && next_ != head) {
    if (!taken_ && !TakeNext()) {
      ++next_;
      continue;
    }
    const auto region = regions.find(request_.key);
    if (region == regions.end() || request_.offset > region->second.size() ||
        region->second.size() - request_.offset < request_.bytes) {
      refused_.push_back(next_++);
      taken_ = false;
      continue;
    }
    Part part;
    part.number = next_;
    part.bytes = std::min<uint64_t>(request_.bytes - copied_, budget);
    part.to = region->second.data() + request_.offset + copied_;
    part.from = request_.source + copied_;
    copied_ += part.bytes;
    budget -= part.bytes;
    part.immediate = request_.immediate;
    part.last = copied_ == request_.bytes;
    parts_.push_back(part);
    if (!part.last) break;
    ++next_;
    taken_ = false;
  }
}

void IncomingLink::CopyParts() {
  std::array<iovec, kPartsMost> to;
  std::array<iovec, kPartsMost> from;
  size_t count = 0;
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.bytes == 0) continue;
    to[count] = {part.to, part.bytes};
    from[count++] = {reinterpret_cast<void*>(part.from), part.bytes};
    bytes += part.bytes;
  }
  if (count == 0) return;
  const ssize_t read = ReadFrom(writer_, {to.data(), count}, {from.data(), count});
  if (read == static_cast<ssize_t>(bytes)) return;
  // Some of it cannot be read: find out which.
  for (Part& part : parts_) {
    if (part.bytes == 0) continue;
    const iovec one = {part.to, part.bytes};
    const iovec other = {reinterpret_cast<void*>(part.from), part.bytes};
    part.failed = ReadFrom(writer_, {&one, 1}, {&other, 1}) != static_cast<ssize_t>(part.bytes);
  }
}

bool IncomingLink::WriterLives() const {
  pollfd fds[] = {{writer_watch_.get(), POLLIN, 0}, {socket_.get(), POLLRDHUP, 0}};
  if (poll(fds, 2, 0) < 0) return errno == EINTR;
  return fds[0].revents == 0 && (fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

void IncomingLink::End(uint64_t number, SharedRing::State state, Immediate immediate,
                       std::vector<NicEvent>* events) {
  uint32_t expected = SharedRing::kTaken;
  const bool counts =
      ring_->at(number).state.compare_exchange_strong(expected, state, std::memory_order_acq_rel);
  if (!counts || state != SharedRing::kDone) return;
  NicEvent event;
  event.kind = NicEvent::Kind::kImmediate;
  event.immediate = immediate;
  events->push_back(std::move(event));
}

bool IncomingLink::Copy(const KeyedRegions& regions, std::vector<NicEvent>* events, bool* any) {
  if (!introduced_) return true;
  const uint64_t head = ring_->head.load(std::memory_order_acquire);
  if (head - next_ > SharedRing::kEntries) return false;
  if (head == next_) return true;
  *any = true;
  CollectParts(regions, head);
  CopyParts();
  if (!WriterLives()) return false;  // what was read may be of nobody: nothing of it counts
  for (const uint64_t number : refused_) End(number, SharedRing::kNoRegion, 0, events);
  for (const Part& part : parts_) {
    if (part.failed) {
      End(part.number, SharedRing::kNoBytes, 0, events);
      if (part.last) continue;
      taken_ = false;  // the rest of it is not wanted
      ++next_;
    } else if (part.last) {
      End(part.number, SharedRing::kDone, part.immediate, events);
    }
  }
  RingBell(&ring_->writer_asleep, writer_bell_.get());
  return true;
}

bool IncomingLink::PrepareWait() {
  if (!introduced_) return true;
  ring_->receiver_asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ring_->head.load(std::memory_order_acquire) == next_;
}

void IncomingLink::Awake() {
  if (introduced_) ring_->receiver_asleep.store(0, std::memory_order_relaxed);
}

}  // namespace tandem
