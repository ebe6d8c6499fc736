// What: FabricEngine: the TransferEngine of real machines. One worker thread owns the NICs: network
//   interfaces through libfabric (libfabric/fi_nic.h), and the memory of this host
//   (host/host_nic.h), which is preferred for peers that live on it.
// Not here: what the worker does with peers and transfers (transfer_core.h).
// Threads: one owner, as TransferEngine says; `stats` from any thread. The worker waits for nobody;
//   the owner waits for the worker in RegisterLocal, RegisterRemote, CloseRegion, AddPeer,
//   RemovePeer and Cancel, for at most one of its turns.
// Invariants:
//   - Writes and messages cross to the worker on a bounded queue, at most kTransfersMost of them
//     and kPiecesMost pieces in flight; events come back in a list that they bound, except messages
//     of peers: those beyond kMessagesMost that Poll has not taken are dropped.
//   - The worker polls while there is something to do and for `spin` afterwards; then it sleeps
//     until a NIC, the owner or a deadline wakes it. It is the progress of this process as a target
//     too.
// Cost: an idle engine uses no processor time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/thread_annotations.h"
#include "fabric/expectation_table.h"
#include "fabric/transfer_core.h"
#include "fabric/transfer_engine.h"

namespace tandem {

class FabricEngine final : public TransferEngine {
 public:
  struct Config {
    // Addresses of this machine's interfaces, one NIC each ("10.0.0.5", "10.0.1.5"); topology.h
    // chooses them by distance. None: same-host peers only.
    std::vector<std::string> hosts;
    bool same_host = true;  // the path through this host's memory
    // How long the worker polls on before it sleeps: a wake-up costs tens of microseconds, polling
    // a processor.
    TimeNs spin = 20 * kNsPerUs;
    std::optional<int> cpu;  // the worker's; none: wherever the system likes
    TransferCore::Config core;
  };
  static constexpr size_t kTransfersMost = 4096;
  static constexpr size_t kPiecesMost = size_t{1} << 20;
  static constexpr size_t kMessagesMost = 1024;

  // UNAVAILABLE when an interface cannot be used, INVALID_ARGUMENT for no way to any peer.
  static Result<std::unique_ptr<FabricEngine>> Create(const Config& config);
  // The same over given NICs (tests).
  static Result<std::unique_ptr<FabricEngine>> Create(std::vector<std::unique_ptr<Nic>> nics,
                                                      const Config& config);
  // Ends everything; no event comes any more.
  ~FabricEngine() override;

  std::string address() const override;
  Result<PeerId> AddPeer(std::string_view address) override;
  void RemovePeer(PeerId peer) override;
  Result<RegionId> RegisterLocal(std::span<std::byte> memory) override;
  Result<RegionId> RegisterRemote(std::span<std::byte> memory, RemoteRegion* remote) override;
  void CloseRegion(RegionId region) override;
  Result<TransferId> Write(PeerId peer, RegionId local, const RemoteRegion& remote,
                           std::span<const WritePiece> pieces, TimeNs deadline) override;
  void Cancel(TransferId transfer) override;
  Result<TransferId> Send(PeerId peer, std::span<const std::byte> message,
                          TimeNs deadline) override;
  Result<Expectation> Expect(uint32_t pieces, TimeNs deadline) override;
  void Abandon(Immediate first) override;
  void Drained(Immediate first) override;
  bool Poll(std::vector<FabricEvent>* events) override;
  void SetWake(std::function<void()> wake) override;
  FabricStats stats() const override;

  // The clock of all deadlines.
  const Clock& clock() const { return clock_; }

 private:
  struct SyncCall {
    std::function<void()> what;
    bool done = false;
  };

  FabricEngine(std::unique_ptr<TransferCore> core, const Config& config);
  Status Start();
  Result<RegionId> RegisterMemory(std::span<std::byte> memory, RemoteRegion* remote);
  Result<TransferId> Enqueue(TransferCore::NewTransfer transfer);
  // Runs it on the worker and waits.
  void OnWorker(std::function<void()> what);
  void WakeWorker();

  void Work();
  bool RunCommands();
  void Deliver(TransferCore::Output* output, TimeNs now);
  void Count(Immediate immediate) TANDEM_REQUIRES(mutex_);
  void Sleep(TimeNs now);
  bool HasCommands();

  const Config config_;
  SteadyClock clock_;
  std::unique_ptr<TransferCore> core_;  // the worker's, once it runs
  EngineAddress address_;

  // The owner's.
  std::unordered_map<RegionId, std::span<std::byte>> local_regions_;
  uint32_t last_region_ = 0;
  uint32_t last_peer_ = 0;
  uint64_t last_transfer_ = 0;

  // Between the two.
  BoundedQueue<TransferCore::NewTransfer> begun_{kTransfersMost};
  std::atomic<size_t> transfers_in_flight_{0};
  std::atomic<size_t> pieces_in_flight_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  int wake_fd_ = -1;

  mutable Mutex mutex_;
  CondVar call_done_;
  SyncCall* call_ TANDEM_GUARDED_BY(mutex_) = nullptr;
  std::function<void()> wake_ TANDEM_GUARDED_BY(mutex_);
  std::vector<FabricEvent> events_ TANDEM_GUARDED_BY(mutex_);
  size_t messages_held_ TANDEM_GUARDED_BY(mutex_) = 0;
  ExpectationTable expectations_ TANDEM_GUARDED_BY(mutex_);
  TimeNs expectations_due_ TANDEM_GUARDED_BY(mutex_) = INT64_MAX;  // at the latest then, look
  FabricStats counted_ TANDEM_GUARDED_BY(mutex_);                  // what the core does not count
  FabricStats stats_ TANDEM_GUARDED_BY(mutex_);                    // all, as of the last events

  // The worker's: pieces of each transfer in flight.
  std::unordered_map<TransferId, size_t> pieces_of_;
  std::thread worker_;
};

}  // namespace tandem
