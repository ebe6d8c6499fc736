#include "fabric/fabric_engine.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "fabric/host/host_nic.h"
#include "fabric/libfabric/fi_nic.h"

namespace tandem {
namespace {

// A sleep ends so often whatever happens: a lost wake-up of a provider costs this much, not all.
constexpr TimeNs kSleepMost = 100 * kNsPerMs;

}  // namespace

Result<std::unique_ptr<FabricEngine>> FabricEngine::Create(const Config& config) {
  std::vector<std::unique_ptr<Nic>> nics;
  if (config.same_host) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Nic> nic, HostNic::Open());
    nics.push_back(std::move(nic));
  }
  for (const std::string& host : config.hosts) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Nic> nic, FiNic::Open(host));
    nics.push_back(std::move(nic));
  }
  return Create(std::move(nics), config);
}

Result<std::unique_ptr<FabricEngine>> FabricEngine::Create(std::vector<std::unique_ptr<Nic>> nics,
                                                           const Config& config) {
  if (nics.empty() || nics.size() > RemoteRegion::kMaxNics) {
    return InvalidArgumentError("a transfer engine has 1 to {} network interfaces, not {}",
                                RemoteRegion::kMaxNics, nics.size());
  }
  auto core = std::make_unique<TransferCore>(std::move(nics), config.core);
  std::unique_ptr<FabricEngine> engine(new FabricEngine(std::move(core), config));
  TANDEM_RETURN_IF_ERROR(engine->Start());
  return engine;
}

FabricEngine::FabricEngine(std::unique_ptr<TransferCore> core, const Config& config)
    : config_(config), core_(std::move(core)), address_(core_->address()) {}

Status FabricEngine::Start() {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return UnavailableError("no descriptor to wake a thread: {}", strerror(errno));
  worker_ = std::thread([this] { Work(); });
  if (config_.cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(*config_.cpu), &set);
    const int error = pthread_setaffinity_np(worker_.native_handle(), sizeof(set), &set);
    if (error != 0) {
      return InvalidArgumentError("the fabric's thread cannot run on processor {}: {}",
                                  *config_.cpu, strerror(error));
    }
  }
  return OkStatus();
}

FabricEngine::~FabricEngine() {
  stop_.store(true);
  if (worker_.joinable()) {
    WakeWorker();
    worker_.join();
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

// ---------------------------------------------------------------- the owner's side

std::string FabricEngine::address() const { return address_.Encode(); }

void FabricEngine::WakeWorker() {
  // Pairs with the fence in Sleep: either it sees the command, or this sees it asleep.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!asleep_.load(std::memory_order_relaxed)) return;
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof(one)) < 0 && errno != EAGAIN) {
    LogError("the fabric's thread cannot be woken: {}", strerror(errno));
  }
}

void FabricEngine::OnWorker(std::function<void()> what) {
  SyncCall call{std::move(what)};
  MutexLock lock(mutex_);
  TANDEM_CHECK(call_ == nullptr);  // one owner
  call_ = &call;
  WakeWorker();
  while (!call.done) call_done_.Wait(mutex_);
}

Result<PeerId> FabricEngine::AddPeer(std::string_view address) {
  TANDEM_ASSIGN_OR_RETURN(const EngineAddress decoded, EngineAddress::Decode(address));
  const PeerId id(++last_peer_);
  bool reached = false;
  OnWorker([&] {
    reached = core_->Reaches(decoded);
    if (reached) core_->AddPeer(id, decoded, clock_.Now());
  });
  if (!reached) {
    return InvalidArgumentError(
        "no way to the peer: it has no network interface of a kind that this engine has");
  }
  return id;
}

void FabricEngine::RemovePeer(PeerId peer) {
  OnWorker([&] { core_->RemovePeer(peer); });
}

Result<RegionId> FabricEngine::RegisterMemory(std::span<std::byte> memory, RemoteRegion* remote) {
  const RegionId id(++last_region_);
  Status status;
  OnWorker([&] { status = core_->Register(id, memory, remote); });
  if (!status.ok()) return status;
  return id;
}

Result<RegionId> FabricEngine::RegisterLocal(std::span<std::byte> memory) {
  TANDEM_ASSIGN_OR_RETURN(const RegionId id, RegisterMemory(memory, nullptr));
  local_regions_.emplace(id, memory);
  return id;
}

