// What: IncomingLink: the receiving end of a same-host link. The receiver copies: it reads the
//   writer's memory (process_vm_readv) into its own region, as the writer's ring asks.
// Not here: the other end (outgoing_link.h), accepting connections (host_nic.h).
// Threads: one owner: the NIC's worker.
// Invariants:
//   - Only this process writes its regions, on one thread: a region that is taken out of the table
//     gets no further byte, whatever the writer does. That is the fence.
//   - A copy counts only if the writer was alive after it and had not withdrawn it.
//   - Nothing of the ring is trusted: keys and ranges are checked on copies of the fields.
// Cost: one system call for up to kPartsMost pieces, and one to see that the writer lives; one copy
//   of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/host/host_socket.h"
#include "fabric/host/shared_ring.h"
#include "fabric/nic.h"

namespace tandem {

// Regions that peers may write, by key.
using KeyedRegions = std::unordered_map<uint64_t, std::span<std::byte>>;

class IncomingLink {
 public:
  // A connection that has not said anything yet.
  explicit IncomingLink(Fd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  // The writer rings it; -1 until it has introduced itself.
  int bell() const { return bell_.get(); }

  // Reads packets. False: close the link.
  bool ReadSocket(std::vector<NicEvent>* events);
  // Copies some of what is asked for. False: close the link. *any: something was done.
  bool Copy(const KeyedRegions& regions, std::vector<NicEvent>* events, bool* any);
  // Says that the receiver sleeps; false when there is something to do.
  bool PrepareWait();
  void Awake();

 private:
  static constexpr size_t kPartsMost = 32;
  static constexpr uint64_t kBatchBytes = 1 << 20;  // of one round, so that a close is not kept

  struct Request {
    uint32_t bytes = 0;
    Immediate immediate = 0;
    uint64_t source = 0;
    uint64_t key = 0;
    uint64_t offset = 0;
  };
  // Of one request, in one round.
  struct Part {
    uint64_t number = 0;  // the entry's
    std::byte* to = nullptr;
    uint64_t from = 0;
    uint64_t bytes = 0;
    Immediate immediate = 0;
    bool last = false;  // of its request
    bool failed = false;
  };

  bool Introduce(host::Packet* packet);
  Status Accept(host::Packet* packet);
  bool Acknowledge(uint64_t id);
  bool TakeNext();
  void CollectParts(const KeyedRegions& regions, uint64_t head);
  void CopyParts();
  bool WriterLives() const;
  void End(uint64_t number, SharedRing::State state, Immediate immediate,
           std::vector<NicEvent>* events);

  Fd socket_;
  Fd bell_;         // to us
  Fd writer_bell_;  // from us
  RingMapping ring_;
  pid_t writer_ = 0;
  Fd writer_watch_;
  bool introduced_ = false;

  uint64_t next_ = 0;   // entry to look at
  bool taken_ = false;  // it is being copied: `request_`
  Request request_;
  uint64_t copied_ = 0;  // of it
  std::vector<Part> parts_;
  std::vector<uint64_t> refused_;  // entries of the round that name no region
  std::deque<uint64_t> acks_;      // that the socket has not taken yet
};

}  // namespace tandem