Result<RegionId> FabricEngine::RegisterRemote(std::span<std::byte> memory, RemoteRegion* remote) {
  TANDEM_CHECK(remote != nullptr);
  return RegisterMemory(memory, remote);
}

void FabricEngine::CloseRegion(RegionId region) {
  local_regions_.erase(region);
  OnWorker([&] { core_->CloseRegion(region); });
}

Result<TransferId> FabricEngine::Enqueue(TransferCore::NewTransfer transfer) {
  const size_t pieces = transfer.pieces.size();
  if (transfers_in_flight_.load() >= kTransfersMost ||
      pieces_in_flight_.load() + pieces > kPiecesMost) {
    return ResourceExhaustedError("too many transfers in flight; try again when one has ended");
  }
  transfer.id = TransferId(++last_transfer_);
  const TransferId id = transfer.id;
  transfers_in_flight_.fetch_add(1);
  pieces_in_flight_.fetch_add(pieces);
  TANDEM_CHECK(begun_.TryPush(std::move(transfer)));  // as large as what may be in flight
  WakeWorker();
  return id;
}

Result<TransferId> FabricEngine::Write(PeerId peer, RegionId local, const RemoteRegion& remote,
                                       std::span<const WritePiece> pieces, TimeNs deadline) {
  const auto region = local_regions_.find(local);
  if (region == local_regions_.end()) return InvalidArgumentError("not a local region");
  if (remote.nics.empty() || remote.nics.size() > RemoteRegion::kMaxNics) {
    return InvalidArgumentError("a remote region at {} network interfaces", remote.nics.size());
  }
  const uint64_t local_bytes = region->second.size();
  for (const WritePiece& piece : pieces) {
    if (piece.local_offset > local_bytes || local_bytes - piece.local_offset < piece.bytes) {
      return InvalidArgumentError("{} bytes at {} are outside the local region of {}", piece.bytes,
                                  piece.local_offset, local_bytes);
    }
    if (piece.remote_offset > remote.bytes || remote.bytes - piece.remote_offset < piece.bytes) {
      return InvalidArgumentError("{} bytes at {} are outside the remote region of {}", piece.bytes,
                                  piece.remote_offset, remote.bytes);
    }
  }
  TransferCore::NewTransfer transfer;
  transfer.peer = peer;
  transfer.local = local;
  transfer.remote = remote;
  transfer.pieces.assign(pieces.begin(), pieces.end());
  transfer.deadline = deadline;
  return Enqueue(std::move(transfer));
}

Result<TransferId> FabricEngine::Send(PeerId peer, std::span<const std::byte> message,
                                      TimeNs deadline) {
  if (message.size() > kMaxMessageBytes) {
    return InvalidArgumentError("a message of {} bytes; at most {}", message.size(),
                                kMaxMessageBytes);
  }
  TransferCore::NewTransfer transfer;
  transfer.peer = peer;
  transfer.is_message = true;
  transfer.message.assign(message.begin(), message.end());
  transfer.deadline = deadline;
  return Enqueue(std::move(transfer));
}

void FabricEngine::Cancel(TransferId transfer) {
  OnWorker([&] { core_->Cancel(transfer); });
}

Result<Expectation> FabricEngine::Expect(uint32_t pieces, TimeNs deadline) {
  MutexLock lock(mutex_);
  Result<Expectation> made = expectations_.Expect(pieces, deadline);
  if (made.ok() && deadline < expectations_due_) {
    expectations_due_ = deadline;
    WakeWorker();  // it may sleep beyond the deadline
  }
  return made;
}

void FabricEngine::Abandon(Immediate first) {
  MutexLock lock(mutex_);
  expectations_.Abandon(first);
}

void FabricEngine::Drained(Immediate first) {
  MutexLock lock(mutex_);
  expectations_.Drained(first);
}

bool FabricEngine::Poll(std::vector<FabricEvent>* events) {
  MutexLock lock(mutex_);
  if (events_.empty()) return false;
  std::move(events_.begin(), events_.end(), std::back_inserter(*events));
  events_.clear();
  messages_held_ = 0;
  return true;
}

void FabricEngine::SetWake(std::function<void()> wake) {
  MutexLock lock(mutex_);
  wake_ = std::move(wake);
}

FabricStats FabricEngine::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

// ---------------------------------------------------------------- the worker

void FabricEngine::Work() {
  pthread_setname_np(pthread_self(), "tandem-fabric");
  TransferCore::Output output;
  TimeNs last_busy = clock_.Now();
  while (!stop_.load(std::memory_order_relaxed)) {
    bool busy = RunCommands();
    const TimeNs now = clock_.Now();
    busy |= core_->Turn(now, &output);
    Deliver(&output, now);
    if (busy) {
      last_busy = now;
    } else if (now - last_busy >= config_.spin) {
      Sleep(now);
    } else {
      sched_yield();  // whoever we wait for may need this processor
    }
  }
  core_.reset();  // its NICs are this thread's
}

bool FabricEngine::RunCommands() {
  bool any = false;
  while (auto transfer = begun_.TryPop()) {
    pieces_of_.emplace(transfer->id, transfer->pieces.size());
    core_->Begin(std::move(*transfer));
    any = true;
  }
  SyncCall* call = nullptr;
  {
    MutexLock lock(mutex_);
    call = call_;
    call_ = nullptr;
  }
  if (call == nullptr) return any;
  call->what();
  MutexLock lock(mutex_);
  call->done = true;
  call_done_.NotifyAll();
  return true;
}

void FabricEngine::Deliver(TransferCore::Output* output, TimeNs now) {
  for (const FabricEvent& event : output->events) {
    const auto* ended = std::get_if<TransferEnded>(&event);
    if (ended == nullptr) continue;
    const auto pieces = pieces_of_.extract(ended->transfer);
    TANDEM_CHECK(!pieces.empty());
    transfers_in_flight_.fetch_sub(1);
    pieces_in_flight_.fetch_sub(pieces.mapped());
  }
  std::function<void()> wake;
  {
    MutexLock lock(mutex_);
    const bool was_empty = events_.empty();
    for (FabricEvent& event : output->events) {
      if (std::holds_alternative<MessageReceived>(event) && ++messages_held_ > kMessagesMost) {
        continue;
      }
      events_.push_back(std::move(event));
    }
    for (const Immediate immediate : output->immediates) Count(immediate);
    if (now >= expectations_due_) {
      while (auto late = expectations_.TakeLate(now)) {
        ++counted_.expectations_late;
        events_.push_back(std::move(*late));
      }
      expectations_due_ = expectations_.next_deadline().value_or(INT64_MAX);
    }
    stats_ = counted_;
    core_->AddTo(&stats_);
    if (was_empty && !events_.empty()) wake = wake_;
  }
  output->events.clear();
  output->immediates.clear();
  if (wake) wake();
}

void FabricEngine::Count(Immediate immediate) {
  switch (expectations_.Count(immediate)) {
    case ExpectationTable::Seen::kCounted: return;
    case ExpectationTable::Seen::kMet:
      ++counted_.expectations_met;
      events_.push_back(ExpectationEnded{immediate & ~(kMaxExpectedPieces - 1), OkStatus(), 0});
      return;
    case ExpectationTable::Seen::kStale: ++counted_.immediates_stale; return;
    case ExpectationTable::Seen::kDuplicate: ++counted_.immediates_duplicate; return;
    case ExpectationTable::Seen::kUnknown: ++counted_.immediates_unknown; return;
  }
}

bool FabricEngine::HasCommands() {
  if (stop_.load() || begun_.size() > 0) return true;
  MutexLock lock(mutex_);
  return call_ != nullptr;
}

void FabricEngine::Sleep(TimeNs now) {
  asleep_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  TimeNs until = std::min(core_->next_deadline(now), now + kSleepMost);
  {
    MutexLock lock(mutex_);
    until = std::min(until, expectations_due_);
  }
  bool ready = !HasCommands() && until > now;
  std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
  for (const auto& nic : core_->nics()) {
    ready = ready && nic->PrepareWait();
    fds.push_back({nic->wait_fd(), POLLIN, 0});
  }
  if (ready) {
    const timespec timeout = {(until - now) / kNsPerS, (until - now) % kNsPerS};
    ppoll(fds.data(), fds.size(), &timeout, nullptr);
  }
  asleep_.store(false, std::memory_order_relaxed);
  uint64_t count = 0;
  if (ready && (fds[0].revents & POLLIN) != 0 && read(wake_fd_, &count, sizeof(count)) < 0) {
    LogError("the fabric's wake-up cannot be read: {}", strerror(errno));
  }
}

}  // namespace tandem
